"""An event as one object."""

from penstock.stream.event_rows import EventRow


def test_the_kind_of_a_ban_does_not_hide_the_kind_of_the_event() -> None:
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
