"""Client groups: who is in which, and who counts there."""

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.values.access import AuthResult, Credentials
from penstock.engine.values.client_groups import (
    NAME_CHARACTERS_MAX,
    OTHER,
    ClientGroup,
    ClientGroups,
)
from penstock.engine.values.counters import AllCounters, Counters
from penstock.engine.values.limits import EngineLimits
from penstock.engine.wire.link import Link
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Publish
from tests.unit.engine.bench import Bench

PRESSES = ClientGroups(
    (ClientGroup("presses", client="press-*"), ClientGroup("line 7", user="line7", client="*"))
)


class NamesAreTrue(Authenticate):
    """Lets everybody in but `mallory`."""

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        del link
        if credentials.username == "mallory":
            return AuthResult(reasons.BAD_USER_NAME_OR_PASSWORD)
        return AuthResult(reasons.SUCCESS, credentials.username)


def grouped(bench: Bench, groups: ClientGroups = PRESSES) -> AllCounters:
    counters = bench.server.context.turn.counters
    counters.apply_settings(groups)
    return counters


def of(counters: AllCounters, group: str, listener: str = "") -> Counters:
    (found,) = (
        one for one in counters.counters_by_pair() if (one.listener, one.group) == (listener, group)
    )
    return found


def test_the_first_group_that_fits_is_taken_and_all_conditions_must() -> None:
    groups = ClientGroups(
        (
            ClientGroup("a", client="x*", user="u", listener="tls"),
            ClientGroup("b", client="x*"),
            ClientGroup("c", user="*"),
        )
    )
    assert groups.name_for("tls", "x1", "u") == "a"
    assert groups.name_for("main", "x1", "u") == "b"
    assert groups.name_for("tls", "x1", None) == "b"
    assert groups.name_for("tls", "y", "anyone") == "c"
    assert groups.name_for("tls", "y", None) == OTHER


def test_a_name_that_is_too_long_fits_no_pattern() -> None:
    """Whoever is refused chose it, and each group would look at 64 KiB of it."""
    groups = ClientGroups((ClientGroup("a", client="*x"), ClientGroup("b", user="*x")))
    longest = "x" * NAME_CHARACTERS_MAX
    assert groups.name_for("main", longest, None) == "a"
    assert groups.name_for("main", longest + "x", None) == OTHER
    assert groups.name_for("main", "c", longest) == "b"
    assert groups.name_for("main", "c", longest + "x") == OTHER


def test_traffic_counts_in_the_pair_of_its_client_from_connect_on() -> None:
    bench = Bench(limits_by_name={"tls": EngineLimits("tls")})
    counters = grouped(bench)
    line = bench.line(limits_name="tls")
    early = Connect("press-1", 5, True, 0), Publish("t", b"12", 0), Publish("t", b"3", 0)
    line.receive(b"".join(encode(packet, 5) for packet in early))  # in one read
    bench.commit()
    line.read()
    presses = of(counters, "presses", "tls")
    assert presses.connections_accepted == 1
    assert (presses.publish_received, presses.publish_bytes_received) == (2, 3)
    assert presses.packets_received == 2
    assert sum(presses.sent_by_type()) == 1  # CONNACK
    before = of(counters, OTHER, "tls")
    assert (before.sockets_accepted, before.packets_received) == (1, 1)  # CONNECT
    assert before.connections_accepted == 0


def test_a_failed_login_counts_with_whom_the_client_claims_to_be() -> None:
    bench = Bench(authenticate=NamesAreTrue())
    counters = grouped(bench)
    line, answer = bench.connect(Connect("press-1", 5, True, 0, username="mallory", password=b""))
    assert answer.reason_code == reasons.BAD_USER_NAME_OR_PASSWORD
    assert of(counters, "presses").logins_failed == counters.total().logins_failed == 1
    del line
    bench.connect(Connect("x", 5, True, 0, username="line7", password=b""))
    assert of(counters, "line 7").connections_accepted == 1


def test_other_groups_count_clients_that_are_let_in_from_then_on() -> None:
    bench = Bench()
    counters = grouped(bench)
    early = bench.join("press-1")
    counters.apply_settings(ClientGroups((ClientGroup("machines", client="press-*"),)))
    early.send(Publish("t", b"x", 0))
    bench.join("press-2").send(Publish("t", b"x", 0), Publish("t", b"x", 0))
    assert of(counters, "presses").publish_received == 1
    assert of(counters, "machines").publish_received == 2
