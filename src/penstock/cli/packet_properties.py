"""``-D COMMAND IDENTIFIER VALUE``: properties of MQTT 5, in the form of mosquitto_pub.

::

      -D publish content-type text/plain            three words follow,
      -D publish user-property room kitchen         or four

No option of Typer takes "three or four" words, so ``PropertyCommand`` joins them to one before the
rest is parsed.
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

_BETWEEN: Final = "\0"  # in no argument of any program
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
_OURS: Final = {  # set by the client itself
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
            ConfigError: too few of them follow ``-D``, or text is not UTF-8.
        """
        with_value = {
            option
            for parameter in self.params
            if not getattr(parameter, "is_flag", False)
            for option in parameter.opts
        }
        return super().parse_args(ctx, fold_properties(args, with_value))


def fold_properties(arguments: Sequence[str], with_value: Collection[str]) -> list[str]:
    """Return ``arguments`` with one word after each ``-D``.

    Args:
        arguments: the arguments of the command.
        with_value: options that take one value, which may itself be ``-D``.

    Raises:
        ConfigError: too few follow ``-D``, or text is not UTF-8.
    """
    left = list(arguments)
    result: list[str] = []
    while left:
        argument = left.pop(0)
        result.append(argument)
        if argument in OPTION:
            count = 4 if left[1:2] == [USER_PROPERTY] else 3
            words, left = left[:count], left[count:]
            if len(words) < count:
                raise ConfigError(_FORM)
            result.append(_BETWEEN.join(words))
        elif argument in with_value and left:
            result.append(left.pop(0))
            if argument in _ANY_BYTES:
                continue
        try:
            result[-1].encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{result[-1]!r} is not UTF-8, as MQTT wants it") from None
    return result


def parse_properties(given: list[str] | None, commands: Collection[str]) -> dict[str, Properties]:
    """Return the properties of the options ``-D``, by command.

    Args:
        given: each as ``fold_properties`` made it.
        commands: the commands that may be named.

    Raises:
        ConfigError: the command has no such property, or its value is of another kind.
    """
    parsed: dict[str, Properties] = {}
    for one in given or []:
        command, identifier, *values = one.split(_BETWEEN)
        command = command.lower()
        if command not in commands:
            raise ConfigError(f"-D {command}: must be one of {', '.join(commands)}")
        rule = _RULES.get(identifier.lower())
        carrier = CARRIERS[command]
        if rule is None or not rule.allows(carrier) or rule.name in _OURS.get(carrier, ()):
            possible = [
                name
                for name, known in _RULES.items()
                if known.allows(carrier) and known.name not in _OURS.get(carrier, ())
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
