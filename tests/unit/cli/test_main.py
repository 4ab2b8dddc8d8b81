"""The command as a person meets it: sentences, exit codes, no traceback."""

import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.exit_codes import exit_code
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.errors import ConfigError, PenstockError, StoreLocked, StoreUnavailable
from penstock.version import build_kind


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock` with the settings of `environ` alone."""
    clean = {name: value for name, value in os.environ.items() if "__" not in name}
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_version_says_which_build_runs_and_on_what() -> None:
    answer = run("--version")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"penstock {__version__} ({build_kind()}), CPython 3.")
    for package in ("rocksdict", "uvloop", "pyarrow", "pyspark", "deltalake"):
        assert f"{package} " in answer.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--bind", "0.0.0.0:1883"),
        ("serve", "--bind", "nowhere"),
        ("serve", "--persistence", "disk"),
        ("serve", "--log-level", "loud"),
        ("serve", "--stream-bind", "0.0.0.0:1"),
        ("serve", "--config", "absent.toml"),
        ("config", "--config", "absent.toml"),
    ],
)
def test_a_mistake_in_the_settings_is_one_sentence_and_exit_code_2(
    arguments: tuple[str, ...],
) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("penstock: ")
    assert answer.stderr.count("\n") == 1


def test_a_mistake_in_the_environment_is_one_sentence_too() -> None:
    answer = run("serve", PENSTOCK_LIMITS__MAX_INFLIGHT="many")
    assert answer.returncode == 2
    assert "PENSTOCK_LIMITS__MAX_INFLIGHT" in answer.stderr


def test_an_unknown_command_is_answered_with_the_one_meant() -> None:
    answer = run("serv")
    assert answer.returncode == 2
    assert "Did you mean 'serve'?" in answer.stderr


def test_config_prints_the_settings_in_effect() -> None:
    answer = run("config", PENSTOCK_LIMITS__MAX_INFLIGHT="7")
    assert answer.returncode == 0
    printed = Settings.model_validate(tomllib.loads(answer.stdout))
    assert printed == load_settings(environ={"PENSTOCK_LIMITS__MAX_INFLIGHT": "7"})


def test_the_output_may_be_cut_short() -> None:
    command = f'"{sys.executable}" -m penstock config | head -n 1'
    answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert answer.stderr == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a setting is wrong"), 2),
        (StoreLocked("another process has it"), 2),
        (StoreUnavailable("disk full"), 1),
        (PenstockError("something else"), 1),
    ],
)
def test_exit_codes(error: PenstockError, code: int) -> None:
    assert exit_code(error) == code


def test_the_command_line_starts_without_what_only_one_command_needs() -> None:
    slow = {"pydantic", "pyarrow", "pyspark", "deltalake", "rocksdict", "uvloop", "asyncio"}
    script = f"import sys, penstock.cli.main; print(sorted({slow!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.stdout == "[]\n", answer.stderr


def test_the_example_in_the_help_of_serve_is_a_configuration(tmp_path: Path) -> None:
    answer = run("serve", "--help")
    lines = answer.stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if "[[listener.others]]" in line)
    file = tmp_path / "penstock.toml"
    example = [*lines[start : lines.index("", start)], "[access]", 'password_file = "users"']
    file.write_text("\n".join(line.strip() for line in example))
    settings = load_settings(file, {}, {})
    assert [listener.kind for listener in settings.listener.enabled_listeners()] == ["tcp", "tls"]


def test_users_can_be_named_on_the_command_line(tmp_path: Path) -> None:
    users, data = tmp_path / "absent", tmp_path / "data"
    places = ("--password-file", str(users), "--data-dir", str(data))
    answer = run("serve", *places, "--bind", "127.0.0.1:0")
    assert answer.returncode == 2
    assert str(users) in answer.stderr
    assert not data.exists(), "who mistyped a file is left no store"


def test_the_table_commands_are_there_without_spark() -> None:
    answer = run("table", "--help")
    assert answer.returncode == 0
    assert "Delta table" in answer.stdout


def test_doctor_says_what_is_missing_and_fails(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = run(
            "doctor",
            PENSTOCK_LISTENER__BIND=f"127.0.0.1:{taken.getsockname()[1]}",
            PENSTOCK_STREAM__BIND="127.0.0.1:0",
            PENSTOCK_DURABILITY__DATA_DIR=str(tmp_path),
        )
    assert answer.returncode == 1
    assert "listener.bind" in answer.stdout
    assert "Traceback" not in answer.stderr


def test_doctor_succeeds_where_nothing_necessary_is_missing(tmp_path: Path) -> None:
    answer = run(
        "doctor",
        PENSTOCK_LISTENER__BIND="127.0.0.1:0",
        PENSTOCK_STREAM__BIND="127.0.0.1:0",
        PENSTOCK_DURABILITY__DATA_DIR=str(tmp_path),
    )
    assert answer.returncode == 0, answer.stdout
    assert "Java" in answer.stdout
