"""The processes beside a broker: stream service, admin process, OpenTelemetry process.

They are prepared (their ports are reserved), started and stopped together. In a cluster they run on
when the role of this machine changes: they use the control socket, which has the same path in both
roles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import final

import msgspec

from penstock.app.composing import check_admin, check_opentelemetry, check_stream_files, has_streams
from penstock.app.reloading import Arguments
from penstock.auth.tokens import read_tokens
from penstock.config.settings import Settings
from penstock.control.metric_families import MetricSample
from penstock.control.metric_requests import Health
from penstock.services import admin_process, otlp_process, stream_process
from penstock.services.child_process import ChildProcess, reserve_port
from penstock.services.own_secrets import stream_token_file
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


@final
class Children:
    """The processes beside one broker.

    Attributes:
        settings: the settings in use; a reload replaces them.
        stream: the stream service; None if it is switched off.
        admin: the admin process; None if it is switched off.
        otlp: the OpenTelemetry process; None if it is switched off.
        urls: the addresses of the processes for the line with ``ready``, each after a space.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stream: ChildProcess | None = None
        self.admin: ChildProcess | None = None
        self.otlp: ChildProcess | None = None
        self._damages: Sized = ()
        self.urls = ""
        self._running: set[str] = set()

    def processes(self) -> list[ChildProcess]:
        """Return the child processes that the settings ask for."""
        children = (self.stream, self.admin, self.otlp)
        return [child for child in children if child is not None]

    def samples(self) -> Iterable[MetricSample]:
        """Yield the samples for a scrape."""
        if self.stream is not None:
            yield "log_damaged_blocks", (), len(self._damages)
        for child in self.processes():
            yield "child_restarts", (child.name,), child.restarts
            yield "child_hangs", (child.name,), child.hangs
            yield "child_silent_seconds", (child.name,), child.silent_s

    def complete(self, health: Health) -> Health:
        """Return ``health`` with what is to be said about the stream service."""
        if self.stream is None:
            return health
        return msgspec.structs.replace(
            health, stream_failure=self.stream.hang, stream=self._stream_url(self.stream.address)
        )

    def _stream_url(self, address: object) -> str:
        return f"{'grpc+tls' if self.settings.stream.certificate else 'grpc'}://{address}"

    async def prepare(self) -> None:
        """Reserve the ports of the child processes and check their requirements, so that a mistake
        ends the start.

        Raises:
            ConfigError: a port is taken, a file cannot be read, packages are missing.
        """
        if has_streams(self.settings):
            await self._prepare_stream()
        await self._prepare_admin()
        settings = self.settings
        if settings.opentelemetry.endpoint:
            check_opentelemetry(settings.opentelemetry)
            self.otlp = otlp_process.otlp_process(
                settings.durability.data_dir, self.otlp_arguments()
            )

    async def set_stream_paused(self, is_paused: bool) -> None:
        """End the stream service and wait for it, before its store is replaced; or start it again.

        Do nothing if there is no stream service, or it was not started.

        Args:
            is_paused: True to end the service, False to start it.
        """
        if self.stream is not None and self.stream.name in self._running:
            await self.stream.set_paused(is_paused)

    async def _prepare_stream(self) -> None:
        settings = self.settings
        stream = settings.stream
        check_stream_files(stream)
        for file in self._seed_token_arguments()[1:]:
            read_tokens(Path(file))  # so that a mistake ends the start
        bind = stream.bind
        port = await reserve_port(stream_process.NAME, stream_process.OPTION, bind.host, bind.port)
        self.stream, self._damages = stream_process.stream_process(
            settings.durability.data_dir, port, self._streams_json(), self.stream_arguments()
        )
        self.urls += f" stream {self._stream_url(port)}"
        if not (bind.is_loopback or stream.certificate):
            logger.warning(
                "stream.bind is %s, and messages and tokens travel there in the clear:"
                " give stream.certificate and stream.key",
                bind,
            )

    async def _prepare_admin(self) -> None:
        settings = self.settings.admin
        bind = settings.bind
        if not bind:
            return
        check_admin(settings)
        port = await reserve_port(admin_process.NAME, admin_process.OPTION, bind.host, bind.port)
        self.admin = admin_process.admin_process(
            self.settings.durability.data_dir, port, self.admin_arguments()
        )
        self.urls += f" admin {'https' if settings.certificate else 'http'}://{port}"
        if not (bind.is_loopback or settings.certificate):
            logger.warning(
                "admin.bind is %s, and metrics, tokens and passwords travel there in the clear:"
                " give admin.certificate and admin.key",
                bind,
            )

    def start_stream(self) -> None:
        """Start the stream service if there is one and it does not run."""
        self._start(self.stream)

    def start_admin(self) -> None:
        """Start the admin process if there is one and it does not run; the control socket must be
        open."""
        self._start(self.admin)

    def start_otlp(self) -> None:
        """Start the OpenTelemetry process if there is one and it does not run; the control socket
        must be open."""
        self._start(self.otlp)

    def apply_settings(self, settings: Settings) -> None:
        """Use other settings; restart each running process whose arguments have changed, or which
        reads files."""
        makers = (self.stream_arguments, self.admin_arguments, self.otlp_arguments)
        before = [arguments() for arguments in makers]
        self.settings = settings
        children = (self.stream, self.admin, self.otlp)
        files = (
            settings.stream.file_options,
            settings.admin.file_options,
            settings.opentelemetry.file_options,
        )
        for child, arguments, former, names in zip(children, makers, before, files, strict=True):
            if child is not None and (arguments() != former or names):
                child.restart(arguments())

    async def stop_otlp(self) -> None:
        """End the OpenTelemetry process: in a cluster only the primary exports, because all
        machines have the same messages and events."""
        if self.otlp is not None:
            self._running.discard(self.otlp.name)
            await self.otlp.stop()

    async def stop(self) -> None:
        """End all child processes."""
        await asyncio.gather(*(child.stop() for child in self.processes()))

    def _start(self, child: ChildProcess | None) -> None:
        if child is not None and child.name not in self._running:
            self._running.add(child.name)
            child.start()

    # -- arguments of the processes ----------------------------------------------------

    def stream_arguments(self) -> Arguments:
        """Return the arguments of the stream service that a reload may change."""
        tokens = (*self._own_token_arguments(), *self._seed_token_arguments())
        options = (*self.settings.stream.file_options, *tokens)
        return stream_process.reloadable_arguments(self._publishing_json(), options)

    def admin_arguments(self) -> Arguments:
        """Return the arguments of the admin process that a reload may change."""
        return admin_process.reloadable_arguments(self.settings.admin, self._events_arguments())

    def _events_arguments(self) -> Arguments:
        """Return the arguments with the address of the stream service, from which events are read;
        none if events are switched off."""
        settings = self.settings
        if self.stream is None or not settings.events.enabled:
            return ()
        address = ("--events-at", self.stream.address)
        return (*address, "--events-tls") if settings.stream.certificate else address

    def otlp_arguments(self) -> Arguments:
        """Return the arguments of the OpenTelemetry process that a reload may change."""
        settings = self.settings
        stream: list[str] = []
        if settings.sends_traces and self.stream is not None:
            host, _, port = self.stream.address.rpartition(":")
            stream += ["--stream", f"{settings.opentelemetry.stream_host or host}:{port}"]
            if settings.stream.certificate:
                stream.append("--stream-tls")
            if settings.requires_stream_token():
                file = stream_token_file(settings.durability.data_dir)
                stream += ["--stream-token-file", str(file)]
        return otlp_process.reloadable_arguments(settings.opentelemetry, stream)

    def _own_token_arguments(self) -> Arguments:
        """Return the arguments that name the file of the broker's own token; none if the stream
        service asks for no tokens."""
        settings = self.settings
        if not settings.requires_stream_token():
            return ()
        return "--token-file", str(stream_token_file(settings.durability.data_dir))

    def _seed_token_arguments(self) -> Arguments:
        """Return the arguments that name the file of the cluster's token; none if it is not set."""
        cluster = self.settings.cluster
        if not (cluster.enabled and cluster.seed_token_file):
            return ()
        return "--seed-token-file", cluster.seed_token_file

    def _streams_json(self) -> str:
        return json.dumps(
            [
                {"name": stream.name, "topic_filters": list(stream.topic_filters)}
                for stream in self.settings.streams
            ]
        )

    def _publishing_json(self) -> str:
        """Return the limits of rows that clients may publish, as JSON; empty if they may publish
        none."""
        settings = self.settings
        is_for_all = settings.allows_stream_publishing()
        if not (is_for_all or settings.stream.token_file):
            return ""
        return json.dumps(
            {
                "topic_levels_max": settings.limits.topic_levels_max,
                "packet_bytes_max": settings.limits.max_packet_size_bytes,
                "staged_bytes_max": settings.stream.staged_bytes_max,
                "by_role_only": not is_for_all,
            }
        )
