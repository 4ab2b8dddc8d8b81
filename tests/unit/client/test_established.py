"""What an outbox knows of the server's half of its session: as long as it is kept."""

from __future__ import annotations

from pathlib import Path

from penstock import Client


async def test_each_start_knows_that_the_server_may_have_the_session(tmp_path: Path) -> None:
    """Otherwise the third start would take it for that of a former program, and release what it has
    sent."""
    cleans_up: list[bool] = []
    for _ in range(4):
        async with Client("mqtt://127.0.0.1:1", client_id="meter", outbox=tmp_path) as client:
            assert client._engine is not None
            assert client._engine.dialler.is_known
            cleans_up.append(client._engine.dialler.cleanup_connections_left > 0)
            if cleans_up[-1]:
                client._engine.dialler.establish()  # as it does once it is connected
    assert cleans_up == [True, False, False, False]
