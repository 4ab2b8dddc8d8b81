"""Trace contexts of publishers: the user property ``traceparent`` (W3C Trace Context).

::

      00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
      version │ trace-id                 parent-id         flags; bit 0: sampled
              ╰─ lower case hexadecimal; neither identifier is all zeros, the version is not ff

A later version may append fields behind another hyphen. A value of another form is ignored, and so
are several values in one message (https://www.w3.org/TR/trace-context).
"""

from __future__ import annotations

from typing import Final, final

LENGTH_MIN: Final = 55
"""Characters of a trace context of version 00; a later version has at least as many."""

LENGTH_MAX: Final = 256
"""Characters that a trace context may have; a longer value is ignored."""

_DIGITS: Final = "0123456789abcdef"
_PROPERTY: Final = b"\x26\x00\x0btraceparent"  # a user property of this name (v5 §3.3.2.3.7)


@final
class TraceContext:
    """The place of a message in a trace.

    Args:
        trace_id: identifier of the trace, 128 bits.
        parent_id: identifier of the publisher's span, 64 bits.
        is_sampled: whether the publisher records the trace.
    """

    def __init__(self, trace_id: int, parent_id: int, is_sampled: bool) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.is_sampled = is_sampled


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the trace context that ``text`` encodes; None if ``text`` is malformed."""
    if not LENGTH_MIN <= len(text) <= LENGTH_MAX:
        return None
    version, trace_id, parent_id, flags = text[:2], text[3:35], text[36:52], text[53:55]
    if text[2] != "-" or text[35] != "-" or text[52] != "-":
        return None
    if len(text) > LENGTH_MIN and (version == "00" or text[LENGTH_MIN] != "-"):
        return None
    for part in (version, trace_id, parent_id, flags):
        for character in part:
            if character not in _DIGITS:
                return None
    if version == "ff":
        return None
    context = TraceContext(int(trace_id, 16), int(parent_id, 16), int(flags, 16) & 1 == 1)
    return context if context.trace_id > 0 and context.parent_id > 0 else None


def traceparent_of(properties: bytes) -> str:
    """Return the text of the trace context in the encoded properties of a message.

    Return an empty text if the properties have no well-formed trace context, or several.
    """
    at = properties.find(_PROPERTY)
    if at < 0 or properties.find(_PROPERTY, at + 1) >= 0:
        return ""
    at += len(_PROPERTY)
    length = int.from_bytes(properties[at : at + 2], "big")
    if length > LENGTH_MAX:
        return ""
    text = properties[at + 2 : at + 2 + length].decode("utf-8", "replace")
    return "" if parse_traceparent(text) is None else text
