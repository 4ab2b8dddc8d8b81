"""The machines of a new cluster: parses NAME=HOST, and assigns the ports of their processes.

If several machines have the same host, as in a trial on one machine, each gets ports one higher
than the machine before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.config.address import Address
from penstock.config.cluster import NAME
from penstock.errors import ConfigError

MACHINES_MIN: Final = 3
MACHINES_MAX: Final = 9
_FORM: Final = "NAME=HOST, such as a=10.0.0.1 or b=mqtt-b.example.org"


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of one machine.

    Attributes:
        nats: port of the NATS server for brokers.
        routes: port of the NATS server for the other servers.
        monitoring: port of the NATS server for monitoring, reachable on this machine only.
        mqtt: port of the broker for clients.
        stream: port of the broker's stream service.
    """

    nats: int = 4222
    routes: int = 6222
    monitoring: int = 8222
    mqtt: int = 1883
    stream: int = 8815

    def above(self, step: int) -> Ports:
        """Return these ports, each increased by ``step``.

        Raises:
            ConfigError: a port would be above 65,535.
        """
        ports = [self.nats, self.routes, self.monitoring, self.mqtt, self.stream]
        if max(ports) + step > 65_535:
            raise ConfigError(f"the port {max(ports)} is too high: {step} ports above it are used")
        return Ports(*(port + step for port in ports))


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine of a cluster.

    Attributes:
        name: name of the machine in the cluster, and of its NATS server.
        host: IP address or host name at which other machines reach it, without brackets.
        ports: ports of its processes.
    """

    name: str
    host: str
    ports: Ports

    def address(self, port: int) -> Address:
        """Return the address at which other machines reach ``port`` of this machine."""
        return Address(self.host, port)

    @property
    def is_loopback(self) -> bool:
        """True if ``host`` is a loopback address, as in a trial on one machine."""
        return self.address(0).is_loopback

    @property
    def monitoring_address(self) -> Address:
        """Return the address of the NATS server's monitoring, for programs on this machine."""
        return Address(self.host if self.is_loopback else "127.0.0.1", self.ports.monitoring)

    def listen_address(self, port: int) -> Address:
        """Return the address to listen on: the wildcard address, or for a loopback host that
        host."""
        if self.is_loopback:
            return self.address(port)
        return Address("::" if ":" in self.host else "0.0.0.0", port)  # noqa: S104  # for others


def parse_machines(texts: Sequence[str], first: Ports) -> tuple[Machine, ...]:
    """Return the machines given as texts of the form ``NAME=HOST``.

    Args:
        texts: one text for each machine; an IPv6 address may have brackets.
        first: the ports of the first machine of each host.

    Raises:
        ConfigError: a text has another form, two machines have the same name, there are too few or
            too many machines, or two processes would use the same port of a host.
    """
    if not MACHINES_MIN <= len(texts) <= MACHINES_MAX:
        raise ConfigError(
            f"{len(texts)} machines: a cluster has {MACHINES_MIN} to {MACHINES_MAX}, so that one"
            " can be lost and a majority is left"
        )
    on_host: Counter[str] = Counter()
    machines = []
    for text in texts:
        name, host = _parse_machine(text)
        machines.append(Machine(name, host, first.above(on_host[host])))
        on_host[host] += 1
    if len({machine.name for machine in machines}) < len(machines):
        raise ConfigError("two machines have the same name")
    _check_ports(machines)
    return tuple(machines)


def add_machine(machines: Sequence[Machine], text: str) -> tuple[Machine, ...]:
    """Return ``machines`` and one more, given as ``NAME=HOST``, with the ports of the first; on a
    host of others with ports above theirs.

    Raises:
        ConfigError: as for ``parse_machines``.
    """
    name, host = _parse_machine(text)
    if any(machine.name == name for machine in machines):
        raise ConfigError(f"there is a machine {name} already")
    if len(machines) >= MACHINES_MAX:
        raise ConfigError(f"a cluster has {MACHINES_MAX} machines at most")
    beside = [machine.ports for machine in machines if machine.host == host]
    ports = max(beside, key=lambda one: one.nats).above(1) if beside else machines[0].ports
    added = (*machines, Machine(name, host, ports))
    _check_ports(added)
    return added


def _parse_machine(text: str) -> tuple[str, str]:
    name, separator, host = text.partition("=")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or NAME.fullmatch(name) is None:
        raise ConfigError(f"{text!r} must be {_FORM}; a name has 1 to 32 letters, digits, - and _")
    try:
        Address.parse(str(Address(host, 1)))
    except ValueError:
        raise ConfigError(f"{text!r} must be {_FORM}: {host!r} is no host") from None
    if host in ("0.0.0.0", "::"):  # noqa: S104
        raise ConfigError(f"{text!r}: the others cannot reach {host}; give the machine's address")
    return name, host


def _check_ports(machines: Sequence[Machine]) -> None:
    """Raise ConfigError if two processes would listen on the same port of a host."""
    taken: set[tuple[str, int]] = set()
    for machine in machines:
        ports = machine.ports
        for port in (ports.nats, ports.routes, ports.monitoring, ports.mqtt, ports.stream):
            if (machine.host, port) in taken:
                raise ConfigError(
                    f"port {port} of {machine.host} would be used twice; give each its own, with"
                    " room for one for each machine"
                )
            taken.add((machine.host, port))
