"""A file that a setting names: nothing but a regular one is read, and again when it has changed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.app.composing import login_method
from penstock.auth.files import read_passwords
from penstock.auth.json_web_tokens import KeySet
from penstock.cluster import etcd_client, nats_login
from penstock.config.address import Address
from penstock.config.admin import Admin
from penstock.config.listener import Listener
from penstock.config.load import load_settings
from penstock.decoding.files import read_file
from penstock.errors import ConfigError
from penstock.mosquitto.configuration import read_text
from penstock.mosquitto.database import read_database
from penstock.regular_file import file_version, read_regular
from penstock.services.admin_process import file_versions
from penstock.transport.dialling import TlsFiles
from penstock.transport.tls import Certificates, read_authorities, read_pair
from tests.support.dial import Authority


def listener(path: Path) -> Listener:
    return Listener(kind="tls", bind=Address("127.0.0.1", 0), certificate=str(path), key=str(path))


def beside_a_good_certificate(setting: str, path: Path) -> Certificates:
    """Read a listener's certificate, and the file of another setting of it."""
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        certificate, key = authority.issue("server", "localhost")
        files: dict[str, Any] = {"client_ca": authority.file, setting: str(path)}
        bind = Address("127.0.0.1", 0)
        settings = Listener(kind="tls", bind=bind, certificate=certificate, key=key, **files)
        return Certificates("main", settings)


READERS: dict[str, Callable[[Path], object]] = {
    "passwords": read_passwords,
    "key set": lambda path: KeySet(str(path), 60.0),
    "login of etcd": lambda path: etcd_client.read_login(str(path)),
    "login of NATS": lambda path: nats_login.read_login(str(path)),
    "schema": lambda path: read_file(str(path), "schema"),
    "Mosquitto's passwords": lambda path: read_text(path, "password file"),
    "Mosquitto's database": read_database,
    "certificate": lambda path: read_pair(path, path),
    "authorities": read_authorities,
    "certificate of a listener": lambda path: Certificates("main", listener(path)),
    "client_ca of a listener": partial(beside_a_good_certificate, "client_ca"),
    "crl of a listener": partial(beside_a_good_certificate, "crl"),
    "certificate of a bridge": lambda path: TlsFiles(certificate=str(path)).context("b"),
    "authorities of a bridge": lambda path: TlsFiles(ca=str(path)).context("b"),
    "authorities of a service": lambda path: login_method(
        load_settings(
            None, {"http_login.url": "https://localhost", "http_login.ca_file": str(path)}, {}
        )
    ),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_fifo_that_nobody_writes_to_hangs_nobody(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    """A reload with one stopped the broker for good."""
    os.mkfifo(tmp_path / "file")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        read(tmp_path / "file")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_device_without_an_end_is_not_read(read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigError, match="it is not a regular file"):
        read(Path("/dev/zero"))


def test_a_file_that_is_too_large_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123")
    assert read_regular(tmp_path / "file", 3) == b"123"
    with pytest.raises(OSError, match="it is larger than 2 bytes"):
        read_regular(tmp_path / "file", 2)


def test_a_file_that_is_not_set_never_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty name was the working directory: any file made there logged all operators out."""
    monkeypatch.chdir(tmp_path)
    before = file_versions(Admin())
    (tmp_path / "new").touch()
    assert file_versions(Admin()) == before == [None, None, None]


def test_a_file_has_another_version_once_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert file_version(str(file)) is None
    file.write_text("a")
    before = file_version(str(file))
    file.write_text("ab")
    assert None is not before != file_version(str(file))
