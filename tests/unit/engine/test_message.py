"""Messages: the two properties that differ from delivery to delivery."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.message import Delivery, Message
from penstock.protocol.properties import Properties, encode_properties, parse_properties

SECOND_US = 1_000_000


def message(properties: Properties, received_at_us: int = 50 * SECOND_US) -> Message:
    return Message("t", b"x", 1, False, "c", received_at_us, encode_properties(properties))


def test_a_message_expires_after_its_interval() -> None:
    """[MQTT-3.3.2-5]"""
    expiring = message(Properties(message_expiry_interval=10))
    assert not expiring.is_expired(60 * SECOND_US - 1)
    assert expiring.is_expired(60 * SECOND_US)
    assert not message(Properties(content_type="x")).is_expired(2**62)


def test_the_rest_of_the_expiry_interval_is_sent() -> None:
    """[MQTT-3.3.2-6]"""
    expiring = message(Properties(payload_format_indicator=1, message_expiry_interval=10))
    for waited_us, left_s in ((0, 10), (1, 10), (SECOND_US, 9), (3_400_000, 7), (10**9, 0)):
        sent = parse_properties(expiring.properties_for(50 * SECOND_US + waited_us, ()))
        assert sent.message_expiry_interval == left_s
        assert sent.payload_format_indicator == 1


@given(
    st.none() | st.integers(0, 1),
    st.none() | st.integers(0, 0xFFFFFFFF),
    st.none() | st.text("abc", max_size=3),
    st.lists(st.integers(1, 268_435_455), max_size=3),
)
def test_everything_else_is_forwarded_unaltered(
    payload_format: int | None, expiry_s: int | None, content_type: str | None, ids: list[int]
) -> None:
    """[MQTT-3.3.2-4] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20] [MQTT-3.3.4-3]"""
    published = Properties(
        payload_format_indicator=payload_format,
        message_expiry_interval=expiry_s,
        content_type=content_type,
        user_properties=[("k", "v"), ("k", "w")],
    )
    sent = parse_properties(message(published).properties_for(50 * SECOND_US, tuple(ids)))
    published.subscription_identifiers = ids or None
    assert sent == published


def test_a_will_is_dated_when_it_is_published() -> None:
    will = message(Properties(message_expiry_interval=10), 0)
    will.set_received_at(100 * SECOND_US)
    assert will.received_at_us == 100 * SECOND_US
    assert not will.is_expired(109 * SECOND_US)
    assert will.is_expired(110 * SECOND_US)


def test_a_body_is_let_go_only_if_the_log_has_it() -> None:
    body = Message("t", b"x")
    in_log, elsewhere = Delivery(body, 5, 1), Delivery(body, -1, 0)
    in_log.evict_to_log()
    elsewhere.evict_to_log()
    assert in_log.message is None
    assert elsewhere.message is body
