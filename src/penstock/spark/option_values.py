"""Reads and checks the values of options, with one sentence for each mistake.

Spark ignores the case of option names, and so does this module. Options for reaching a stream
service mean the same to the source and the sink.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from penstock.auth.tokens import FORM, is_token
from penstock.config.address import Address
from penstock.errors import ConfigError
from penstock.stream.credentials import Credentials
from penstock.stream.replicas import parse_addresses

T = TypeVar("T")

SERVER: Final = "127.0.0.1:8815"
"""The default address of the stream service of a broker on this machine."""

_TABLE_OPTION: Final = "provider"
"""An option that Spark itself adds to those of CREATE TABLE, with owner, location and others."""


def _refuse_table_options(options: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return {}; raise ConfigError if CREATE TABLE has options of this format.

    Spark 4.3 stores these options and does not pass them on when the table is read: the query would
    then read the default stream, and not the one that the options name.
    """
    table_options = [known[name.lower()] for name in options if name.lower() in known]
    if table_options:
        raise ConfigError(
            f"Spark does not hand a table's options ({', '.join(sorted(table_options))}) on when"
            " it is read: use CREATE TEMPORARY VIEW instead of CREATE TABLE, or create the table"
            " without options and name them in each query, as in"
            " FROM messages WITH (server 'HOST:PORT')"
        )
    return {}


class OptionReader:
    """Reads the options that a user gave.

    Args:
        options: the text of each given option, by name.
        names: the options that exist.
        what: the owner of the options, for errors: source or sink.

    Raises:
        ConfigError: a given option does not exist.
    """

    def __init__(self, options: Mapping[str, str], names: Sequence[str], what: str) -> None:
        known = {name.lower(): name for name in names}
        if _TABLE_OPTION in options:
            options = _refuse_table_options(options, known)
        self._values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() not in known:
                close = difflib.get_close_matches(name.lower(), known, n=1)
                advice = (
                    f"did you mean {known[close[0]]}?" if close else f"there is {', '.join(names)}"
                )
                raise ConfigError(f"the penstock {what} has no option {name.lower()!r}; {advice}")
            self._values[known[name.lower()]] = value

    @property
    def names(self) -> frozenset[str]:
        """The names of the given options, spelled as in `names`."""
        return frozenset(self._values)

    def check_exclusive(self, one: str, other: str) -> None:
        """Raise ConfigError if both options are given."""
        if one in self._values and other in self._values:
            raise ConfigError(f"options {one} and {other} say the same thing: give one of them")

    def text(self, name: str, default: T) -> str | T:
        """Return the text of an option; the default if it is not given."""
        return self._values.get(name, default)

    def whole_number(self, name: str, low: int, high: int, default: T) -> int | T:
        """Return a whole number; raise ConfigError if it is not from ``low`` to ``high``."""
        if name not in self._values:
            return default
        return int(self._in_range(name, int, low, high, "a whole number"))

    def seconds(self, name: str, default: float, low: float = 0, high: float = 86_400) -> float:
        """Return a duration in seconds; raise ConfigError if it is not from ``low`` to ``high``."""
        if name not in self._values:
            return default
        return self._in_range(name, float, low, high, "a number of seconds")

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return a truth value; raise ConfigError for other text than true and false."""
        text = self._values.get(name, str(default))
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"option {name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def credentials(self, *, tls: bool) -> Credentials:
        """Return the credentials for the stream service.

        Args:
            tls: whether the address of the service asks for TLS.

        Raises:
            ConfigError: options contradict each other, or the token has a wrong form.
        """
        self.check_exclusive("token", "tokenFile")
        ca_file = self.text("tlsCaFile", "")
        wants_tls = self.boolean("tls", default=tls or bool(ca_file))
        if tls and not wants_tls:
            raise ConfigError("option tls is false, and the address says grpc+tls://")
        tls = wants_tls
        if ca_file and not tls:
            raise ConfigError(
                "option tlsCaFile names the authorities for TLS, and option tls is false"
            )
        certificate, key = self.text("tlsCertFile", ""), self.text("tlsKeyFile", "")
        if bool(certificate) != bool(key):
            raise ConfigError("options tlsCertFile and tlsKeyFile, two PEM files, belong together")
        if certificate and not tls:
            raise ConfigError("option tlsCertFile is shown with TLS: give tls or tlsCaFile too")
        token = self.text("token", "")
        if "token" in self.names and not is_token(token):  # the token itself is never printed
            raise ConfigError(f"option token must be {FORM}")
        return Credentials(tls, ca_file, token, self.text("tokenFile", ""), certificate, key)

    def _in_range(
        self, name: str, kind: Callable[[str], float], low: float, high: float, what: str
    ) -> float:
        text = self._values[name]
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ConfigError(f"option {name} must be {what} from {low} to {high}, not {text!r}")
        return value


def parse_address(option: str, text: str) -> tuple[str, bool]:
    """Return the address of a stream service, HOST:PORT, and whether it asks for TLS.

    Raises:
        ConfigError: the text is no such address.
    """
    scheme, _, rest = text.rpartition("://")
    form = f"HOST:PORT of the stream service, such as {SERVER}"
    try:
        if scheme not in ("", "grpc", "grpc+tls"):
            form += ", with grpc:// or grpc+tls:// in front if you like"
            raise ValueError
        found = Address.parse(rest.rstrip("/"))
    except ValueError:
        raise ConfigError(f"option {option} must be {form}, not {text!r}") from None
    if found.port == 0:
        raise ConfigError(f"option {option} needs the port the stream service listens on")
    return str(found), scheme == "grpc+tls"


def parse_service_addresses(option: str, text: str) -> tuple[str, bool]:
    """Return the addresses of the stream services of one log, and whether they ask for TLS.

    Args:
        option: the name of the option, for errors.
        text: HOST:PORT of one or, in a cluster, of each machine, separated by commas.

    Raises:
        ConfigError: the text has something else, or only some of the addresses ask for TLS.
    """
    found = [parse_address(option, part.strip()) for part in text.split(",")]
    if len({tls for _, tls in found}) > 1:
        raise ConfigError(f"option {option}: use TLS for all addresses or none")
    joined = ",".join(one for one, _ in found)
    try:
        parse_addresses(joined)
    except ConfigError as error:
        raise ConfigError(f"option {option}: {error}") from None
    return joined, found[0][1]
