"""The check itself, on traces made by hand: it must see a promise that left too early."""

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V311
from penstock.protocol.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.support.sync_check import (
    WAL_BLOCK_BYTES,
    WAL_FIRST,
    WAL_HEADER_BYTES,
    WAL_LAST,
    WAL_WHOLE,
    Verdict,
    check,
)
from tests.support.system_calls import read_calls

LOG = "/data/store/000004.log"
OTHER_LOG = "/data/store/000009.log"
CLIENT = "TCP:[127.0.0.1:1883->127.0.0.1:50000]"
PUBLISH = Publish("t", b"marker-1", 1, packet_id=1)
PUBLISH_2 = Publish("t", b"marker-2", 2, packet_id=2)


def hexadecimal(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def got(packet: Packet) -> str:
    data = encode(packet, V311)
    return f'1 read(7<{CLIENT}>, "{hexadecimal(data)}", 65536) = {len(data)}'


def sent(packet: Packet) -> str:
    data = encode(packet, V311)
    return f'1 write(7<{CLIENT}>, "{hexadecimal(data)}", {len(data)}) = {len(data)}'


def framed(payload: bytes, kind: int = WAL_WHOLE) -> bytes:
    return bytes(4) + len(payload).to_bytes(2, "little") + bytes((kind,)) + payload


def logged(data: bytes, path: str = LOG) -> str:
    return f'2 write(9<{path}>, "{hexadecimal(data)}", {len(data)}) = {len(data)}'


def synced(path: str = LOG) -> str:
    return f"2 fdatasync(9<{path}>) = 0"


CONNECTED = got(Connect("c", V311))
RECORD = framed(b"...marker-1...")


def judged(*lines: str) -> Verdict:
    return check(read_calls([CONNECTED, *lines]))


def faults(*lines: str) -> list[str]:
    return [violation.because for violation in judged(*lines).violations]


def test_written_synced_acknowledged_is_right() -> None:
    verdict = judged(got(PUBLISH), logged(RECORD), synced(), sent(Puback(1)))
    assert verdict.violations == []
    assert verdict.checked == {"Puback": 1}


def test_acknowledged_before_anything() -> None:
    assert faults(got(PUBLISH), sent(Puback(1)), logged(RECORD), synced()) == [
        "its message was not written"
    ]


def test_acknowledged_between_write_and_sync() -> None:
    assert faults(got(PUBLISH), logged(RECORD), sent(Puback(1)), synced()) == [
        "its message was written, not synced"
    ]


def test_never_synced() -> None:
    assert len(faults(got(PUBLISH), logged(RECORD), sent(Puback(1)))) == 1


def test_another_file_was_synced() -> None:
    assert len(faults(got(PUBLISH), logged(RECORD), synced(OTHER_LOG), sent(Puback(1)))) == 1


def test_the_sync_was_before_the_write() -> None:
    assert len(faults(got(PUBLISH), synced(), logged(RECORD), sent(Puback(1)))) == 1


def test_the_sync_began_before_the_write_had_ended() -> None:
    lines = [
        got(PUBLISH),
        f"3 fdatasync(9<{LOG}> <unfinished ...>",
        logged(RECORD),
        "3 <... fdatasync resumed>) = 0",
        sent(Puback(1)),
    ]
    assert len(faults(*lines)) == 1


def test_the_sync_has_not_ended() -> None:
    started = f"2 fdatasync(9<{LOG}> <unfinished ...>"
    ended = "2 <... fdatasync resumed>) = 0"
    assert len(faults(got(PUBLISH), logged(RECORD), started, sent(Puback(1)), ended)) == 1
    assert faults(got(PUBLISH), logged(RECORD), started, ended, sent(Puback(1))) == []


def test_the_sync_failed() -> None:
    failed = f"2 fdatasync(9<{LOG}>) = -1 EIO (Input/output error)"
    assert len(faults(got(PUBLISH), logged(RECORD), failed, sent(Puback(1)))) == 1


def test_another_message_was_synced() -> None:
    other = framed(b"...marker-7...")
    assert len(faults(got(PUBLISH), logged(other), synced(), sent(Puback(1)))) == 1


def test_only_the_first_of_two_acknowledgements_in_one_write_is_right() -> None:
    both = encode(Puback(1), V311) + encode(Pubrec(2), V311)
    together = f'1 writev(7<{CLIENT}>, [{{iov_base="{hexadecimal(both)}", iov_len=8}}], 1) = 8'
    verdict = judged(got(PUBLISH), got(PUBLISH_2), logged(RECORD), synced(), together)
    assert verdict.checked == {"Puback": 1, "Pubrec": 1}
    assert [violation.packet for violation in verdict.violations] == [repr(Pubrec(2))]


def test_pubcomp_needs_a_commit_of_its_own() -> None:
    message = framed(b"...marker-2...")
    begun = [got(PUBLISH_2), logged(message), synced(), sent(Pubrec(2)), got(Pubrel(2))]
    assert len(faults(*begun, sent(Pubcomp(2)))) == 1
    progress = framed(b"identifier 2 is free")
    assert len(faults(*begun, logged(progress), sent(Pubcomp(2)), synced())) == 1
    assert faults(*begun, logged(progress), synced(), sent(Pubcomp(2))) == []


def test_deliveries_are_promises_too() -> None:
    delivery = Publish("t", b"marker-1", 1, packet_id=9)
    assert len(faults(logged(RECORD), sent(delivery))) == 1
    assert faults(logged(RECORD), synced(), sent(delivery)) == []
    assert judged(sent(Publish("t", b"marker-1"))).checked == {}


def test_a_message_across_the_blocks_of_the_log_is_found() -> None:
    first = framed(bytes(WAL_BLOCK_BYTES - 2 * WAL_HEADER_BYTES - 4))
    log = first + framed(b"mark", WAL_FIRST) + framed(b"er-1", WAL_LAST)
    assert log.index(b"mark") < WAL_BLOCK_BYTES <= log.index(b"er-1")
    cut = WAL_BLOCK_BYTES + 3
    half = [got(PUBLISH), logged(log[:cut]), synced()]
    assert len(faults(*half, sent(Puback(1)))) == 1
    assert faults(*half, logged(log[cut:]), synced(), sent(Puback(1))) == []
