"""The client is told when its messages are in a table."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.control.landed_requests import ReportProgress
from penstock.errors import ClientError, NotConnected, RequestFailed
from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("receipts"), stream=True) as running:
        yield running


def land(broker: Broker, table: str) -> None:
    """As a job tells what its table has: all of the log."""
    host, port = broker.stream_address
    with StreamClient(f"{host}:{port}") as stream:
        log = stream.offsets("messages")
        told = -1
        while told < log.latest:
            told = stream.report_progress(
                ReportProgress(table, "messages", (), log.epoch, 0, log.latest)
            )


def url(broker: Broker) -> str:
    return f"mqtt://{broker.host}:{broker.port}"


async def test_a_receipt_comes_when_the_table_has_the_message(broker: Broker) -> None:
    async with penstock.Client(url(broker), client_id="meter") as client:
        named, any_table, other = (penstock.Receipt(name) for name in ("readings", "*", "other"))
        asking = penstock.Properties(content_type="text/plain", user_properties=[("colour", "red")])
        await client.publish("plant/1", b"0", qos=1, properties=asking, receipt=named)
        await client.publish("plant/1", b"1", qos=2, receipt=any_table)
        await client.publish("plant/1", b"2", qos=0, receipt=other)
        with pytest.raises(ClientError, match="a receipt is for one message"):
            await client.publish("plant/1", b"3", receipt=named)
        assert not named.is_done, "an acknowledgement is no receipt"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await named
        await asyncio.to_thread(land, broker, "readings")
        async with asyncio.timeout(DEADLINE_S):
            landed, second = await asyncio.gather(named, any_table)
        assert (landed.table, second.table) == ("readings", "readings")
        assert landed.epoch == second.epoch
        assert second.offset > landed.offset
        assert landed.at.tzinfo is not None
        assert (await named) == landed
        assert not other.is_done
    with pytest.raises(NotConnected):
        await other


async def test_a_receipt_comes_through_a_crash_of_the_broker(tmp_path: Path) -> None:
    with running_broker(tmp_path, stream=True) as broker:
        async with penstock.Client(url(broker), client_id="meter") as client:
            receipt = penstock.Receipt("readings")
            await client.publish("plant/1", b"0", qos=1, receipt=receipt)
            await asyncio.to_thread(broker.restart)
            await asyncio.to_thread(land, broker, "readings")
            async with asyncio.timeout(DEADLINE_S):
                assert (await receipt).table == "readings"


async def test_a_receipt_that_cannot_be_told_is_one_sentence(broker: Broker) -> None:
    with pytest.raises(ClientError, match=r"passed to publish\(…, receipt=…\)"):
        await penstock.Receipt("readings")
    async with penstock.Client(url(broker), version="3.1.1") as client:
        with pytest.raises(RequestFailed, match="receipts need MQTT 5"):
            await client.publish("plant/1", receipt=penstock.Receipt())


def test_a_script_waits_for_a_receipt(broker: Broker) -> None:
    with penstock.BlockingClient(url(broker)) as client:
        receipt = penstock.Receipt("readings")
        client.publish("plant/1", b"0", qos=1, receipt=receipt)
        with pytest.raises(TimeoutError):
            client.wait_landed(receipt, timeout_s=0.01)
        land(broker, "readings")
        assert client.wait_landed(receipt, timeout_s=DEADLINE_S).table == "readings"
