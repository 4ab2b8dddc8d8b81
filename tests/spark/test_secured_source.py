"""A query over a stream service with TLS and a token, which it tells nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.table import app
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.settings import LandingSettings
from penstock.stream.credentials import Credentials
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.spark.waiting import run_available
from tests.support.dial import Authority

TOKEN = "a-token-that-nobody-may-see-0123456789"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def secured(log: LogWriter, authority: Authority, token_file: Path) -> Iterator[ServiceProcess]:
    log.append(50)
    certificate, key = authority.issue("server", "127.0.0.1")
    files = ["--certificate", certificate, "--key", key, "--token-file", str(token_file)]
    process = ServiceProcess(log.data_dir, *files)
    process.start()
    yield process
    process.stop()


def test_driver_and_tasks_read_with_token_and_tls(
    spark: SparkSession, secured: ServiceProcess, authority: Authority, token_file: Path
) -> None:
    reader = spark.read.format("penstock").option("server", f"grpc+tls://{secured.address}")
    reader = reader.option("tlsCaFile", authority.file)
    assert reader.option("tokenFile", str(token_file)).load().count() == 50
    for options, sentence in (
        ({"tokenFile": "/absent"}, "The token file /absent cannot be read"),
        ({}, "the stream service asks for a token"),
    ):
        wrong = spark.read.format("penstock").option("server", secured.address)
        wrong = wrong.option("tlsCaFile", authority.file).options(**options)
        with pytest.raises(PySparkException, match=sentence):
            wrong.load().count()


def test_a_token_is_in_no_plan_progress_or_message(
    spark: SparkSession, secured: ServiceProcess, authority: Authority, tmp_path: Path
) -> None:
    options = {"server": secured.address, "tlsCaFile": authority.file, "token": TOKEN}
    frame = spark.read.format("penstock").options(**options).load()
    assert frame.count() == 50
    assert TOKEN not in frame._jdf.queryExecution().toString()
    query = run_available(
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    assert query.lastProgress is not None
    assert query.lastProgress.numInputRows == 50
    told = "".join(progress.json for progress in query.recentProgress)
    assert TOKEN not in f"{told}{query._jsq}"
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("checkpoint/*/*"))
    assert TOKEN.encode() not in kept
    wrong = TOKEN.replace("0", "1")
    with pytest.raises(PySparkException, match="does not know the token") as caught:
        spark.read.format("penstock").options(**{**options, "token": wrong}).load().count()
    assert wrong not in str(caught.value)


@pytest.mark.torture("test_secured_tables lands over TLS, too")
def test_a_job_lands_messages_of_a_secured_service(
    spark: SparkSession,
    secured: ServiceProcess,
    authority: Authority,
    token_file: Path,
    tmp_path: Path,
) -> None:
    settings = LandingSettings(
        tmp_path / "readings",
        server=secured.address,
        available_now=True,
        starting_timestamp="2023-11-14T22:13:40Z",
        credentials=Credentials(True, authority.file, token_file=str(token_file)),
    )
    landing = Landing(settings, open_spark=lambda *_: nullcontext(spark.newSession()))
    assert landing.run().rows_landed == 30

    files = ["--tls-ca-file", authority.file, "--token-file", str(token_file)]
    for options, lag in ((files, "0 of 50 offsets"), (files[:2], "asks for a token")):
        shown = CliRunner().invoke(
            app, ["status", str(settings.table), "--server", secured.address, *options]
        )
        assert shown.exit_code == 0
        assert lag in shown.output
