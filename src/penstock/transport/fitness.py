"""Judge the certificates that the settings name: valid now, for how long, for the right hosts.

TLS loads a certificate that has expired without a word, and then every peer refuses it. So each
file is read once more with its dates and names (``read``), and judged against the clock whenever
that is asked (``judge``, a pure function): at a start, at a reload, each hour, by `penstock doctor`
and for the metrics.
"""

from __future__ import annotations

import ipaddress
import re
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from penstock.regular_file import read_regular

if TYPE_CHECKING:
    from cryptography import x509

WARNING_S: Final = 30 * 86_400
"""Seconds before the end of a certificate from which on it is warned of."""

Kind = Literal["server", "client", "authorities", "revocations"]
Severity = Literal["ok", "warning", "error"]

_DAY_S: Final = 86_400
_CRL: Final = re.compile(b"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_WORDS: Final[dict[Kind, tuple[str, str]]] = {  # the noun, what follows while it is not valid
    "server": ("certificate", "clients that check it cannot connect"),
    "client": ("certificate", "the other side refuses it"),
    "authorities": ("authorities", "all certificates that they signed are refused"),
    "revocations": ("revocation lists", "all client certificates are refused"),
}


class Use(NamedTuple):
    """A file of certificates, and what it is used for.

    Attributes:
        part: the part of the broker: "listener", "bridge", "cluster", "admin", "stream" or
            "opentelemetry".
        name: the name of the listener or bridge; empty for the other parts.
        kind: the role of the file.
        file: its path.
        hosts: names by which others reach this machine, as far as the settings tell.
    """

    part: str
    name: str
    kind: Kind
    file: str
    hosts: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The beginning of a sentence about the file."""
        owner = f"{self.part} {self.name}".rstrip()
        return f"{owner}: the {_WORDS[self.kind][0]} {self.file}"


class Fitness(NamedTuple):
    """The dates and names of a file of certificates, by which it is judged.

    Attributes:
        use: the file and its use.
        begins_s: the time from which on it is valid, seconds since the Unix epoch.
        ends_s: the time at which it expires: of a chain the earliest, of several authorities the
            latest.
        names: the hosts that it names, as a name or an address.
        mistake: why it cannot be examined; empty if it can, else the rest has no meaning.
    """

    use: Use
    begins_s: float
    ends_s: float
    names: tuple[str, ...] = ()
    mistake: str = ""

    def works(self, now_s: float) -> bool:
        """Return whether it is valid at this time."""
        return self.begins_s <= now_s < self.ends_s


class Judgement(NamedTuple):
    """A severity, and a sentence without its full stop."""

    severity: Severity
    sentence: str


def judge(found: Fitness, now_s: float) -> Judgement:
    """Return whether the certificate can be used at this time, in seconds since the Unix epoch."""
    use = found.use
    subject, follows = use.subject, _WORDS[use.kind][1]
    if found.mistake:
        return Judgement("warning", f"{subject} cannot be examined: {found.mistake}")
    if now_s >= found.ends_s:
        return Judgement(
            "error", f"{subject} expired on {_date(found.ends_s)}: {follows}; renew it"
        )
    if now_s < found.begins_s:
        return Judgement(
            "error",
            f"{subject} is not valid before {_date(found.begins_s)}: {follows}; if that is past,"
            " the clock of this machine is wrong",
        )
    left_s = found.ends_s - now_s
    if left_s < WARNING_S:
        days = int(left_s // _DAY_S)
        left = f"in {days} day{'' if days == 1 else 's'}" if days else "in less than a day"
        return Judgement(
            "warning",
            f"{subject} expires on {_date(found.ends_s)}, {left}: {follows} then; renew it",
        )
    if use.kind == "server" and not found.names:
        return Judgement(
            "warning", f"{subject} names no host (subjectAltName): clients that check it refuse it"
        )
    missing = [host for host in use.hosts if not any(_covers(name, host) for name in found.names)]
    if missing:
        return Judgement(
            "warning",
            f"{subject} is for {', '.join(found.names)} and not for {', '.join(missing)}: clients"
            " that connect by that name refuse it",
        )
    return Judgement("ok", f"{subject} is valid until {_date(found.ends_s)}")


def read(use: Use) -> Fitness:
    """Read what decides whether a file of certificates is of use; a mistake is part of what is
    returned. TLS itself has read the file before, and complains of what it cannot use."""
    from cryptography import x509  # only brokers with TLS load it

    try:
        text = read_regular(use.file)
        if use.kind == "revocations":
            lists = [x509.load_pem_x509_crl(block) for block in _CRL.findall(text)]
            ends = [one.next_update_utc for one in lists]
            return Fitness(
                use,
                max(one.last_update_utc.timestamp() for one in lists),
                min((end.timestamp() for end in ends if end is not None), default=float("inf")),
            )
        chain = x509.load_pem_x509_certificates(text)
        if use.kind == "authorities":
            chain = [max(chain, key=lambda one: one.not_valid_after_utc)]
        return Fitness(
            use,
            max(one.not_valid_before_utc.timestamp() for one in chain),
            min(one.not_valid_after_utc.timestamp() for one in chain),
            _names(chain[0]),
        )
    except OSError as error:
        return Fitness(use, 0.0, 0.0, mistake=error.strerror or str(error))
    except (
        ValueError,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        return Fitness(use, 0.0, 0.0, mistake=str(error))


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (
        *found.get_values_for_type(x509.DNSName),
        *(str(address) for address in found.get_values_for_type(x509.IPAddress)),
    )


def _covers(name: str, host: str) -> bool:
    """Return whether a name of a certificate is the host's; a star stands for one label (RFC 9525
    §6.3)."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        pass
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    first, _, rest = name.partition(".")
    return name == host or (first == "*" and host.partition(".")[2] == rest != "")


def _date(at_s: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
    except (OverflowError, ValueError):
        return "an unknown date"
