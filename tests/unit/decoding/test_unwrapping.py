"""What is around the contents of payloads: a compression, an encoding, zero bytes at the end."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.config.decoder import DecoderDefinition
from penstock.decoding import framed
from penstock.decoding.decoder import TooMuchAtOnce, in_parts
from penstock.decoding.factory import Messages, make_decoder
from tests.unit.decoding.decode import decode
from tests.unit.decoding.inference.inferring import of_payloads


def zstd(payload: bytes) -> bytes:
    return bytes(pa.compress(payload, codec="zstd", asbytes=True))


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "zstd": zstd,
}
BOTH = pytest.mark.parametrize("compression", COMPRESSIONS)


@BOTH
@pytest.mark.parametrize(
    ("kind", "contents"),
    [("json", b'{"v": 1}'), ("cbor", cbor2.dumps({"v": 1})), ("csv", b"1"), ("text", b"1")],
)
def test_a_compressed_payload_is_expanded_before_any_decoder(
    compression: str, kind: str, contents: bytes
) -> None:
    compress = COMPRESSIONS[compression]
    found = decode(compress(contents), kind=kind, compression=compression, columns={"v": "int"})
    assert found.rows == [{"v": 1}]


@BOTH
def test_a_bomb_is_a_dead_letter_that_says_so(compression: str) -> None:
    bomb = COMPRESSIONS[compression](bytes(50_000_000))
    found = decode(bomb, kind="raw", compression=compression, expanded_bytes_max=1000)
    assert found.rows == []
    assert found.broken == {
        0: "The payload expands to more than expanded_bytes_max allows (1000 bytes)."
    }


@BOTH
def test_a_cut_or_uncompressed_payload_is_broken_and_an_empty_one_no_row(
    compression: str,
) -> None:
    whole = COMPRESSIONS[compression](b'{"v": 1}' * 100)
    found = decode(
        whole[:-9], b'{"v": 1}', b"", kind="json", compression=compression, columns={"v": "int"}
    )
    assert sorted(found.broken) == [0, 1]
    assert compression in found.broken[1]


def test_bytes_behind_the_compressed_ones_are_broken() -> None:
    found = decode(zlib.compress(b"1") + b"x", kind="raw", compression="zlib")
    assert found.broken == {0: "The payload has bytes behind its zlib."}
    found = decode(gzip.compress(b"1") + b"x", kind="raw", compression="gzip")
    assert found.broken == {0: "The payload is not gzip."}


def test_a_gzip_of_several_members_is_their_contents_one_behind_the_other() -> None:
    """RFC 1952 §2.2: so are files of gzip that were appended to each other."""
    members = gzip.compress(b'{"a": ') + gzip.compress(b"1}") + bytes(3)
    found = decode(members, kind="json", compression="gzip", columns={"a": "int"})
    assert found.rows == [{"a": 1}]


@BOTH
def test_a_compression_is_proposed(compression: str) -> None:
    compress = COMPRESSIONS[compression]
    landed = of_payloads(*(compress(b'{"v": %d}' % number) for number in range(5)))
    assert landed.tried.table.decoder.settings == {"kind": "json", "compression": compression}
    assert [row["v"] for row in landed.rows] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("wrap", "settings"),
    [
        (lambda text: text.encode("utf-16"), {"encoding": "utf-16"}),
        (lambda text: text.encode("utf-16-le"), {"encoding": "utf-16-le"}),
        (lambda text: text.encode("latin-1"), {"encoding": "latin-1"}),
        (lambda text: text.encode() + b"\0", {"strip_nul": True}),
    ],
)
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_other_encodings_and_zero_bytes_at_the_end_are_read_and_proposed(
    wrap: Any, settings: dict[str, Any], kind: str
) -> None:
    texts = {
        "json": [f'{{"place": "Küche", "celsius": {number}.5}}' for number in range(5)],
        "csv": [f"Küche;{number}.5" for number in range(5)],
    }[kind]
    landed = of_payloads(*map(wrap, texts))
    assert {**landed.tried.table.decoder.settings} == {
        "kind": kind,
        **({"delimiter": ";"} if kind == "csv" else {}),
        **settings,
    }
    place, celsius = landed.columns
    assert [(row[place], row[celsius]) for row in landed.rows] == [
        ("Küche", number + 0.5) for number in range(5)
    ]


def test_zero_bytes_are_not_cut_from_an_encoding_that_has_them() -> None:
    with pytest.raises(ValidationError, match="strip_nul"):
        decode(b"", kind="json", encoding="utf-16", strip_nul=True)


def test_an_encoding_that_does_not_fit_is_broken() -> None:
    found = decode(b"\xff\xfe\x00", kind="json", encoding="utf-16", columns={"v": "int"})
    assert found.broken == {0: "The payload is not utf-16 at byte 2."}


def test_with_auto_each_payload_is_taken_as_it_begins() -> None:
    contents = b'{"v": 1}'
    payloads = [contents, *(compress(contents) for compress in COMPRESSIONS.values())]
    found = decode(*payloads, kind="json", compression="auto", columns={"v": "int"})
    assert found.rows == [{"v": 1}] * 4
    texts = decode(b"x^2", b"x\x01", kind="text", compression="auto")
    assert [row["value"] for row in texts.rows] == ["x^2", "x\x01"]
    cut = decode(
        gzip.compress(contents)[:-3], kind="json", compression="auto", columns={"v": "int"}
    )
    assert cut.broken == {0: "The payload ends before its gzip does."}


def test_of_bare_and_compressed_payloads_what_fits_both_is_proposed() -> None:
    """They were kept as bytes."""
    payloads = [b'{"v": %d, "on": true}' % n for n in range(20)]
    mixed = [gzip.compress(one) if n % 2 else one for n, one in enumerate(payloads)]
    landed = of_payloads(*mixed)
    assert landed.tried.table.decoder.settings == {"kind": "json", "compression": "auto"}
    assert [row["v"] for row in landed.rows] == list(range(20))
    several = [*mixed[:10], *(zlib.compress(one + b"\0") for one in payloads[10:])]
    settings = of_payloads(*several).tried.table.decoder.settings
    assert settings == {"kind": "json", "compression": "auto", "strip_nul": True}


def test_a_batch_that_expands_to_too_much_is_decoded_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of its rows were in memory together: gigabytes of some kilobytes."""
    monkeypatch.setattr(framed, "EXPANDED_BYTES_MAX", 1000)
    monkeypatch.setattr(framed, "_PORTION_BYTES", 100)
    decoder = make_decoder(DecoderDefinition.model_validate({"kind": "raw", "compression": "gzip"}))
    contents = [bytes([n]) * 400 for n in range(7)]
    batch = pa.table({"payload": pa.array([gzip.compress(one) for one in contents], pa.binary())})

    def decode_part(part: pa.Table) -> list[bytes]:
        payloads = part.column("payload").combine_chunks()
        nothing = pa.nulls(len(payloads))
        messages = Messages(payloads, nothing.cast(pa.string()), nothing.cast(pa.int64()))
        return [row["value"] for row in decoder.decode(messages).rows.to_pylist()]

    with pytest.raises(TooMuchAtOnce):
        decode_part(batch)
    parts = list(in_parts(decode_part, batch))
    assert [one for part in parts for one in part] == contents
    assert max(map(len, parts)) == 2
