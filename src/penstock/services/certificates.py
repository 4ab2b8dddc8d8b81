"""Watch the certificates that a broker uses: log what is wrong with them, and offer metrics.

::

      start, reload          ─▶ use ──────────╮
      a listener's new files ─▶ use_listener ─┴▶ read, judge, log
      each hour, at an end   ─▶ tick: judge again; a sentence is repeated once a day

What is judged is what was read when the files were last used, not what is on disk since: a renewed
certificate that nobody has read yet does not help.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, final

from penstock.config.address import Address
from penstock.config.settings import Settings
from penstock.control.metric_families import MetricSample
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.fitness import Fitness, Severity, Use, judge, read

logger = get_logger(__name__)

CHECK_S: Final = 3600.0
_REPEAT_S: Final = 86_400.0
_READ_ONCE: Final = ("bridge", "cluster", "login")
"""Parts that read their certificates at the start of the broker only."""
_LEVELS: Final = {"warning": logging.WARNING, "error": logging.ERROR}


def certificate_uses(settings: Settings) -> list[Use]:
    """Return the files of certificates that the broker and its processes use with these
    settings."""
    return [use for use in _uses(settings) if use.file]


def _uses(settings: Settings) -> Iterator[Use]:
    cluster, stream, otel = settings.cluster, settings.stream, settings.opentelemetry
    for listener in settings.listener.enabled_listeners():
        if not listener.is_encrypted:
            continue
        others = {host.lower() for host in listener.sni}
        hosts = _hosts(cluster.advertise) if cluster.enabled else ()
        hosts = tuple(host for host in hosts if host.lower() not in others)
        yield Use("listener", listener.name, "server", listener.certificate, hosts)
        for host, pair in listener.sni.items():
            yield Use("listener", listener.name, "server", pair.certificate, (host,))
        yield Use("listener", listener.name, "authorities", listener.client_ca)
        yield Use("listener", listener.name, "revocations", listener.crl)
    for remote in settings.bridge.remotes:
        yield Use("bridge", remote.name, "client", remote.certificate)
        yield Use("bridge", remote.name, "authorities", remote.ca)
    if cluster.enabled:
        yield Use("cluster", "", "client", cluster.certificate)
        yield Use("cluster", "", "authorities", cluster.ca_file)
        yield Use("cluster", "", "authorities", cluster.seed_ca_file)
    if settings.admin.bind:
        yield Use("admin", "", "server", settings.admin.certificate)
    if stream.enabled:
        hosts = _hosts(cluster.stream_advertise) if cluster.enabled else ()
        if otel.endpoint and otel.stream_host:
            hosts += (otel.stream_host,)
        yield Use("stream", "", "server", stream.certificate, hosts)
        yield Use("stream", "", "authorities", stream.client_ca)
    if otel.endpoint:
        yield Use("opentelemetry", "", "client", otel.certificate)
        yield Use("opentelemetry", "", "authorities", otel.ca_file)
        yield Use("opentelemetry", "", "authorities", otel.stream_ca_file)
    yield Use("login", "", "authorities", settings.http_login.ca_file)


def _hosts(address: Address | str) -> tuple[str, ...]:
    return (address.host,) if isinstance(address, Address) else ()


@final
class CertificateWatch:
    """Watches the certificates of one broker.

    Args:
        clock: returns the time in seconds since the Unix epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._found: list[Fitness] = []
        self._said: dict[tuple[Use, Severity], float] = {}  # when it was logged

    def use(self, settings: Settings, *, at_start: bool = False) -> None:
        """Read the certificates that are used from now on, and log what is wrong with them.

        Args:
            settings: the settings in use.
            at_start: True to read those of all parts, also of bridges and the cluster, which
                read them only once.
        """
        uses = certificate_uses(settings)
        if not at_start:
            kept = [one.use for one in self._found if one.use.part in _READ_ONCE]
            uses = kept + [use for use in uses if use.part not in _READ_ONCE]
        self._read(uses, lambda use: at_start or use.part not in _READ_ONCE)

    def use_listener(self, name: str) -> None:
        """Read the certificates of one listener, which took those that are new on disk, and log
        what is wrong with them; other parts with the same files use what they read before."""
        uses = [one.use for one in self._found]
        self._read(uses, lambda use: use.part == "listener" and use.name == name)

    def _read(self, uses: Iterable[Use], is_read: Callable[[Use], bool]) -> None:
        """Judge these certificates from now on; read anew those for which ``is_read`` is true."""
        known = {one.use: one for one in self._found}
        self._found = [read(use) if is_read(use) else known[use] for use in uses]
        self._said = {key: at_s for key, at_s in self._said.items() if not is_read(key[0])}
        self.tick()

    def tick(self) -> None:
        """Log what is wrong by now, and was not said in the last day."""
        now_s = self._clock()
        for found in self._found:
            severity, sentence = judge(found, now_s)
            key = found.use, severity
            if severity != "ok" and now_s - self._said.get(key, -_REPEAT_S) >= _REPEAT_S:
                self._said[key] = now_s
                logger.log(_LEVELS[severity], "%s", Sentence(sentence))

    def warnings(self) -> list[str]:
        """Return what is wrong with the certificates in use by now, a sentence each."""
        judged = (judge(found, self._clock()) for found in self._found)
        return [sentence for severity, sentence in judged if severity != "ok"]

    async def run(self) -> None:
        """Judge the certificates again each hour, and when one expires, until cancelled."""
        while True:
            await asyncio.sleep(self.next_check_s())
            self.tick()

    def next_check_s(self) -> float:
        """Return the time until certificates are to be judged again, in seconds."""
        now_s = self._clock()
        ends = (one.ends_s - now_s for one in self._found if not one.mistake)
        return min((CHECK_S, *(left_s for left_s in ends if left_s > 0)))

    def samples(self) -> Iterable[MetricSample]:
        """Yield the samples for a scrape."""
        now_s = self._clock()
        by_labels = {(one.use.part, one.use.name, one.use.file): one for one in self._found}
        for labels, found in by_labels.items():
            if not found.mistake:
                yield "certificate_expires_seconds", labels, found.ends_s - now_s
                yield "certificate_works", labels, found.works(now_s)
