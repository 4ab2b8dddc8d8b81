"""Pre-shared keys: their file, and what is said where they cannot be used."""

import ssl
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.transport import preshared_keys
from penstock.transport.dialling import TlsFiles
from penstock.transport.preshared_keys import KeyFile, parse_key

KEY = "ab" * 32


@pytest.fixture
def new_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read alike whether this Python has pre-shared keys or not."""
    monkeypatch.setattr(preshared_keys, "is_available", lambda: True)


def test_an_old_python_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preshared_keys, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"^listener main: pre-shared keys .* need Python 3\.13"):
        KeyFile(str(tmp_path / "keys"), "listener main")
    files = TlsFiles(psk_identity="a", psk=KEY)
    with pytest.raises(ConfigError, match=r"^bridge 'cloud': pre-shared keys .* need Python 3\.13"):
        files.context("bridge 'cloud'")


@pytest.mark.usefixtures("new_python")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# nobody\n\n", "has no line identity:key"),
        ("meter-7\n", "line 1: a line is identity:key"),
        (f"a:{KEY}\n:{KEY}\n", "line 2: an identity has 1 to 128 bytes"),
        (f"{'x' * 129}:{KEY}\n", "line 1: an identity has 1 to 128 bytes"),
        ("a:not hexadecimal\n", "line 1: a key is written in hexadecimal digits"),
        ("a:abcd\n", "line 1: a key has 16 to 64 bytes, and this one 2: 'openssl rand -hex 32'"),
        (f"a:{'ab' * 65}\n", "line 1: a key has 16 to 64 bytes, and this one 65"),
        (f"a:{KEY}\nb:{KEY}\na:{KEY}\n", "line 3: an earlier line has this identity"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence_without_the_key(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        KeyFile(str(file), "listener main")
    assert str(error.value).startswith(f"listener main: the psk_file {file}")
    assert said in str(error.value)
    assert "abab" not in str(error.value)


@pytest.mark.usefixtures("new_python")
def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        KeyFile(str(tmp_path / "absent"), "listener main")
    (tmp_path / "latin").write_bytes(b"\xe4:" + KEY.encode())
    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8"):
        KeyFile(str(tmp_path / "latin"), "listener main")


def test_the_identity_may_have_a_colon_in_it() -> None:
    assert parse_key("urn:dev:7", KEY) == b"\xab" * 32


@pytest.mark.usefixtures("new_python")
def test_a_client_with_a_mistake_in_its_key_is_told_without_the_key() -> None:
    with pytest.raises(ConfigError, match="bridge 'cloud': the pre-shared key cannot be used: a"):
        TlsFiles(psk_identity="meter-7", psk="xyz").context("bridge 'cloud'")
    assert "secret" not in repr(TlsFiles(psk_identity="meter-7", psk="secret"))


def test_a_preshared_key_is_available_where_ssl_has_it() -> None:
    assert preshared_keys.is_available() == hasattr(ssl.SSLContext, "set_psk_client_callback")
