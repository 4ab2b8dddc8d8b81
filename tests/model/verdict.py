"""The verdict on a run at rest: nothing waits, the log is right, the last values are retained."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.values.message import Message
from tests.model.device import Device
from tests.model.ledger import Ledger
from tests.model.shell import Shell
from tests.support.waiting import check_waiting


def judge_sessions(shell: Shell, devices: Sequence[Device]) -> None:
    """Check that neither the devices nor the broker wait for anything."""
    for device in devices:
        assert device.idle, f"{device.client_id} still waits"
    for session in shell.server.registry.sessions.values():
        assert session.window_length == 0, f"{session.client_id}'s window is stuck"
        assert session.queue_length == 0, f"{session.client_id}'s queue is stuck"
        assert not session.has_unfinished_qos2, f"{session.client_id} keeps packet identifiers"
    for pipe in shell.pipes.values():
        assert pipe.connection.link.uncommitted_acks == 0
    check_waiting(shell.server)
    assert shell.server.context.budget.fetching_bytes == 0


def judge_retained(shell: Shell, ledger: Ledger) -> None:
    """Check that each topic retains what its one publisher sent last, if that was acknowledged."""
    for topic, key in ledger.retained.items():
        if ledger.messages[key].acknowledged:
            message = shell.server.router.retained.get(topic)
            assert message is not None, f"nothing is retained for {topic}"
            sent = message.payload.decode().rstrip(".")
            assert sent == key, f"{topic} retains {sent} instead of {key}"


def judge_log(log: Sequence[Message], ledger: Ledger, devices: Sequence[Device]) -> None:
    """Check that every acknowledged message and every will is in the log, in order, at QoS 2
    once."""
    rows: dict[str, int] = {}
    latest: dict[tuple[str, str, int], int] = {}
    for message in log:
        if message.internal:
            continue
        key = message.payload.decode().rstrip(".")
        rows[key] = rows.get(key, 0) + 1
        line = (message.client_id, message.topic, message.qos)
        number = int(key.split("|")[1])
        if rows[key] == 1:
            may_be_late = key in ledger.messages and ledger.messages[key].may_be_late
            in_order = number > latest.get(line, -1)
            assert in_order or may_be_late, f"{key} is out of order in the log"
            latest[line] = max(number, latest.get(line, -1))
    for key, sent in ledger.messages.items():
        if sent.topic == "wills":
            continue
        count = rows.get(key, 0)
        if sent.acknowledged and sent.qos > 0:
            assert count > 0, f"{key} was acknowledged and is not in the log"
        if sent.qos != 1:
            assert count <= 1, f"{key} is in the log {count} times"
    for device in devices:
        for key in device.accepted_wills:
            assert rows.get(key, 0) == 1, f"the will {key} was published {rows.get(key, 0)} times"
