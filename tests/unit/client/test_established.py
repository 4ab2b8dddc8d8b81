"""What an outbox knows of the server's half of its session: as long as it is kept."""

from __future__ import annotations

from pathlib import Path

from penstock import Client


async def test_each_start_knows_that_the_server_may_have_the_session(tmp_path: Path) -> None:
    """Otherwise the third start would replace it, and send again what the server has."""
    known: list[bool] = []
    for _ in range(4):
        async with Client("mqtt://127.0.0.1:1", client_id="meter", outbox=tmp_path) as client:
            assert client._core is not None
            known.append(client._core.dialler.is_known)
            if not known[-1]:
                client._core.dialler.establish()  # as it does once it is connected
    assert known == [False, True, True, True]
