"""`penstock why`: the likeliest reason why a client does not get messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.completion import complete_client_ids
from penstock.cli.operator_commands import AsJson, ask_broker, utc_text
from penstock.cli.option_groups import expand_option_groups
from penstock.cli.options import ConfigFile, DataDir, check_topic
from penstock.cli.screen import print_heading, print_objects, print_pairs, print_table
from penstock.cli.stream_service import StreamCredentialOptions, reach_stream

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.control.diagnosis import Case, LoggedMessage
    from penstock.control.explanation import Explanation
    from penstock.stream.last_messages import LastMessages

SEARCH_S: Final = 1.0
"""Time limit of the search for messages of the topic, in seconds."""

SERVICE_S: Final = 1.0
"""How long the stream service may be unreachable, in seconds."""

_LAST_EVENTS: Final = {
    "received": "last published",
    "sent": "last sent",
    "acknowledged": "last acknowledged",
}


@expand_option_groups
def why(
    client_id: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT", help="A client identifier.", autocompletion=complete_client_ids
        ),
    ],
    access: StreamCredentialOptions,
    topic: Annotated[
        str, typer.Argument(metavar="[TOPIC]", help="A topic name that it should get.")
    ] = "",
    last: Annotated[
        int, typer.Option("--last", min=0, max=100, help="Messages of the topic looked up.")
    ] = 5,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,…", help="The stream service; as the settings say."),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a client gets no messages, or not all: shows its connection, subscriptions,
    permissions, limits, drops, the last messages of a topic and the state of each; then the
    likeliest reason and a remedy. Nothing has to be switched on before."""
    from penstock.control.diagnosis import Case, diagnose
    from penstock.control.explanation import Explain, Explanation

    check_topic(topic)
    logged, obstacle = _last_messages(config, data_dir, topic, last, server, access)
    offsets = () if logged is None else tuple(message.offset for message in logged.messages)
    facts = ask_broker(config, data_dir, Explain(client_id, topic, offsets), Explanation)
    case = Case(facts, None if logged is None else logged.messages)
    diagnosis = diagnose(case)
    if as_json:
        from msgspec import to_builtins

        answer = to_builtins(facts)
        answer["messages"] = None if logged is None else to_builtins(logged.messages)
        answer["reason"], answer["remedy"] = diagnosis.reason, diagnosis.remedy
        print_objects([answer])
        return
    print_pairs(_client_pairs(facts))
    if topic:
        print_heading(topic)
        print_pairs(_topic_pairs(facts, logged, obstacle))
    if case.messages:
        print_table(("offset", "received", "from", "QoS", "for this client"), _rows(case))
    print_heading("likeliest")
    print_pairs((("reason", diagnosis.reason), ("what to do", diagnosis.remedy)))


def _last_messages(
    config: Path | None,
    data_dir: Path | None,
    topic: str,
    count: int,
    server: str | None,
    access: StreamCredentialOptions,
) -> tuple[LastMessages | None, str]:
    """Return the last messages of the topic, or None and the reason why the log cannot be read."""
    if not topic or count == 0:
        return None, ""
    from penstock.config.load import load_settings
    from penstock.control.client import BrokerHangs
    from penstock.errors import PenstockError
    from penstock.stream.client import StreamClient
    from penstock.stream.last_messages import last_messages

    settings = load_settings(config, {"durability.data_dir": data_dir})
    try:
        address, credentials = reach_stream(settings, server, access, data_dir, needs_broker=True)
        with StreamClient(address, SERVICE_S, credentials) as client:
            return last_messages(client, topic, count, SEARCH_S), ""
    except BrokerHangs:  # and explains nothing
        raise
    except PenstockError as error:
        return None, str(error)


def _client_pairs(facts: Explanation) -> Iterator[tuple[str, str]]:
    yield "client", facts.client_id
    if facts.banned_because is not None:
        yield "banned", facts.banned_because
    session = facts.session
    if session is None:
        yield "session", "none"
        yield from _recorded_pairs(facts)
        return
    since = utc_text(session["since_us"]) if session["since_us"] else "the broker's start"
    if session["connected"]:
        yield (
            "connected",
            f"since {since} from {session['address']}, listener {session['listener']}",
        )
    else:
        because = f": {facts.disconnected_because}" if facts.disconnected_because else ""
        yield "away", f"since {since}{because}"
    yield "user", "anonymous" if session["user"] is None else session["user"]
    yield "window", f"{session['window']:,} of {session['window_size']:,} in flight"
    bound = f" of {session['queue_max']:,}" if session["queue_max"] else ""
    yield "queue", f"{session['queue']:,}{bound} messages, {session['queue_bytes']:,} bytes"
    for limit in facts.limits:
        yield "at its limit", f"{limit.limit.replace('_', ' ')}, for {limit.lasts_s:,.1f} s"
    if facts.reads is False:
        yield "socket", "takes no more bytes"
    yield from _recorded_pairs(facts)
    for text in _drop_texts(facts.drops, facts.last_drops):
        yield "dropped", text
    for group in facts.group_drops:
        for text in _drop_texts(group.drops, group.last_drops):
            yield f"dropped from {group.filter}", text


def _recorded_pairs(facts: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the time of the last event of each kind, as far as it is recorded."""
    recorded = facts.recorded
    if recorded is None:
        return
    for kind, name in _LAST_EVENTS.items():
        run = recorded.last(kind)
        if run is not None:
            at = "" if run.last_offset is None else f", offsets up to {run.last_offset:,}"
            yield name, f"{utc_text(run.last_us)}{at}"
    disconnection = recorded.last("disconnected")
    if facts.session is None and disconnection is not None:
        yield "left", f"{utc_text(disconnection.last_us)}: {disconnection.text}"
    for refused in recorded.refused:
        times = f"{refused.count:,} times, " if refused.count > 1 else ""
        yield "CONNECT refused", f"{times}{utc_text(refused.last_us)}: {refused.text}"


def _drop_texts(drops: dict[str, int], last_drops: list[dict[str, Any]]) -> Iterator[str]:
    for reason, number in drops.items():
        offsets = [drop["offset"] for drop in last_drops if drop["reason"] == reason]
        known = ", ".join(f"{offset:,}" for offset in offsets if offset >= 0)
        where = f" (the last at offset {known})" if known else ""
        yield f"{number:,}, {reason.replace('_', ' ')}{where}"


def _topic_pairs(
    facts: Explanation, logged: LastMessages | None, obstacle: str
) -> Iterator[tuple[str, str]]:
    if facts.session is not None:
        matching = ", ".join(f"{match.filter} (QoS {match.qos})" for match in facts.subscriptions)
        yield "subscribed by", matching or f"none of {len(facts.filters)} filters"
        yield "may receive", _permission_text(facts.may_receive, facts.receive_rule)
        yield "may publish", _permission_text(facts.may_publish, facts.publish_rule)
        for group in facts.groups:
            names = ", ".join(group.connected_members)
            yield (
                "shared",
                f"{group.filter}: {group.connected} connected ({names}), {group.queue:,} wait",
            )
        retained = facts.retained
        yield (
            "retained",
            "nothing"
            if retained is None
            else f"{retained['bytes']:,} bytes, received {utc_text(retained['received_at_us'])}",
        )
    if obstacle:
        yield "the log", f"cannot be read: {obstacle}"
    elif logged is not None:
        looked_at = "all of it" if logged.is_complete else f"its last {logged.searched:,} messages"
        yield "the log", f"{len(logged.messages)} messages shown; looked at {looked_at}"


def _permission_text(is_allowed: bool, rule: str) -> str:
    return ("yes" if is_allowed else "no") + (f": {rule}" if rule else "")


def _rows(case: Case) -> Iterator[tuple[str, ...]]:
    for message in case.messages or ():
        moment = datetime.fromtimestamp(message.received_at_us / 1_000_000, UTC)
        yield (
            f"{message.offset:,}",
            f"{moment:%Y-%m-%d %H:%M:%S}",
            message.client_id,
            str(message.qos),
            _state_text(case, message),
        )


def _state_text(case: Case, message: LoggedMessage) -> str:
    state = case.state_of(message)
    if state.startswith("dropped:"):
        return f"dropped: {state.removeprefix('dropped:').replace('_', ' ')}"
    if state == "in_group":
        return "waits in the queue of its group"
    if state:
        return state.replace("_", " ")
    if case.facts.session is None or not case.facts.subscriptions:
        return "was not for it"
    return "sent, and acknowledged" if message.qos else "sent"
