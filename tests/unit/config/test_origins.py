"""The line of a setting in a file, whatever its statement looks like."""

import tomllib

import pytest

from penstock.config.origins import Origins, SettingPath, line_of

TEXT = '''\
# the broker of line 1
[listener]
bind = "127.0.0.1:1883"

[[listener.others]]
name = "a"
bind = "127.0.0.1:1884"
limits = { max_inflight = 7, max_mqueue_len = 8 }

# another one
[[listener.others]]
name = "b"
bind = "127.0.0.1:1885"

[mqtt5]
response_information = """
[log]
level = 'no table'
"""

[stream]
streams = [
    # the only one
    { name = "readings", topic_filters = [
        "plant/#",
    ] },
]

[log]
level = "info"
format = "json"'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("listener",), 2),
        (("listener", "bind"), 3),
        (("listener", "others", 0, "name"), 6),
        (("listener", "others", 0, "limits", "max_mqueue_len"), 8),
        (("listener", "others", 1), 11),
        (("listener", "others", 1, "bind"), 13),
        (("listener", "others", 1, "certificate"), 11),  # what is missing is missing from its table
        (("mqtt5", "response_information"), 16),
        (("stream", "streams", 0, "topic_filters", 0), 22),
        (("log", "level"), 30),
        (("log", "format"), 31),
        (("status", "sys_interval_s"), 1),
    ],
)
def test_a_setting_is_in_the_line_where_its_statement_begins(path: SettingPath, line: int) -> None:
    assert line_of(TEXT, path) == line


def test_a_long_file_is_searched_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not line by line: a mistake in a file of thousands of lines is told at once."""
    filters = "\n".join(f'f{number} = "plant/{number}/#"' for number in range(5000))
    parsed = []
    loads = tomllib.loads

    def counting(text: str) -> dict[str, object]:
        parsed.append(len(text))
        return loads(text)

    monkeypatch.setattr("penstock.config.origins.tomllib.loads", counting)
    assert line_of(f"[table]\n{filters}\n", ("table", "f4321")) == 4323
    assert len(parsed) < 30


def test_only_files_have_lines() -> None:
    origins = Origins()
    origins.add("log", "level", "PENSTOCK_LOG__LEVEL")
    assert origins.of(("log", "level")) == "PENSTOCK_LOG__LEVEL"
    assert origins.of(("log", "format")) == ""
