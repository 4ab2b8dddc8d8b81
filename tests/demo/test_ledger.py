"""What a device notes, and what it is told, survive being written and read."""

from __future__ import annotations

from pathlib import Path

from examples.temperatures.fleet import Order, fleet
from examples.temperatures.ledger import Ledger
from examples.temperatures.readings import CITIES, HOURS, readings_of


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    ledger = Ledger(qos=1)
    for number in range(4):
        ledger.sent(1000.25 + number)
    ledger.acknowledged(2, 1004.5, 0)
    ledger.acknowledged(0, 1005.5, 0x10)
    ledger.acknowledged(3, 1006.5, 0x97)
    ledger.write(tmp_path / "one.csv")
    again = Ledger.read(tmp_path / "one.csv", qos=1)
    assert again == ledger
    assert again.acknowledged_sequences() == {0, 2}
    assert again.refused_sequences() == {3}
    assert again.acknowledged_by(1005.5) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["one.csv"]


def test_an_order_is_read_as_it_was_given(tmp_path: Path) -> None:
    device = fleet(2, 10)[1]
    order = Order(device, (("127.0.0.1", 1883),), 30, tmp_path / "r", tmp_path / "l", 10, 2.5, 30.0)
    assert Order.from_json(order.to_json()) == order


def test_eight_devices_are_every_combination_of_qos_version_and_city() -> None:
    devices = fleet(8, 100)
    combinations = {(device.qos, device.version, device.city) for device in devices}
    assert len(combinations) == 8
    assert len({device.name for device in devices}) == 8


def test_the_readings_are_real_and_no_two_payloads_of_a_device_are_equal() -> None:
    for city in CITIES:
        readings = readings_of(city)
        assert len(readings) == HOURS
        assert readings[0].observed_at == "2010-01-01T00:00:00"
        assert all(20 < reading.temperature_f < 100 for reading in readings)
    device = fleet(1, 0)[0]
    payloads = {device.payload(number, readings) for number in range(HOURS + 10)}
    assert len(payloads) == HOURS + 10  # the year repeats, the sequence number does not
