"""What tests of a cluster publish and find again, and what an operator asks its members."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError
from penstock.protocol.kinds import V5
from tests.support.deadline import wait_for
from tests.support.members import MemberBroker, Members, problems_of
from tests.support.raw_client import RawClient


def leave_session(member: MemberBroker) -> None:
    """Leave a session that is subscribed and away."""
    with RawClient(member.address, V5) as reader:
        reader.connect("reader", clean_start=True, expiry_s=3600)
        reader.subscribe("t/#")


def publish(member: MemberBroker, numbers: range) -> None:
    """Publish a message for each number, each acknowledged."""
    with RawClient(member.address, V5) as writer:
        writer.connect("writer", clean_start=True)
        for number in numbers:
            assert writer.publish("t/1", b"%d" % number) == 0


def received(member: MemberBroker, count: int) -> list[bytes]:
    """What the session gets."""
    with RawClient(member.address, V5) as reader:
        assert reader.connect("reader", clean_start=False, expiry_s=3600).session_present
        return reader.take_payloads(count)


def texts(numbers: range) -> list[bytes]:
    """The payloads of ``publish``."""
    return [b"%d" % number for number in numbers]


def notes(member: MemberBroker) -> str:
    """The problems that `penstock cluster status` shows at a member; "nobody answers" while it
    cannot be asked."""
    if not member.role():
        return "nobody answers"
    try:
        return " ".join(problems_of(member.state()))
    except PenstockError:  # it changes its role
        return "nobody answers"


def is_told(member: MemberBroker, sentence: str) -> bool:
    """Whether the status at a member has the sentence."""
    return sentence in notes(member)


def wait_until_healthy(members: Members) -> None:
    """Wait until the views are level, and no member sees a problem."""
    members.wait_until_level()
    wait_for("no problems", lambda: not any(map(notes, members.all.values())))


def recover(member: MemberBroker, *options: str) -> str:
    """Let a member's store begin a new history; return what the dry run says."""
    asked = member.penstock("cluster", "recover", *options)
    assert asked.returncode == 0, asked.stderr
    assert "nothing was changed: run it again with --yes" in asked.stdout
    done = member.penstock("cluster", "recover", "--yes", *options)
    assert done.returncode == 0, done.stderr
    return asked.stdout


def back_up(member: MemberBroker, backup: Path) -> str:
    """Write a backup of a member; return what the command prints."""
    told = member.penstock("store", "backup", str(backup))
    assert told.returncode == 0, told.stderr
    return told.stdout


def restore(member: MemberBroker, backup: Path) -> str:
    """Restore a backup as a member's store; return what the command prints."""
    told = member.penstock("store", "restore", str(backup))
    assert told.returncode == 0, told.stderr
    return told.stdout
