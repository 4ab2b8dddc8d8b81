"""`penstock import mosquitto`, and `penstock serve` with a configuration of Mosquitto's."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import run


def test_serve_names_the_command_that_reads_a_configuration_of_mosquittos(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("# all of it is a comment\n")
    code, output, told = run("serve", "--config", str(path))
    assert (code, output) == (2, b"")
    assert f"penstock import mosquitto {path} --to penstock".encode() in told
    assert told.count(b"\n") == 1


def test_the_report_is_printed_and_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("max_keepalive 60\n")
    code, output, told = run("import", "mosquitto", str(path), "--to", str(tmp_path / "to"))
    assert (code, told) == (0, b"")
    assert f"{path}:1: max_keepalive 60\n      limits.keep_alive_s_max = 60.\n".encode() in output
    assert f"penstock serve --config {tmp_path}/to/penstock.toml".encode() in output
    code, output, told = run("import", "mosquitto", str(path), "--to", str(tmp_path / "to"))
    assert (code, output) == (2, b"")
    assert told.startswith(b"penstock: ")
    assert told.count(b"\n") == 1
