"""What the server tells MQTT 5 clients fits into a string of the protocol."""

import pytest

from penstock.engine.values.options import ServerOptions


@pytest.mark.parametrize(
    ("client_id", "told"),
    [
        ("c", "a/c/c/"),
        ("x" * 32_765, f"a/{'x' * 32_765}/{'x' * 32_765}/"),  # 65,534 bytes
        ("x" * 32_767, None),
        ("ü" * 20_000, None),  # 80,004 bytes
        ("a+", None),
    ],
)
def test_response_information_that_is_too_long_is_none(client_id: str, told: str | None) -> None:
    """MQTT 5 §1.5.4: 65,535 bytes; a client chooses its identifier, and how long that is."""
    options = ServerOptions(response_information="a/%c/%c/")
    assert options.response_information_for(client_id, "") == told
