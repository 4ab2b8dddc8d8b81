"""``-D COMMAND IDENTIFIER VALUE``: properties of MQTT 5, in the form of mosquitto_pub.

::

      -D publish content-type text/plain            three words follow,
      -D publish user-property room kitchen         or four

An option of Typer takes a fixed number of words, so ``PropertyCommand`` joins the words behind
``-D`` into one before Typer parses the arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, final

from typer.core import TyperCommand

from penstock.errors import ConfigError
from penstock.protocol.kinds import CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE
from penstock.protocol.properties import Properties
from penstock.protocol.property_rules import (
    BINARY,
    RULES,
    STRING,
    STRING_PAIR,
    WILL,
    PropertyRule,
)

OPTION: Final = ("-D", "--property")
CARRIERS: Final = {
    "connect": CONNECT,
    "publish": PUBLISH,
    "subscribe": SUBSCRIBE,
    "unsubscribe": UNSUBSCRIBE,
    "will": WILL,
}
USER_PROPERTY: Final = "user-property"

_SEPARATOR: Final = "\0"  # no argument of a program can have it
_FORM: Final = (
    "-D is followed by COMMAND IDENTIFIER VALUE, or COMMAND user-property NAME VALUE, such as"
    " -D publish content-type text/plain"
)
_ANY_BYTES: Final = ("-m", "--message", "-P", "--pw", "--will-payload", "-f", "--file", "--output")
_IDENTIFIERS: Final = {
    "user_properties": USER_PROPERTY,
    "subscription_identifiers": "subscription-identifier",
}
_RULES: Final = {_IDENTIFIERS.get(r.name, r.name.replace("_", "-")): r for r in RULES}
_SET_BY_CLIENT: Final = {  # properties that the client itself sets
    CONNECT: (
        "topic_alias_maximum",
        "authentication_method",
        "authentication_data",
        "request_problem_information",
        "request_response_information",
    ),
    PUBLISH: ("topic_alias", "subscription_identifiers"),
}


@final
class PropertyCommand(TyperCommand):
    """A Typer command that understands the option ``-D``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``, after joining the words of each ``-D``.

        Raises:
            ConfigError: too few words follow a ``-D``, or text is not UTF-8.
        """
        with_value = {
            option
            for parameter in self.params
            if not getattr(parameter, "is_flag", False)
            for option in parameter.opts
        }
        return super().parse_args(ctx, fold_properties(args, with_value))


def fold_properties(arguments: Sequence[str], with_value: Collection[str]) -> list[str]:
    """Return ``arguments`` with the words behind each ``-D`` joined into one.

    Args:
        arguments: the arguments of the command.
        with_value: options that take one value, which may itself be ``-D``.

    Raises:
        ConfigError: too few words follow a ``-D``, or text is not UTF-8.
    """
    remaining = list(arguments)
    result: list[str] = []
    while remaining:
        argument = remaining.pop(0)
        result.append(argument)
        if argument in OPTION:
            count = 4 if remaining[1:2] == [USER_PROPERTY] else 3
            words, remaining = remaining[:count], remaining[count:]
            if len(words) < count:
                raise ConfigError(_FORM)
            result.append(_SEPARATOR.join(words))
        elif argument in with_value and remaining:
            result.append(remaining.pop(0))
            if argument in _ANY_BYTES:
                continue
        try:
            result[-1].encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{result[-1]!r} is not UTF-8, which MQTT requires") from None
    return result


def parse_properties(options: list[str] | None, commands: Collection[str]) -> dict[str, Properties]:
    """Return the properties of the options ``-D``, by command.

    Args:
        options: the value of each ``-D``, as ``fold_properties`` joined it.
        commands: the commands that may be named.

    Raises:
        ConfigError: the command has no such property, or the value has the wrong type.
    """
    parsed: dict[str, Properties] = {}
    for words in options or []:
        command, identifier, *values = words.split(_SEPARATOR)
        command = command.lower()
        if command not in commands:
            raise ConfigError(f"-D {command}: must be one of {', '.join(commands)}")
        rule = _RULES.get(identifier.lower())
        carrier = CARRIERS[command]
        reserved = _SET_BY_CLIENT.get(carrier, ())
        if rule is None or not rule.allows(carrier) or rule.name in reserved:
            possible = [
                name
                for name, known in _RULES.items()
                if known.allows(carrier) and known.name not in reserved
            ]
            raise ConfigError(f"-D {command} {identifier}: must be one of {', '.join(possible)}")
        properties = parsed.setdefault(command, Properties())
        _set(properties, rule, identifier, values)
    return parsed


def _set(properties: Properties, rule: PropertyRule, identifier: str, values: list[str]) -> None:
    if rule.wire_type == STRING_PAIR:
        pairs = [*(properties.user_properties or []), (values[0], values[1])]
        properties.user_properties = pairs
        return
    if getattr(properties, rule.name):
        raise ConfigError(f"-D {identifier} is given twice")
    text = values[0]
    value: object = text
    if rule.wire_type == BINARY:
        value = text.encode()
    elif rule.wire_type != STRING:
        if not text.isdecimal() or not rule.low <= int(text) <= rule.high:
            raise ConfigError(
                f"-D {identifier} is {text!r}, and must be a number from {rule.low} to {rule.high}"
            )
        value = int(text)
        if rule.name == "subscription_identifiers":
            value = [value]
    setattr(properties, rule.name, value)
