"""What a user may say to `format("penstock")`."""

from __future__ import annotations

import pickle

import pytest

from penstock.errors import ConfigError
from penstock.spark.options import parse_options
from penstock.spark.range_limits import AtTime, SpecificOffset, parse_time
from penstock.stream.credentials import Credentials

TOKEN = "0123456789abcdef"
TWO = {"servers": "one:1,two:2"}
NOON_US = 1_763_726_400_000_000  # 2025-11-21T12:00:00Z


def test_everything_has_a_default() -> None:
    found = parse_options({})
    assert found.servers == {"": "127.0.0.1:8815"}
    assert (found.stream, found.topics) == ("messages", ())
    assert (found.starting_limits, found.ending_limits) == ({"": "earliest"}, {"": "latest"})
    assert found.partitions_min >= 1
    assert (found.offsets_per_trigger_max, found.partition_offsets_max) == (None, None)
    assert found.checkpoint is None
    assert found.fail_on_data_loss
    assert found.include_properties
    assert found.credentials == Credentials()
    assert (found.group, found.group_lease_s) == (None, 3600)


def test_the_case_of_names_does_not_matter() -> None:
    options = {
        "SERVER": "grpc://broker:8815/",
        "topics": "a/#, b/+",
        "startingoffsets": "Latest",
        "endingOffsets": '{"0": 7}',
        "MAXOFFSETSPERTRIGGER": "100",
        "maxRecordsPerPartition": "10",
        "failOnDataLoss": "False",
        "includeproperties": "FALSE",
        "connectTimeoutSeconds": "0.5",
    }
    found = parse_options(options)
    assert (found.servers, found.topics) == ({"": "broker:8815"}, ("a/#", "b/+"))
    assert (found.starting_limits, found.ending_limits) == ({"": "latest"}, {"": SpecificOffset(7)})
    assert (found.offsets_per_trigger_max, found.partition_offsets_max) == (100, 10)
    assert not found.fail_on_data_loss
    assert not found.include_properties
    assert found.connect_timeout_s == 0.5


def test_the_machines_of_a_cluster_are_one_server() -> None:
    found = parse_options({"server": "grpc+tls://one:1, grpc+tls://two:2"})
    assert found.servers == {"": "one:1,two:2"}
    assert found.credentials.tls


def test_several_brokers_each_have_their_position() -> None:
    wanted = '{"two:2": {"0": -1}, "one:1": {"0": 5, "epoch": "e"}}'
    found = parse_options({**TWO, "startingOffsets": wanted})
    assert found.servers == {"one:1": "one:1", "two:2": "two:2"}
    assert found.starting_limits == {"one:1": SpecificOffset(5, "e"), "two:2": "latest"}
    assert parse_options(TWO).ending_limits == {"one:1": "latest", "two:2": "latest"}


def test_a_position_of_a_query_can_be_given_as_it_is() -> None:
    told = '{"0": 7, "epoch": "e", "selection": "stream messages, all topics", "starts": 2}'
    assert parse_options({"startingOffsets": told}).starting_limits == {"": SpecificOffset(7, "e")}


def test_minus_two_is_earliest_and_minus_one_latest_as_for_kafka() -> None:
    assert parse_options({"startingOffsets": '{"0": -2}'}).starting_limits == {"": "earliest"}
    assert parse_options({"endingOffsets": '{"0": -1}'}).ending_limits == {"": "latest"}


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("0", 0),
        ("1763726400000", NOON_US),
        (" 1763726400001 ", NOON_US + 1000),
        ("2025-11-21T12:00:00Z", NOON_US),
        ("2025-11-21T13:00:00.000001+01:00", NOON_US + 1),
        ("2025-11-21 12:00Z", NOON_US),
    ],
)
def test_a_time_is_in_ms_or_names_its_zone(text: str, time_us: int) -> None:
    assert parse_time("startingTimestamp", text) == time_us


def test_times_mean_the_same_for_every_broker() -> None:
    found = parse_options(
        {
            **TWO,
            "startingTimestamp": "1763726400000",
            "startingOffsetsByTimestampStrategy": "Latest",
            "endingTimestamp": "1763726401000",
        }
    )
    assert set(found.starting_limits.values()) == {
        AtTime("startingTimestamp", NOON_US, or_latest=True)
    }
    assert set(found.ending_limits.values()) == {
        AtTime("endingTimestamp", NOON_US + 1_000_000, or_latest=True)
    }
    error = parse_options({"startingTimestamp": "1763726400000"}).starting_limits[""]
    assert isinstance(error, AtTime)
    assert not error.or_latest


def test_an_option_that_spark_adds_to_those_of_a_table_is_no_mistake() -> None:
    added = {"provider": "penstock", "owner": "root", "location": "file:/w/t", "a": "b"}
    assert parse_options(added) == parse_options({})


@pytest.mark.parametrize("given", [{"server": "b:1", "option.server": "b:1"}, {"Stream": "s"}])
def test_options_of_a_table_which_would_be_lost_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="use CREATE TEMPORARY VIEW instead of CREATE TABLE"):
        parse_options({"provider": "penstock", "owner": "root", **given})


def test_tls_is_said_by_an_option_an_authority_or_the_address() -> None:
    for options in ({"tls": "true"}, {"server": "grpc+tls://broker:1"}, {"tlsCaFile": "ca.pem"}):
        assert parse_options(options).credentials.tls
    assert not parse_options({"tls": "false"}).credentials.tls


def test_a_token_is_in_no_representation() -> None:
    found = parse_options({"token": TOKEN})
    assert found.credentials.token == TOKEN
    assert TOKEN not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffset": "earliest"}, "has no option 'startingoffset'; did you mean startingOf"),
        ({"colour": "red"}, "has no option 'colour'; there is server, servers, stream, topics"),
        ({"server": "broker"}, "option server must be HOST:PORT"),
        ({"server": "http://broker:1"}, "with grpc:// or grpc+tls:// in front"),
        ({"server": "broker:0"}, "option server needs the port"),
        ({"server": "one:1,"}, "option server must be HOST:PORT"),
        ({"server": "one:1,grpc://one:1"}, "option server: 'one:1,one:1' names one:1 twice"),
        ({"server": "one:1,grpc+tls://two:2"}, "use TLS for all addresses or none"),
        ({"servers": ""}, "option servers must be HOST:PORT"),
        ({"servers": "one:1,"}, "option servers must be HOST:PORT"),
        ({"servers": "one:1, one:1"}, "option servers names one:1 twice"),
        ({"servers": "one:1,grpc+tls://two:2"}, "use TLS for all addresses or none"),
        ({"servers": ",".join(["one:1"] * 1001)}, "may name 1000 brokers, not 1001"),
        ({"server": "one:1", "servers": "two:2"}, "options server and servers say the same thing"),
        ({"topics": "a/#/b"}, "option topics: 'a/#/b' is not an MQTT topic filter"),
        ({"startingOffsets": "first"}, "option startingOffsets must be earliest, latest or a posi"),
        ({"startingOffsets": "{"}, 'option startingOffsets must be a position such as {"0": 1234'),
        ({"startingOffsets": '{"1": 5}'}, "option startingOffsets must be a position such as"),
        ({"endingOffsets": '{"0": -3}'}, "option endingOffsets must be a position such as"),
        ({"endingOffsets": '{"0": 1, "epoch": 2}'}, "option endingOffsets must be a position such"),
        ({"endingOffsets": "earliest"}, 'endingOffsets: "earliest" would leave nothing to read'),
        ({"endingOffsets": '{"0": -2}'}, 'endingOffsets: "earliest" would leave nothing to read'),
        ({**TWO, "startingOffsets": '{"0": 5}'}, 'position such as {"one:1": {"0": 1234,'),
        ({**TWO, "startingOffsets": '{"one:1": {"0": 5}}'}, "server of servers and no other: two"),
        (
            {**TWO, "endingOffsets": '{"one:1": {"0": 5}, "two:2": {"0": 5}, "x:3": {"0": 5}}'},
            "each server of servers and no other: x:3",
        ),
        (
            {"startingOffsets": "latest", "startingTimestamp": "0"},
            "options startingOffsets and startingTimestamp say the same thing: give one of them",
        ),
        (
            {"endingOffsets": "latest", "endingTimestamp": "0"},
            "options endingOffsets and endingTimestamp say the same thing: give one of them",
        ),
        ({"startingTimestamp": "noon"}, "must be in ms since 1970, or a time with its zone"),
        ({"startingTimestamp": "-5"}, "must be in ms since 1970, or a time with its zone"),
        ({"startingTimestamp": "2026-11-21T08:00:00"}, "a time with its zone such as 2026"),
        ({"startingTimestamp": "2026-11-21"}, "a time with its zone such as 2026-11-21T08:00:00Z"),
        ({"startingTimestamp": "1763726400"}, "before 1974; give ms and not s since 1970"),
        ({"endingTimestamp": "9" * 20}, "endingTimestamp must be from 1970 up to the year"),
        ({"endingTimestamp": "1969-01-01T00:00Z"}, "must be from 1970 up to the year 9999"),
        (
            {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "first"},
            "startingOffsetsByTimestampStrategy must be error or latest, not 'first'",
        ),
        (
            {"startingOffsetsByTimestampStrategy": "latest"},
            "says what startingTimestamp means and needs one",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "must be a whole number from 1 to"),
        ({"maxOffsetsPerTrigger": "many"}, "must be a whole number from 1 to"),
        ({"minPartitions": "1.5"}, "option minPartitions must be a whole number from 1 to 100000"),
        ({"maxRecordsPerPartition": "0"}, "must be a whole number from 1 to"),
        ({"connectTimeoutSeconds": "nan"}, "a number of seconds from 0 to 86400, not 'nan'"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss must be true or false, not 'maybe'"),
        ({"groupId": "a b"}, "option groupId: a group must be 1 to 64 letters, digits and . _ - "),
        ({"groupLeaseSeconds": "0"}, "option groupLeaseSeconds must be a number of seconds from 1"),
        ({"groupLeaseSeconds": "9"}, "option groupLeaseSeconds needs groupId, the group"),
        ({"includeProperties": "1"}, "option includeProperties must be true or false, not '1'"),
        ({"tls": "yes"}, "option tls must be true or false, not 'yes'"),
        ({"tls": "false", "tlsCaFile": "ca.pem"}, "for TLS, and option tls is false"),
        ({"tls": "true", "tlsCertFile": "c.pem"}, "tlsCertFile and tlsKeyFile, two PEM files, be"),
        ({"tlsCertFile": "c.pem", "tlsKeyFile": "c.key"}, "tlsCertFile is shown with TLS"),
        ({"token": "short"}, "option token must be 16 to 4096 letters, digits and . _ ~ + / -"),
        ({"token": TOKEN, "tokenFile": "f"}, "options token and tokenFile say the same thing"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for spark.readStream"),
        ({"groupId": "etl"}, "option groupId is for spark.readStream; spark.read reads once"),
        ({"batchAtStart": "true"}, "option batchAtStart is for spark.readStream; spark.read rea"),
        ({"startingOffsets": "latest"}, 'startingOffsets: "latest" is for spark.readStream'),
        ({"startingOffsets": '{"0": -1}'}, 'startingOffsets: "latest" is for spark.readStream'),
    ],
)
def test_an_option_that_means_nothing_to_a_batch_is_refused(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_options(options).check_batch()
    for memory in ({"checkpointLocation": "c"}, {"groupId": "etl"}):
        parse_options(options | memory).check_stream()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"endingOffsets": "latest"},
            "option endingOffsets is for spark.read; a stream has no end",
        ),
        ({"endingTimestamp": "0"}, "option endingTimestamp is for spark.read; a stream has no end"),
    ],
)
def test_an_option_that_means_nothing_to_a_stream_is_refused(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_options(options).check_stream()
    parse_options(options).check_batch()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets"),
        (
            {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"},
            "startingOffsetsByTimestampStrategy",
        ),
    ],
)
def test_a_start_that_moves_needs_a_place_to_be_remembered(
    options: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match=f'^{named} "latest" must mean the same after a restart'):
        parse_options(options).check_stream()
    parse_options(options | {"checkpointLocation": "c"}).check_stream()
