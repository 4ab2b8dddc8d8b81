"""Checks of the machine for `penstock doctor`: each function returns a finding.

ok        the check passed
missing   Penstock cannot run without the thing checked: the exit code is 1
absent    the thing is optional: without it something is slower or one command does not work
"""

from __future__ import annotations

import errno
import importlib
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from penstock.app.composing import check_admin, check_stream_files, login_method
from penstock.auth.files import load_user_files
from penstock.cli.version import package_version
from penstock.cluster.nats_program import check_version, find_nats_server, version_text
from penstock.cluster.server_checks import Severity as ServerSeverity
from penstock.cluster.server_checks import check_servers
from penstock.config.address import Address
from penstock.config.admin import Admin
from penstock.config.available_memory import available_memory
from penstock.config.cluster import Cluster
from penstock.config.cluster_addresses import address_problems
from penstock.config.listener import MainListener, OtherListener, bind_setting
from penstock.config.memory import budget_mistake, fit_to_memory, readable_size, report_memory
from penstock.config.settings import Settings
from penstock.config.stream import Stream
from penstock.control.client import RequestRefused, ask
from penstock.control.metric_requests import Health, ReadHealth
from penstock.errors import ConfigError, StoreError, StoreUnavailable
from penstock.runtime.machine_clock import is_synchronized, is_unset
from penstock.services.certificates import certificate_uses
from penstock.spark.java import JavaNotFound, find_java
from penstock.store.database import STORE_DIRECTORY
from penstock.store.faults import with_remedy
from penstock.transport.descriptors import connections_within
from penstock.transport.fitness import Severity, judge, read
from penstock.transport.tls import Certificates
from penstock.version import build_kind

PYTHON_MIN: Final = (3, 11)

_ROOM_BYTES: Final = 16_777_216  # needed to open a store and write some commits


class Verdict(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    MISSING = "missing"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        subject: the thing that was checked.
        verdict: the outcome of the check.
        detail: the result of the check.
        remedy: the action to take; empty if none is needed.
    """

    subject: str
    verdict: Verdict
    detail: str
    remedy: str = ""

    @property
    def is_blocking(self) -> bool:
        """True if Penstock cannot run like this."""
        return self.verdict is Verdict.MISSING


def examine(settings: Settings) -> list[Finding]:
    """Run all checks; return the findings in the order they are shown."""
    findings = [
        check_python(),
        check_build(),
        check_compiler(),
        check_package("rocksdict", "the durable log", required=True),
        check_package("pyarrow", "the durable log and the stream service", required=True),
        check_package("uvloop", "the broker's event loop", required=True),
        check_package("wsproto", "MQTT over WebSocket", required=True),
        check_package("pyspark", "Spark", required=False),
        check_package("deltalake", "Delta tables", required=False),
        check_java(),
        check_tool("mosquitto_pub", "mosquitto-clients"),
        check_tool("strace", "strace"),
        check_wall_clock(time.time_ns() // 1000, is_synchronized()),
        check_open_files(settings, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    ]
    running = check_running_broker(settings)
    own = "" if running is None else str(settings.durability.data_dir)
    findings += [] if running is None else [running]
    listeners = settings.listener.enabled_listeners()
    findings += [check_listener(listener, own) for listener in listeners]
    if settings.stream.enabled:
        findings.append(check_stream_service(settings.stream, own))
    if settings.admin.bind:
        findings.append(check_admin_process(settings.admin, settings.admin.bind, own))
    findings += check_certificates(settings, time.time())
    findings.append(check_users(settings))
    findings.append(check_memory(settings))
    if settings.durability.persistence == "file":
        data_dir = settings.durability.data_dir
        findings.append(check_data_directory(data_dir))
        findings.append(check_disk(data_dir, settings.durability.retention_bytes_max))
    if settings.cluster.enabled:
        findings.append(check_advertised_addresses(settings))
        findings += check_cluster(settings.cluster)
    return findings


def print_report(findings: Sequence[Finding]) -> None:
    """Print the findings as a table, and the remedies below it."""
    from rich.table import Table
    from rich.text import Text

    from penstock.cli.screen import Screen

    colours = {Verdict.OK: "green", Verdict.MISSING: "bold red", Verdict.ABSENT: "yellow"}
    table = Table(box=None, pad_edge=False)
    for heading in ("check", "", "found"):
        table.add_column(heading)
    for finding in findings:
        verdict = Text(finding.verdict, style=colours[finding.verdict])
        table.add_row(finding.subject, verdict, Text(finding.detail, overflow="fold"))
    console = Screen()
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"\n{finding.subject}: {finding.remedy}", soft_wrap=True)


def check_memory(settings: Settings) -> Finding:
    """Compare the most memory that clients may make the broker use with its budget."""
    system_memory = available_memory()
    settings = fit_to_memory(settings, system_memory)
    report = report_memory(settings, system_memory)
    mistake = budget_mistake(settings)
    verdict = Verdict.OK
    if mistake:
        verdict = Verdict.MISSING
    elif report.warning:
        verdict = Verdict.ABSENT
    return Finding(
        "memory", verdict, report.text.removeprefix("memory: "), mistake or report.warning
    )


def check_wall_clock(wall_us: int, synchronized: bool = True) -> Finding:
    """Check that the wall clock, which dates messages, is set and synchronized.

    Args:
        wall_us: the time that the clock shows, µs since the Unix epoch.
        synchronized: whether the system says that the clock is synchronized.
    """
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall_us // 1_000_000))
    if is_unset(wall_us):
        remedy = "set it, or let the system do so (NTP): messages are dated by it."
        return Finding("clock", Verdict.ABSENT, f"not set: it shows {shown}", remedy)
    if not synchronized:
        remedy = (
            "synchronize it by NTP: it tells a broker after a reboot for how long it was off. By"
            " as much as it is ahead then, sessions and messages end too early, but a week at"
            " most; if it went back, they live longer by all of that time (docs/durability.md)."
        )
        return Finding("clock", Verdict.ABSENT, f"{shown}, not synchronized", remedy)
    return Finding("clock", Verdict.OK, shown)


def check_open_files(settings: Settings, limit: int) -> Finding:
    """Compare the number of files that a process may have open, ``limit``, with the connections
    that the listeners allow."""
    needed = sum(listener.max_connections for listener in settings.listener.enabled_listeners())
    if limit == resource.RLIM_INFINITY:
        return Finding("open files", Verdict.OK, f"no limit, for {needed:,} connections")
    available = connections_within(limit)
    detail = f"{limit:,}, of which {available:,} for connections; max_connections allows {needed:,}"
    if available >= needed:
        return Finding("open files", Verdict.OK, detail)
    remedy = (
        "raise the limit (ulimit -Hn, LimitNOFILE in a systemd unit, --ulimit nofile of a"
        " container) or lower max_connections; further connections are closed."
    )
    return Finding("open files", Verdict.ABSENT, detail, remedy)


def check_users(settings: Settings) -> Finding:
    """Check the password file and the access list; the detail says who may connect."""
    subject = "users"
    files = settings.access
    try:
        access = load_user_files(
            files.password_file, files.acl_file, bool(files.identity_from_certificate)
        )
    except ConfigError as error:
        return Finding(subject, Verdict.MISSING, str(error), "mend the file.")
    permissions = "may do what the access list says" if files.acl_file else "may do everything"
    try:
        method = login_method(settings)
    except ConfigError as error:
        return Finding(subject, Verdict.MISSING, str(error), "mend it.")
    if method is not None:
        sources = (settings.jwt_login.keys, settings.http_login.url)
        listed = f"{len(access.users)} in {files.password_file}, others " if access.users else ""
        source = " and ".join(source for source in sources if source)
        return Finding(subject, Verdict.OK, f"{listed}as {source} says, {permissions}")
    if access.users is None:
        anonymous = "no password file: every client that can connect " + permissions
        remedy = (
            "for users with passwords: penstock passwd --create FILE NAME, then"
            " penstock serve --password-file FILE (access.password_file)."
        )
        return Finding(subject, Verdict.ABSENT, anonymous, remedy)
    count = len(access.users)
    return Finding(subject, Verdict.OK, f"{count} in {files.password_file}, {permissions}")


def check_python() -> Finding:
    """Check the version of Python."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("Python", Verdict.MISSING, version, "install Python 3.11 or newer.")
    return Finding("Python", Verdict.OK, f"{version} in {sys.prefix}")


def check_build() -> Finding:
    """Check whether protocol and engine are compiled to machine code."""
    kind = build_kind()
    if kind == "compiled":
        return Finding("Penstock", Verdict.OK, kind)
    remedy = "it works, several times slower; with gcc and Python's headers, build it again."
    return Finding("Penstock", Verdict.ABSENT, kind, remedy)


def check_compiler() -> Finding:
    """Look for a C compiler, needed only to build Penstock compiled."""
    path = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if path is None:
        return Finding("C compiler", Verdict.ABSENT, "none", "to build it compiled, install gcc.")
    return Finding("C compiler", Verdict.OK, path)


def check_package(name: str, purpose: str, *, required: bool) -> Finding:
    """Check that a Python package is installed, and can be imported on this machine."""
    version = package_version(name)
    verdict = Verdict.MISSING if required else Verdict.ABSENT
    if version is None:
        remedy = f'for {purpose}: pip install "penstock{"" if required else "[spark]"}".'
        return Finding(name, verdict, "not installed", remedy)
    try:
        importlib.import_module(name)
    except Exception as error:
        remedy = f"{name} {version} is installed but does not load; install it again."
        return Finding(name, verdict, f"{type(error).__name__}: {error}", remedy)
    return Finding(name, Verdict.OK, version)


def check_java() -> Finding:
    """Look for the Java that Spark would run on."""
    try:
        found = find_java()
    except JavaNotFound as error:
        return Finding("Java", Verdict.ABSENT, "none", str(error))
    return Finding("Java", Verdict.OK, f"{found.version} from {found.origin}, {found.home}")


def check_tool(command: str, package_name: str) -> Finding:
    """Look for a program that only the tests need."""
    path = shutil.which(command)
    if path is None:
        remedy = f"only tests need it: apt-get install {package_name}."
        return Finding(command, Verdict.ABSENT, "none", remedy)
    return Finding(command, Verdict.OK, path)


def check_port(subject: str, setting: str, bind: Address, own_broker: str = "") -> Finding:
    """Check that an address can be listened on.

    Args:
        subject: the subject of the finding.
        setting: the setting with the address.
        bind: the address.
        own_broker: the data directory of these settings if their broker runs, which has the
            address then; else empty.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if own_broker and error.errno == errno.EADDRINUSE:
            detail = f"{bind} is in use, and the broker of {own_broker} runs"
            return Finding(subject, Verdict.OK, detail)
        detail = f"{bind}: {error.strerror or error}"
        remedy = f"another program may use it, or this one already runs; else change {setting}."
        return Finding(subject, Verdict.MISSING, detail, remedy)
    return Finding(subject, Verdict.OK, f"{bind} is free")


def check_running_broker(settings: Settings) -> Finding | None:
    """Ask the broker that runs on the data directory of these settings how it is; return None if
    none runs."""
    subject = "broker"
    data_dir = settings.durability.data_dir
    try:
        health = ask(data_dir, ReadHealth(), Health)
    except RequestRefused:  # by a version without health checks
        return Finding(subject, Verdict.OK, f"runs on {data_dir}")
    except StoreUnavailable as error:
        return Finding(subject, Verdict.MISSING, *str(error).split(". ", 1))
    except StoreError:
        return None
    remedy = "its log says more."
    if health.store_failure:
        return Finding(subject, Verdict.MISSING, health.store_failure, remedy)
    if health.member_problem:
        works = health.role in ("primary", "standby")
        remedy = "'penstock cluster status' shows the whole cluster."
        verdict = Verdict.ABSENT if works else Verdict.MISSING
        return Finding(subject, verdict, health.member_problem, remedy)
    if health.stream_failure:
        return Finding(subject, Verdict.ABSENT, health.stream_failure, remedy)
    return Finding(subject, Verdict.OK, f"runs on {data_dir}, and answers")


def check_stream_service(settings: Stream, own_broker: str = "") -> Finding:
    """Check that the stream service's address can be listened on, and its files can be read."""
    subject = "stream port"
    try:
        check_stream_files(settings)
    except ConfigError as error:
        return Finding(subject, Verdict.MISSING, str(error), "mend the files.")
    return check_port(subject, "stream.bind", settings.bind, own_broker)


def check_admin_process(settings: Admin, bind: Address, own_broker: str = "") -> Finding:
    """Check packages and files of the admin process, and that its address can be listened on."""
    subject = "admin port"
    try:
        check_admin(settings)
    except ConfigError as error:
        remedy = "install the packages, or mend the files."
        return Finding(subject, Verdict.MISSING, str(error), remedy)
    return check_port(subject, "admin.bind", bind, own_broker)


def check_listener(listener: MainListener | OtherListener, own_broker: str = "") -> Finding:
    """Check that a listener's address can be listened on, and its certificates can be read."""
    subject = f"listener {listener.name}"
    if listener.is_encrypted:
        try:
            Certificates(listener.name, listener)
        except ConfigError as error:
            return Finding(subject, Verdict.MISSING, str(error), "mend the files.")
    if isinstance(listener.bind, Address):
        return check_port(subject, bind_setting(listener), listener.bind, own_broker)
    folder = Path(listener.bind.path).parent
    if not os.access(folder, os.W_OK | os.X_OK):
        exists = folder.is_dir()
        detail = f"{folder} is not writable" if exists else f"there is no directory {folder}"
        action = "make it writable for this user" if exists else "make the directory"
        remedy = f"{action}, or change {bind_setting(listener)}."
        return Finding(subject, Verdict.MISSING, detail, remedy)
    return Finding(subject, Verdict.OK, f"{listener.bind}")


def check_certificates(settings: Settings, now_s: float) -> list[Finding]:
    """Judge each file of certificates that the broker would use, at ``now_s`` since the Unix
    epoch."""
    verdicts: dict[Severity, Verdict] = {
        "ok": Verdict.OK,
        "warning": Verdict.ABSENT,
        "error": Verdict.MISSING,
    }
    findings = []
    for use in certificate_uses(settings):
        if Path(use.file).exists():  # else another check complains
            severity, sentence = judge(read(use), now_s)
            findings.append(Finding("certificate", verdicts[severity], sentence))
    return findings


def check_cluster(settings: Cluster) -> list[Finding]:
    """Check the servers that keep the cluster's log, and the NATS program if this machine starts
    a server."""
    verdicts: dict[ServerSeverity, Verdict] = {
        "ok": Verdict.OK,
        "warning": Verdict.ABSENT,
        "blocking": Verdict.MISSING,
    }
    findings = [check_nats_program()] if settings.server_config else []
    return findings + [
        Finding(found.subject, verdicts[found.severity], found.detail, found.remedy)
        for found in check_servers(settings)
    ]


def check_advertised_addresses(settings: Settings) -> Finding:
    """Check the addresses at which the other machines of a cluster reach this one."""
    problems = list(address_problems(settings))
    if not problems:
        address = settings.cluster.advertise or settings.listener.bind
        return Finding("cluster address", Verdict.OK, f"{address}")
    details, remedies = zip(*(problem.split("; ", 1) for problem in problems), strict=True)
    return Finding(
        "cluster address", Verdict.ABSENT, "; ".join(details), f"{', and '.join(remedies)}."
    )


def check_nats_program() -> Finding:
    """Look for the NATS server that the broker starts, and check its version."""
    try:
        program = find_nats_server()
        version = check_version(program)
    except ConfigError as error:
        return Finding("nats-server", Verdict.MISSING, str(error), "install or upgrade it.")
    return Finding("nats-server", Verdict.OK, f"{version_text(version)}, {program}")


def check_data_directory(path: Path) -> Finding:
    """Check that the data directory, existing or not, is writable, has room, and is this user's."""
    directory = _existing_ancestor(path)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
        free = readable_size(shutil.disk_usage(directory).free)
    except OSError as error:
        remedy = "choose another with --data-dir or durability.data_dir, or mend this one."
        if os.access(path / STORE_DIRECTORY, os.F_OK):
            remedy = "mend this one: it has what the broker acknowledged, another would be empty."
        detail = f"{path}: {with_remedy(error.strerror or error, path)}"
        return Finding("data directory", Verdict.MISSING, detail, remedy)
    creation = "" if os.access(path, os.F_OK) else ", will be created"
    detail = f"{path.absolute()}{creation}, {free} free"
    owner = path.stat().st_uid if os.access(path, os.F_OK) else os.geteuid()
    if owner != os.geteuid():
        remedy = f"run the broker, and this, as its owner: sudo -u '#{owner}' penstock doctor …"
        detail += f"; it belongs to user {owner}, and this is user {os.geteuid()}"
        return Finding("data directory", Verdict.ABSENT, detail, remedy)
    return Finding("data directory", Verdict.OK, detail)


def check_disk(path: Path, retention_bytes_max: int) -> Finding:
    """Check that the file system of the data directory has room for the largest log that
    ``retention_bytes_max`` allows."""
    if retention_bytes_max == 0:
        remedy = "without durability.retention_bytes_max only age bounds the log: watch the disk."
        return Finding("disk", Verdict.ABSENT, "the log has no limit by size", remedy)
    try:
        free_bytes = shutil.disk_usage(_existing_ancestor(path)).free
        used_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    except OSError as error:
        return Finding("disk", Verdict.ABSENT, f"{path}: {error.strerror or error}")
    detail = (
        f"the log may take {readable_size(retention_bytes_max)}; {path.absolute()} has"
        f" {readable_size(used_bytes)}, and {readable_size(free_bytes)} are free"
    )
    if used_bytes + free_bytes >= retention_bytes_max:
        return Finding("disk", Verdict.OK, detail)
    remedy = (
        "lower durability.retention_bytes_max, or use a larger disk: a full disk stops"
        " acknowledgements (docs/store.md)."
    )
    return Finding("disk", Verdict.ABSENT, detail, remedy)


def _existing_ancestor(path: Path) -> Path:
    """Return ``path``, or the closest directory above it that exists."""
    while not os.access(path, os.F_OK) and path != path.parent:  # exists() may raise
        path = path.parent
    return path
