"""What the values of options may be: text from a user, or one sentence about what is wrong with it.

Option names are those that the user wrote, in small letters: Spark does not care about their case.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence

from penstock.errors import ConfigError


def check_names(given: Iterable[str], names: Sequence[str], what: str) -> None:
    """ConfigError for the first option that there is not.

    Args:
        given: names as the user wrote them, in small letters.
        names: those that there are.
        what: has them: the source, the sink.
    """
    known = {name.lower(): name for name in names}
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = (
                f"did you mean {known[close[0]]}?" if close else (f"there is {', '.join(names)}")
            )
            raise ConfigError(f"the penstock {what} has no option {name!r}; {advice}")


def address(text: str) -> str:
    """The address of a stream service, HOST:PORT."""
    # Imported here because Spark's many Python processes would each pay for pydantic.
    from penstock.config.address import Address

    try:
        found = Address.parse(text.removeprefix("grpc://").rstrip("/"))
    except ValueError as error:
        raise ConfigError(f"option server must be {error}, not {text!r}") from error
    if found.port == 0:
        raise ConfigError("option server needs the port the stream service listens on")
    return str(found)


def whole_number(option: str, text: str, low: int, high: int) -> int:
    """A number from ``low`` to ``high``."""
    return int(_in_range(option, text, int, low, high, "a whole number"))


def seconds(option: str, text: str, low: float = 0, high: float = 86_400) -> float:
    """A length of time from ``low`` to ``high``; at most a day where nothing is said."""
    return _in_range(option, text, float, low, high, "a number of seconds")


def _in_range(
    option: str, text: str, kind: Callable[[str], float], low: float, high: float, what: str
) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ConfigError(f"option {option} must be {what} from {low} to {high}, not {text!r}")
    return value


def truth(option: str, text: str) -> bool:
    """true or false."""
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {option} must be true or false, not {text!r}")
    return text.lower() == "true"
