"""``Client.drain`` where nothing will ever be acknowledged."""

import asyncio
import socket
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.errors import StoreUnavailable


async def test_draining_ends_with_the_outbox(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{nobody.getsockname()[1]}"
        async with Client(url, outbox=tmp_path / "box") as client:
            publication = await client.send("a", b"kept")
            draining = asyncio.create_task(client.drain())
            await asyncio.sleep(0)
            assert client._engine is not None
            client._engine._on_store_failed(StoreUnavailable("disk gone"))
            with pytest.raises(StoreUnavailable, match="disk gone"):
                async with asyncio.timeout(10):
                    await draining
            assert publication.is_done
