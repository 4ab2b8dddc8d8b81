"""The table of `penstock flow`, whatever clients call themselves."""

from pathlib import Path

import pytest

from penstock.cli.flow import JsonObject, _configured_address, flow_table
from penstock.cli.screen import Screen
from penstock.engine.values.limit_usage import LIMITS
from penstock.errors import ConfigError


def flow_of(client_id: str) -> JsonObject:
    use = {"reached": False, "times": 0, "lasts_s": 0.0, "total_s": 0.0}
    return {
        "client_id": client_id,
        "version": 5,
        "connected": True,
        "window": {"used": 1, "size": 32},
        "queue": {"messages": 0, "messages_max": 1000, "bytes": 0},
        "inbound": {"unacknowledged": 0, "receive_maximum": 1000},
        "unwritten_bytes": 0,
        "limits": dict.fromkeys(LIMITS, use),
        "drops": {},
    }


@pytest.mark.parametrize(
    ("client_id", "shown"),
    [("evil[/]", "evil[/]"), ("[red]me", "[red]me"), ("a\x1b[2Jb", "a\\u001b[2Jb")],
)
def test_a_client_identifier_is_shown_as_it_is(
    client_id: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Screen(pipe_width=160).print(flow_table([flow_of(client_id)], 10))
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("listeners", "address"),
    [
        ("", "127.0.0.1:1883"),
        ('[listener]\nbind = "0.0.0.0:1884"\nallow_anonymous = true\n', "127.0.0.1:1884"),
        (
            '[listener]\nenabled = false\n[[listener.others]]\nname = "a"\nbind = "127.0.0.9:7"\n',
            "127.0.0.9:7",
        ),
        (
            (
                '[listener]\nenabled = false\n[[listener.others]]\nname = "a"\nkind = "ws"\n'
                'bind = "127.0.0.9:7"\n'
            ),
            None,
        ),
    ],
)
def test_the_address_is_that_of_the_settings(
    listeners: str, address: str | None, tmp_path: Path
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(listeners)
    if address is None:
        with pytest.raises(ConfigError, match="--broker"):
            _configured_address(config)
        return
    assert str(_configured_address(config)) == address
