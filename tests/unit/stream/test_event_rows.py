"""An event as one object."""

from penstock.stream.event_rows import EventRow


def test_what_is_banned_does_not_hide_what_the_event_is() -> None:
    fields = {"act": "ban", "kind": "client", "value": "press-7", "at": 1}
    entry = EventRow("administered", 1, "", fields).entry
    assert entry == {
        "kind": "administered",
        "act": "ban",
        "ban_kind": "client",
        "value": "press-7",
        "at": 1,
    }
    assert fields["kind"] == "client", "the fields stay as they are in the stream"
