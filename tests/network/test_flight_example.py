"""The example for any Flight client, as docs/log_commands.md has it, and who may run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.flight as flight
import pytest

from penstock.stream.client import StreamClient
from penstock.stream.credentials import Credentials
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker

PAGE = Path(__file__).parents[2] / "docs" / "log_commands.md"


def served(broker: Broker, messages: int, token: str = "") -> str:
    """Wait until the stream service has so many messages; its address."""
    address = ":".join(map(str, broker.stream_address))
    with StreamClient(address, DEADLINE_S, Credentials(token=token)) as client:
        wait_for("the messages", lambda: client.offsets("messages").latest == messages)
    return address


def test_the_example_reads_the_log_of_a_broker(tmp_path: Path, clients: Clients) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    with running_broker(tmp_path, stream=True) as broker:
        publisher = clients.join(broker, "publisher")
        for topic in ("plant/1", "elsewhere", "plant/2"):
            publisher.publish(topic, b"1", qos=1)
        program = found[1].replace("127.0.0.1:8815", served(broker, 3))
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
        )
        assert ended.stderr == ""
        assert ended.stdout == "2 plant/1\n"


def test_a_flight_of_times_needs_the_role_read_as_its_rows_do(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("publisher:a-token-of-a-publisher-0123456789 publish\n")
    with running_broker(tmp_path, {"stream.token_file": tokens}, stream=True) as broker:
        token = "a-token-of-a-publisher-0123456789"
        address = served(broker, 0, token)
        headers = [(b"authorization", f"Bearer {token}".encode())]
        options = flight.FlightCallOptions(headers=headers)
        with flight.FlightClient(f"grpc://{address}") as client:
            whole = flight.FlightDescriptor.for_path("messages")
            info = client.get_flight_info(whole, options)
            times = flight.FlightDescriptor.for_command(b'{"stream": "messages", "since": 0}')
            with pytest.raises(flight.FlightServerError, match="not_allowed"):
                client.get_flight_info(times, options)
            with pytest.raises(flight.FlightServerError, match="not_allowed"):
                client.do_get(info.endpoints[0].ticket, options).read_all()
