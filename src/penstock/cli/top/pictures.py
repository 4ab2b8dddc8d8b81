"""The window and the queue of one client as text pictures that need no colours.

::

      window  12 of 32   ■■■■■■■■▲▲▼▼····················
                         ■ PUBACK due 8   ▲ PUBREC due 2   ▼ PUBCOMP due 2   · free 20
      queue  300 of 1k   ███████████▍···························
        priority 5        200  ███████▌······
        priority 0        100  ███▊··········

Each place of the window is a character if all places fit into ``CELL_LINES`` lines; a longer window
is a bar.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from penstock.cli.top.columns import LIMIT_WORDS
from penstock.cli.top.figures import bar, short_bytes, short_duration, short_number
from penstock.control.diagnosis import Diagnosis
from penstock.control.ranking_requests import FlowDetails
from penstock.telemetry.logs import printable

CELL_LINES: Final = 4

_CELLS: Final = {"a": "■", "r": "▲", "c": "▼", "s": "□"}
_CELL_WORDS: Final = {"a": "PUBACK due", "r": "PUBREC due", "c": "PUBCOMP due", "s": "sent again"}
_FREE: Final = "·"
_NAME_WIDTH: Final = 13
_NUMBER_WIDTH: Final = 14
_PRIORITIES_SHOWN_MAX: Final = 8
_VERSIONS: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5"}


def client_lines(flow: FlowDetails, why: Diagnosis | None, width: int) -> list[str]:
    """Return the lines about one client, of about ``width`` characters.

    Args:
        flow: the details of the client.
        why: the diagnosis of `penstock why`; None: it was not requested.
        width: characters of a line.
    """
    return [
        *_identity_lines(flow),
        "",
        *_window_lines(flow, width),
        *_queue_lines(flow, width),
        *_bar_lines("inbound", flow.inbound, flow.receive_maximum, width),
        *_bar_lines("unsent bytes", flow.unsent_bytes, flow.unsent_bytes_max, width),
        *_other_lines(flow),
        "",
        *_limit_lines(flow),
        *_drop_lines(flow),
        *_diagnosis_lines(why, width),
        "",
        *_filter_lines(flow),
    ]


def _pair(name: str, text: str) -> str:
    return f"{name:<{_NAME_WIDTH}} {text}"


def _identity_lines(flow: FlowDetails) -> Iterator[str]:
    yield _pair("client", printable(flow.client_id))
    user = "anonymous" if flow.user is None else printable(flow.user)
    if flow.connected:
        version = _VERSIONS.get(flow.version, "a bridge" if flow.bridge else str(flow.version))
        address = printable(flow.address or "-")
        yield _pair("connected", f"{version} from {address}, listener {printable(flow.listener)}")
    else:
        yield _pair("away", "its session waits for it")
    yield _pair("user", user)
    yield _pair(
        "traffic",
        f"in {short_bytes(flow.received_bytes_per_s)}/s"
        f" ({short_bytes(flow.received_bytes)} in all),"
        f" out {short_bytes(flow.sent_bytes_per_s)}/s ({short_bytes(flow.sent_bytes)} in all)",
    )


def _window_lines(flow: FlowDetails, width: int) -> Iterator[str]:
    size = max(flow.window_size, flow.window, 1)
    room = max(8, width - _NAME_WIDTH - _NUMBER_WIDTH - 2)
    label = (
        f"{'window':<{_NAME_WIDTH}} {_of_bound(flow.window, flow.window_size):<{_NUMBER_WIDTH}} "
    )
    if size <= CELL_LINES * room and len(flow.places) == flow.window:
        cells = "".join(_CELLS.get(state, "?") for state in flow.places).ljust(size, _FREE)
        lines = [cells[begin : begin + room] for begin in range(0, size, room)]
    else:
        lines = [bar(flow.window / size, room)]
    for number, line in enumerate(lines):
        yield (label if number == 0 else " " * len(label)) + line
    parts = [
        f"{cell} {_CELL_WORDS[state]} {short_number(flow.places_by_state.get(state, 0))}"
        for state, cell in _CELLS.items()
        if flow.places_by_state.get(state, 0)
    ]
    parts.append(f"{_FREE} free {short_number(max(0, size - flow.window))}")
    yield _pair("", "  ".join(parts))


def _queue_lines(flow: FlowDetails, width: int) -> Iterator[str]:
    yield from _bar_lines("queue", flow.queue, flow.queue_max, width)
    if flow.queue:
        bound = f" of {short_bytes(flow.queue_bytes_max)}" if flow.queue_bytes_max else ""
        qos0 = f", {short_number(flow.queue_qos0)} messages of QoS 0" if flow.queue_qos0 else ""
        yield _pair("", f"{short_bytes(flow.queue_bytes)}{bound}{qos0}")
    by_priority = list(flow.queue_by_priority.items())
    if len(by_priority) < 2:
        return
    for priority, number in by_priority[:_PRIORITIES_SHOWN_MAX]:
        yield from _bar_lines(f"  priority {priority}", number, flow.queue, width)
    if len(by_priority) > _PRIORITIES_SHOWN_MAX:
        yield _pair("", f"and {len(by_priority) - _PRIORITIES_SHOWN_MAX} priorities more")


def _bar_lines(name: str, number: int, bound: int, width: int) -> Iterator[str]:
    """Yield a line with a number and a bar of its share of the bound; without a bound there is no
    bar."""
    room = max(8, width - _NAME_WIDTH - _NUMBER_WIDTH - 2)
    text = _of_bound(number, bound)
    picture = bar(number / bound, room) if bound else ""
    yield f"{name:<{_NAME_WIDTH}} {text:<{_NUMBER_WIDTH}} {picture}".rstrip()


def _of_bound(number: int, bound: int) -> str:
    return f"{short_number(number)} of {short_number(bound)}" if bound else short_number(number)


def _other_lines(flow: FlowDetails) -> Iterator[str]:
    if flow.awaiting_release:
        yield _pair("QoS 2", f"{short_number(flow.awaiting_release)} received, PUBREL is due")
    if flow.pending_publishes:
        yield _pair(
            "publishes", f"{short_number(flow.pending_publishes)} wait for room in full queues"
        )
    if flow.reads is False:
        yield _pair("socket", "takes no more bytes: the client does not read")


def _limit_lines(flow: FlowDetails) -> Iterator[str]:
    for reached in flow.limited_by:
        lasts = f" for {short_duration(reached.lasts_s)}" if reached.lasts_s else ""
        yield _pair("limited by", f"{LIMIT_WORDS.get(reached.limit, reached.limit)}{lasts}")
    for limit in flow.limits:
        words = LIMIT_WORDS.get(limit.limit, limit.limit)
        yield _pair(
            "until now",
            f"{words} {short_number(limit.times)} times, {short_duration(limit.total_s)}",
        )


def _drop_lines(flow: FlowDetails) -> Iterator[str]:
    for reason, number in sorted(flow.drops.items(), key=lambda drop: -drop[1]):
        yield _pair("dropped", f"{number:,} {reason.replace('_', ' ')}")


def _diagnosis_lines(why: Diagnosis | None, width: int) -> Iterator[str]:
    if why is None:
        return
    yield ""
    for name, text in (("likeliest", why.reason), ("what to do", why.remedy)):
        for number, line in enumerate(wrap(printable(text), max(20, width - _NAME_WIDTH - 1))):
            yield _pair("" if number else name, line)


def _filter_lines(flow: FlowDetails) -> Iterator[str]:
    for number, topic_filter in enumerate(flow.filters):
        yield _pair("subscribed" if number == 0 else "", printable(topic_filter))
    if flow.subscriptions > len(flow.filters):
        yield _pair("", f"and {flow.subscriptions - len(flow.filters):,} more")
