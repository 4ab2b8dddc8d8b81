"""The grammar of the access list: what a line says, and that no mistake in one is a grant."""

from pathlib import Path

import pytest

from penstock.auth.acl import DENY, READ, READWRITE, WRITE, Rule
from penstock.auth.acl_file import read_access_list
from penstock.errors import ConfigError

NO_BREAK_SPACE = "\u00a0"
IDEOGRAPHIC_SPACE = "\u3000"
ZERO_WIDTH_SPACE = "\u200b"
BYTE_ORDER_MARK = "\ufeff"
LINE_SEPARATOR = "\u2028"
FILTER = "plant/secret/#"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "acl"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("topic a/b", Rule(READWRITE, "a/b")),
        ("topic read a/b", Rule(READ, "a/b")),
        ("topic write a/b", Rule(WRITE, "a/b")),
        ("topic readwrite a/b", Rule(READWRITE, "a/b")),
        ("topic deny a/b", Rule(DENY, "a/b")),
        ("topic read a b/c", Rule(READ, "a b/c")),
        ("topic read a  b/c", Rule(READ, "a  b/c")),
        ("topic readwrite deny", Rule(READWRITE, "deny")),
        ("topic deny deny", Rule(DENY, "deny")),
        ("topic deny #", Rule(DENY, "#")),
        ("topic read $SYS/#", Rule(READ, "$SYS/#")),
        ("topic read $share/g/a", Rule(READ, "$share/g/a")),
        ("topic read größe/温度", Rule(READ, "größe/温度")),
        ("topic denied/#", Rule(READWRITE, "denied/#")),
        # what is between the words, and at the ends
        ("topic deny\ta/b", Rule(DENY, "a/b")),
        ("topic\tdeny\ta/b", Rule(DENY, "a/b")),
        ("topic\tdeny a/b", Rule(DENY, "a/b")),
        ("topic  deny \t a/b", Rule(DENY, "a/b")),
        ("\ttopic deny a/b", Rule(DENY, "a/b")),
        ("topic deny a/b \t", Rule(DENY, "a/b")),
        ("topic deny a/b\r", Rule(DENY, "a/b")),
        ("topic\ta/b", Rule(READWRITE, "a/b")),
    ],
)
def test_a_topic_line(tmp_path: Path, line: str, rule: Rule) -> None:
    assert read_access_list(written(tmp_path, f"{line}\n")).anonymous == [rule]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("pattern write devices/%c/#", Rule(WRITE, "devices/%c/#")),
        ("pattern\tdeny\tusers/%u/#", Rule(DENY, "users/%u/#")),
        ("pattern deny plant/secret/#", Rule(DENY, "plant/secret/#")),  # for everyone
    ],
)
def test_a_pattern_line(tmp_path: Path, line: str, rule: Rule) -> None:
    assert read_access_list(written(tmp_path, line)).patterns == [rule]


@pytest.mark.parametrize(
    "line", ["user alice b", "user\talice b", "user   alice b  ", "user alice b\t\r"]
)
def test_a_user_line(tmp_path: Path, line: str) -> None:
    found = read_access_list(written(tmp_path, f"{line}\ntopic deny a\nuser x\ntopic b\n"))
    assert found.users["alice b"] == [Rule(DENY, "a")]
    assert not found.anonymous


@pytest.mark.parametrize("line", ["client gw 7", "client\tgw 7 ", "client gw 7\r"])
def test_a_client_line(tmp_path: Path, line: str) -> None:
    found = read_access_list(written(tmp_path, f"{line}\ntopic deny a\n"))
    assert found.clients == {"gw 7": [Rule(DENY, "a")]}


def test_a_file_of_windows(tmp_path: Path) -> None:
    text = f"{BYTE_ORDER_MARK}user alice\r\n\r\n# secrets\r\ntopic deny {FILTER}\r\n"
    found = read_access_list(written(tmp_path, text))
    assert found.users == {"alice": [Rule(DENY, FILTER)]}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        # an access word that is none, or stands alone
        ("topic deny", "'deny' says what is allowed, but no topic filter follows"),
        ("topic\tdeny\t", "no topic filter follows"),
        ("pattern deny", "no topic filter follows"),
        ("topic read", "`topic readwrite read`"),
        ("topic DENY", "no topic filter follows"),
        (f"topic DENY {FILTER}", "'DENY' is not read, write, readwrite or deny"),
        (f"topic Deny\t{FILTER}", "'Deny' is not read, write, readwrite or deny"),
        (f"topic dney\t{FILTER}", "'dney' is not read, write, readwrite or deny"),
        (f"pattern wirte {FILTER}", "'wirte' is not read, write, readwrite or deny"),
        ("topic line 1/x", "a filter with a space in it needs one of them in front"),
        ("topic read a/#/b", "'a/#/b' is not an MQTT topic filter"),
        ("pattern a+", "'a+' is not an MQTT topic filter"),
        # the first word
        ("usr alice", "line 2 is 'usr alice', but a line is"),
        (f"Topic deny {FILTER}", "but a line is"),
        (f"TOPIC deny {FILTER}", "but a line is"),
        ("User alice", "but a line is"),
        ("topic", "but a line is"),
        ("pattern\t", "but a line is"),
        ("user", "but a line is"),
        ("client \t", "but a line is"),
        (f"deny {FILTER}", "but a line is"),
        (f"topic: deny {FILTER}", "but a line is"),
        # what looks like a space and is none, or cannot be seen
        (f"topic deny{NO_BREAK_SPACE}{FILTER}", "U+00A0"),
        (f"topic{NO_BREAK_SPACE}deny {FILTER}", "U+00A0"),
        (f"topic deny {NO_BREAK_SPACE}{FILTER}", "U+00A0"),
        (f"topic deny plant/secret{NO_BREAK_SPACE}", "U+00A0"),
        (f"topic deny{IDEOGRAPHIC_SPACE}{FILTER}", "U+3000"),
        (f"topic deny {ZERO_WIDTH_SPACE}{FILTER}", "U+200B"),
        (f"topic deny\x0b{FILTER}", "U+000B"),
        (f"topic deny \x00{FILTER}", "U+0000"),
        ("topic deny plant\tsecret", "U+0009"),
        ("user alice\tboss", "U+0009"),
        (f"{BYTE_ORDER_MARK}topic deny {FILTER}", "U+FEFF"),
        (f"user alice{NO_BREAK_SPACE}", "U+00A0"),
        (f"client gw{ZERO_WIDTH_SPACE}", "U+200B"),
        # one line that an editor shows as two
        (f"topic read plant/#\rtopic deny {FILTER}", "U+000D"),
        (f"# secrets\rtopic deny {FILTER}", "U+000D"),
        (f"# secrets{LINE_SEPARATOR}topic deny {FILTER}", "U+2028"),
        # a comment behind what it is about, quotes
        (f"topic deny {FILTER} # the vault", "is not an MQTT topic filter"),
        ("topic deny plant/secret # the vault", "is not an MQTT topic filter"),
        ("user alice # the boss", "a comment has a line of its own"),
        ("client gw # the gateway", "a comment has a line of its own"),
        ('topic deny "plant/secret"', "quotes"),
        ("topic deny 'plant/secret'", "quotes"),
        ('user "alice"', "quotes"),
        # names that nobody has
        ("user alice:", "has a colon"),
        ("user #alice", "a # in front"),
        # what would never match
        ("topic deny $share/g/plant/secret", "shared subscriptions too"),
        ("topic deny plant/%u/secret", "write pattern instead of topic"),
    ],
)
def test_a_mistake_is_one_sentence_and_no_grant(tmp_path: Path, line: str, sentence: str) -> None:
    path = written(tmp_path, f"topic readwrite plant/#\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        read_access_list(path)
    assert sentence in str(raised.value)
    assert f"{path} line 2" in str(raised.value)
    assert "\n" not in str(raised.value)
