"""Each check of the doctor, on something that is there and something that is not."""

import asyncio
import socket
import sys
import tempfile
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from penstock.app import composing
from penstock.auth.files import write_passwords
from penstock.auth.passwords import password_line
from penstock.cli import doctor
from penstock.cli.doctor import Finding, Verdict
from penstock.config.address import Address
from penstock.config.admin import Admin
from penstock.config.listener import OtherListener
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.control.metric_requests import Health, ReadHealth
from penstock.services.control import Control
from penstock.spark.java import Java, JavaNotFound
from tests.support.dial import Authority


def test_a_free_port_is_ok_and_a_taken_one_blocks() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        bind = Address("127.0.0.1", listener.getsockname()[1])
        taken = doctor.check_port("MQTT port", "listener.bind", bind)
    assert taken.is_blocking
    assert "listener.bind" in taken.remedy
    assert doctor.check_port("MQTT port", "listener.bind", bind).verdict is Verdict.OK


def test_an_address_of_the_broker_that_runs_is_no_mistake() -> None:
    """`penstock doctor --config` called its own running broker another program."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        bind = Address("127.0.0.1", listener.getsockname()[1])
        found = doctor.check_port("MQTT port", "listener.bind", bind, "/data")
    assert found.verdict is Verdict.OK
    assert found.detail == f"{bind} is in use, and the broker of /data runs"


async def test_a_broker_that_runs_on_the_data_directory_is_noticed(tmp_path: Path) -> None:
    settings = Settings.model_validate({"durability": {"data_dir": str(tmp_path)}})
    assert doctor.check_running_broker(settings) is None
    control = Control(tmp_path)
    await control.open()
    found = await asyncio.to_thread(doctor.check_running_broker, settings)
    assert found == Finding("broker", Verdict.OK, f"runs on {tmp_path}")
    await control.close()


def test_a_data_directory_is_probed_without_being_made(tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    assert doctor.check_data_directory(wanted).verdict is Verdict.OK
    assert not wanted.exists()
    file = tmp_path / "file"
    file.touch()
    assert doctor.check_data_directory(file / "below").is_blocking


def test_a_data_directory_without_room_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `penstock doctor` finds nothing wrong, and the broker does not start."""
    monkeypatch.setattr(doctor, "_ROOM_BYTES", 2**60)
    found = doctor.check_data_directory(Path(tempfile.gettempdir()))
    assert found.is_blocking
    assert "File too large: raise the limit" in found.detail


def test_the_remedy_for_a_full_disk_keeps_what_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was to choose another directory, with which the broker would have begun empty."""
    monkeypatch.setattr(doctor, "_ROOM_BYTES", 2**60)
    assert "choose another" in doctor.check_data_directory(tmp_path).remedy
    (tmp_path / "store").mkdir()
    found = doctor.check_data_directory(tmp_path)
    assert found.is_blocking
    assert "mend this one" in found.remedy
    assert "choose" not in found.remedy


async def test_a_member_that_waits_for_an_operator_is_told_with_the_reason(tmp_path: Path) -> None:
    """With the log of the whole cluster lost everything was "ok"."""
    settings = Settings.model_validate({"durability": {"data_dir": str(tmp_path)}})
    health = Health("", 0.0, False, False, role="waiting", member_problem="the log lost entries")
    control = Control(tmp_path)
    control.on(ReadHealth, AsyncMock(return_value=health))
    await control.open()
    found = await asyncio.to_thread(doctor.check_running_broker, settings)
    assert found is not None
    assert found.is_blocking
    assert found.detail == "the log lost entries"
    assert "penstock cluster status" in found.remedy
    await control.close()


def test_a_data_directory_of_another_user_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Root may write there; the broker would leave files that its own user cannot read."""
    assert doctor.check_data_directory(tmp_path).verdict is Verdict.OK
    own = tmp_path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: own + 1)
    found = doctor.check_data_directory(tmp_path)
    assert found.verdict is Verdict.ABSENT
    assert f"it belongs to user {own}" in found.detail
    assert doctor.check_data_directory(tmp_path / "to be made").verdict is Verdict.OK


def test_a_disk_that_the_log_may_fill_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(5000))
    assert doctor.check_disk(tmp_path, 4096).verdict is Verdict.OK  # there already
    assert doctor.check_disk(tmp_path / "to be made", 4096).verdict is Verdict.OK
    full = doctor.check_disk(tmp_path, 2**60)
    assert full.verdict is Verdict.ABSENT
    assert "the log may take 1 EiB" in full.detail
    assert doctor.check_disk(tmp_path, 0).verdict is Verdict.ABSENT


def test_open_files_are_compared_with_connections() -> None:
    settings = load_settings(None, {"listener.max_connections": 5000}, {})
    assert doctor.check_open_files(settings, 10_000).verdict is Verdict.OK
    few = doctor.check_open_files(settings, 1024)
    assert few.verdict is Verdict.ABSENT
    assert few.detail.startswith("1,024, of which 922 for connections")
    assert "LimitNOFILE" in few.remedy
    assert doctor.check_open_files(settings, -1).verdict is Verdict.OK  # RLIM_INFINITY


def test_a_clock_that_nothing_keeps_right_is_told() -> None:
    assert doctor.check_wall_clock(1_795_000_000_000_000).verdict is Verdict.OK
    found = doctor.check_wall_clock(1_795_000_000_000_000, synchronized=False)
    assert found.verdict is Verdict.ABSENT
    assert "NTP" in found.remedy


def test_a_required_package_blocks_and_an_optional_one_does_not() -> None:
    assert doctor.check_package("pyarrow", "the log", required=True).verdict is Verdict.OK
    assert doctor.check_package("no-such-package", "the log", required=True).is_blocking
    optional = doctor.check_package("no-such-package", "Spark", required=False)
    assert optional.verdict is Verdict.ABSENT
    assert "penstock[spark]" in optional.remedy


def test_a_package_that_does_not_load_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_package.py").write_text("raise OSError('wrong C library')")
    information = tmp_path / "broken_package-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: broken_package\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    finding = doctor.check_package("broken_package", "the log", required=True)
    assert finding.is_blocking
    assert "wrong C library" in finding.detail


def test_a_missing_tool_names_its_package() -> None:
    assert doctor.check_tool("sh", "dash").verdict is Verdict.OK
    finding = doctor.check_tool("no-such-tool", "the-package")
    assert not finding.is_blocking
    assert "the-package" in finding.remedy


def test_java_is_named_with_its_version_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", lambda: Java("/java", 21, "PATH"))
    assert doctor.check_java() == Finding("Java", Verdict.OK, "21 from PATH, /java")


def test_without_java_the_sentence_is_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Java:
        raise JavaNotFound("install one")

    monkeypatch.setattr(doctor, "find_java", nothing)
    assert doctor.check_java() == Finding("Java", Verdict.ABSENT, "none", "install one")


def test_without_a_compiler_penstock_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert doctor.check_compiler().verdict is Verdict.ABSENT


def test_an_interpreted_build_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "build_kind", lambda: "interpreted")
    assert doctor.check_build().verdict is Verdict.ABSENT


def test_the_report_has_a_line_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.print_report(
        [
            Finding("Python", Verdict.OK, "3.11"),
            Finding("gadget", Verdict.MISSING, "none [at all]", "do [this]."),
        ]
    )
    text = capsys.readouterr().out
    assert "Python" in text
    assert "gadget: do [this]." in text
    assert "none [at all]" in text


def others(**listener: object) -> OtherListener:
    return OtherListener.model_validate({"name": "outside", **listener})


def test_every_listener_is_checked(tmp_path: Path) -> None:
    settings = load_settings(
        None,
        {
            "listener.bind": "127.0.0.1:0",
            "listener.others": [
                {"name": "v6", "bind": "[::1]:0"},
                {"name": "local", "kind": "unix", "bind": str(tmp_path / "mqtt.sock")},
            ],
        },
        {},
    )
    found = {finding.subject: finding.verdict for finding in doctor.examine(settings)}
    for name in ("main", "v6", "local"):
        assert found[f"listener {name}"] is Verdict.OK


def test_a_listener_whose_certificate_cannot_be_read_blocks() -> None:
    finding = doctor.check_listener(
        others(kind="tls", bind="127.0.0.1:0", certificate="/absent.pem", key="/absent.key")
    )
    assert finding.is_blocking
    assert "/absent.pem" in finding.detail


def test_an_admin_process_needs_its_packages_its_files_and_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bind = Address("127.0.0.1", 0)
    monkeypatch.setattr(composing, "find_spec", lambda _: None)
    lacks = doctor.check_admin_process(Admin(bind=bind), bind)
    assert lacks.is_blocking
    assert "penstock[admin]" in lacks.detail
    monkeypatch.setattr(composing, "find_spec", lambda _: object())
    assert doctor.check_admin_process(Admin(bind=bind), bind).verdict is Verdict.OK
    assert doctor.check_admin_process(Admin(bind=bind, token_file="nowhere"), bind).is_blocking


def test_a_socket_file_needs_its_directory(tmp_path: Path) -> None:
    finding = doctor.check_listener(
        others(kind="unix", bind=str(tmp_path / "absent" / "mqtt.sock"))
    )
    assert finding.is_blocking
    assert finding.detail == f"there is no directory {tmp_path / 'absent'}"
    assert finding.remedy.startswith("make the directory, or change")


def test_a_socket_file_needs_a_directory_it_may_be_made_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    finding = doctor.check_listener(others(kind="unix", bind=str(tmp_path / "mqtt.sock")))
    assert finding.is_blocking
    assert finding.remedy.startswith("make it writable for this user, or change")


def test_users_are_counted_and_without_any_it_says_how_to_have_some(tmp_path: Path) -> None:
    none = doctor.check_users(load_settings(None, {}, {}))
    assert none.verdict is Verdict.ABSENT
    assert "penstock passwd --create" in none.remedy
    file = tmp_path / "users"
    write_passwords(file, {"alice": password_line("secret")})
    some = doctor.check_users(load_settings(None, {"access.password_file": str(file)}, {}))
    assert (some.verdict, some.detail) == (Verdict.OK, f"1 in {file}, may do everything")


def test_users_that_are_known_elsewhere_are_users(tmp_path: Path) -> None:
    settings = load_settings(overrides={"http_login.url": "https://users.example/mqtt"}, environ={})
    found = doctor.check_users(settings)
    assert found.verdict is Verdict.OK
    assert found.detail == "as https://users.example/mqtt says, may do everything"
    lost = str(tmp_path / "keys.json")
    found = doctor.check_users(load_settings(overrides={"jwt_login.keys": lost}, environ={}))
    assert found.verdict is Verdict.MISSING
    assert lost in found.detail


def test_a_password_file_with_a_mistake_blocks(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("alice\n")
    finding = doctor.check_users(load_settings(None, {"access.password_file": str(file)}, {}))
    assert finding.is_blocking
    assert str(file) in finding.detail


def test_a_clock_that_was_never_set_is_told() -> None:
    found = doctor.check_wall_clock(3_600_000_000)
    assert found.verdict is Verdict.ABSENT
    assert "1970-01-01 01:00:00" in found.detail
    assert not found.is_blocking
    assert doctor.check_wall_clock(1_800_000_000_000_000).verdict is Verdict.OK


def test_the_worst_case_of_memory_is_fitted_warned_of_or_blocks() -> None:
    fits = doctor.check_memory(load_settings(None, {}, {}))
    assert (fits.verdict, fits.remedy) == (Verdict.OK, "")
    assert "leave behind take at most" in fits.detail
    unbounded = doctor.check_memory(load_settings(None, {"memory.waiting_bytes_max": 0}, {}))
    assert unbounded.verdict is Verdict.ABSENT
    assert "lower memory.waiting_bytes_max" in unbounded.remedy
    changes = {"memory.budget_bytes": 2**20, "memory.sessions_bytes_max": 2**30}
    refused = doctor.check_memory(load_settings(None, changes, {}))
    assert refused.is_blocking
    assert "memory.budget_bytes is 1048576" in refused.remedy


def test_an_expired_certificate_is_told(tmp_path: Path) -> None:
    """It can be loaded, and every client that checks it would be out."""
    certificate, key = Authority(tmp_path).issue("old", "localhost", expired=True)
    listener = {"kind": "tls", "certificate": certificate, "key": key}
    settings = Settings.model_validate({"listener": listener})
    [found] = doctor.check_certificates(settings, 1_800_000_000.0)
    assert found.is_blocking
    assert "listener main: the certificate" in found.detail
    assert "expired on 2020-02-01" in found.detail
