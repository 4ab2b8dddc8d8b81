"""Payloads of well-known devices and programs become the rows one expects."""

from __future__ import annotations

import pytest

from tests.unit.decoding.decode import decode
from tests.unit.decoding.real_payloads import SAMPLES, Sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_payload_becomes_its_rows(sample: Sample) -> None:
    found = decode(sample.payload, sample.payload, **sample.decoder)
    assert found.broken == {}
    assert found.rows == sample.rows * 2
    assert found.sources == [0] * len(sample.rows) + [1] * len(sample.rows)
