"""The access list as a file::

    line      =  user NAME  |  client ID  |  topic RULE  |  pattern RULE
    RULE      =  FILTER                       one word: to read and to write
              |  ACCESS FILTER                ACCESS: read, write, readwrite, deny
    between words: spaces and tabs            inside FILTER, NAME and ID: spaces

The format is Mosquitto's, except ``client`` and the tabs. In Mosquitto a filter may be any text, so
that a mistake becomes a filter: ``topic deny⇥secret/#`` would grant a topic that no client uses,
and not deny anything. Here such a line is refused: a lone access word, a blank that is no space or
tab, an invisible character, quotes, a comment after a name, a name that no user can have.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Final

from penstock.auth.acl import ACCESS_WORDS, DENY, READWRITE, AccessList, Rule
from penstock.auth.lines import BLANKS, lines_of
from penstock.auth.passwords import name_mistake
from penstock.engine.values.topics import SHARE_PREFIX, is_topic_filter, without_share_prefix
from penstock.errors import ConfigError

_LEVELS_MAX: Final = 1000
_INVISIBLE: Final = frozenset(("Cc", "Cf", "Zs", "Zl", "Zp"))  # Unicode categories, except " "
_QUOTES: Final = "\"'"
_WORDS: Final = f"{', '.join(ACCESS_WORDS[:-1])} or {ACCESS_WORDS[-1]}"


def read_access_list(path: Path) -> AccessList:
    """Return the access list in ``path``.

    Raises:
        ConfigError: the file cannot be read, or a line is wrong; one sentence with the line number.
    """
    found = AccessList()
    rules = found.anonymous
    for location, line in lines_of(path, "access list"):
        rules = add_line(found, rules, location, line)
    return found


def add_line(found: AccessList, rules: list[Rule], location: str, line: str) -> list[Rule]:
    """Add one line of a file to ``found``; return the rules to which the next `topic` belongs.

    Args:
        found: the access list so far.
        rules: the rules of the user or client that the latest `user` or `client` line named.
        location: file and line, for errors.
        line: the line, without blanks around it; not empty, and no comment.

    Raises:
        ConfigError: the line is wrong; nothing is changed.
    """
    word, rest = _split(line)
    _refuse_invisible(location, word)
    if not rest or word not in ("user", "client", "topic", "pattern"):
        raise ConfigError(
            f"{location} is {line[:60]!r}, but a line is `user NAME`, `client ID`,"
            " `topic [read|write|readwrite|deny] FILTER` or `pattern …` with %c or %u."
        )
    if word == "user":
        return found.users.setdefault(_name(location, rest, is_user=True), [])
    if word == "client":
        return found.clients.setdefault(_name(location, rest, is_user=False), [])
    if word == "pattern":
        found.patterns.append(_rule(location, rest))
    else:
        rules.append(_topic_rule(location, rest))
    return rules


def _split(text: str) -> tuple[str, str]:
    """Return the first word of ``text``, and the text after it without the blanks around."""
    end = next((at for at, letter in enumerate(text) if letter in BLANKS), len(text))
    return text[:end], text[end:].strip(BLANKS)


def _name(location: str, name: str, is_user: bool) -> str:
    _refuse_invisible(location, name)
    _refuse_quotes(location, name)
    if " #" in name:
        raise ConfigError(f"{location}: {name!r} has a # in it; a comment has a line of its own.")
    mistake = name_mistake(name) if is_user else ""
    if mistake:
        raise ConfigError(f"{location}: the user name {mistake}, which no user can have.")
    return name


def _topic_rule(location: str, text: str) -> Rule:
    rule = _rule(location, text)
    if "%c" in rule.topic_filter or "%u" in rule.topic_filter:
        raise ConfigError(
            f"{location}: %c and %u stand for names in pattern lines only; write pattern"
            " instead of topic."
        )
    return rule


def _rule(location: str, text: str) -> Rule:
    first, rest = _split(text)
    _refuse_invisible(location, first)
    access, topic_filter = READWRITE, text
    if rest:
        # Not taken for a filter with a space in it: a `deny` with a typing error must not vanish.
        if first not in ACCESS_WORDS:
            raise ConfigError(
                f"{location}: {first!r} is not {_WORDS}; a filter with a space in it needs one of"
                " them in front."
            )
        access, topic_filter = first, rest
        _refuse_invisible(location, rest)
    elif first.lower() in ACCESS_WORDS:
        raise ConfigError(
            f"{location}: {first!r} says what is allowed, but no topic filter follows; for a topic"
            f" of that name write `topic {READWRITE} {first}`."
        )
    _refuse_quotes(location, topic_filter)
    plain = topic_filter.replace("%c", "c").replace("%u", "u")
    if not is_topic_filter(plain, _LEVELS_MAX):
        raise ConfigError(f"{location}: {topic_filter!r} is not an MQTT topic filter.")
    if access == DENY and topic_filter.startswith(SHARE_PREFIX):
        raise ConfigError(
            f"{location}: a rule for a topic holds for shared subscriptions too; deny"
            f" {without_share_prefix(topic_filter)!r}, without {SHARE_PREFIX} and the group."
        )
    return Rule(access, topic_filter, location)


def _refuse_invisible(location: str, text: str) -> None:
    for letter in text:
        if letter != " " and unicodedata.category(letter) in _INVISIBLE:
            name = unicodedata.name(letter, "a control character").lower()
            raise ConfigError(
                f"{location} has U+{ord(letter):04X} ({name}) in {text[:60]!r}; words are separated"
                " by spaces and tabs, and inside names and filters only spaces can stand."
            )


def _refuse_quotes(location: str, text: str) -> None:
    if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        raise ConfigError(
            f"{location}: {text!r} stands in quotes, which would be taken as part of it; leave them"
            " out, also where there is a space in it."
        )
