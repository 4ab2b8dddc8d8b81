"""The streams of the log, and the service that readers such as Spark get them from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from penstock.config.address import Address
from penstock.config.group import SettingsGroup
from penstock.config.values import BindAddress, StreamName, TopicFilter
from penstock.engine.values.change_effects import AT_ONCE, RESTART, takes_effect


class StreamDefinition(SettingsGroup):
    """A named part of the log that Spark and other readers can read."""

    name: StreamName
    """Name of the stream for readers: 1 to 64 letters, digits and . _ - that start with a letter or
    digit."""

    topic_filters: tuple[TopicFilter, ...] = Field(min_length=1, max_length=1000)
    """Messages whose topic matches any of these belong to the stream; 1 to 1000 MQTT filters. A
    leading wildcard does not match topics that start with $."""

    retention_s: int | None = Field(default=None, ge=0, le=10**10)
    """Time in seconds that messages of this stream are kept, also when they have left the log
    (durability.retention_s). 0 to 10000000000; 0 is no limit by age; without it they stay as long
    as the log has them."""

    retention_bytes_max: int = Field(default=0, ge=0, le=2**62)
    """Size in bytes of messages kept longer than the log; above it the oldest leave. 0 to
    4611686018427387904; 0 is no limit by size."""

    @property
    def is_archived(self) -> bool:
        """Return whether the stream keeps messages longer than the log does."""
        return self.retention_s is not None or self.retention_bytes_max > 0


@takes_effect(AT_ONCE)
class Stream(SettingsGroup):
    """The stream service, from which Spark reads the log (Arrow Flight, a process of its own)."""

    enabled: Annotated[bool, RESTART] = True
    """Start the service. With persistence "memory" there is no log to read, and it stays off."""

    bind: Annotated[BindAddress, RESTART] = Address("127.0.0.1", 8815)
    """Address of the service, HOST:PORT; port 0 takes any free port. An address that other
    machines can reach is refused without a token_file or client_ca, unless allow_anonymous."""

    allow_anonymous: bool = False
    """Let everyone read the streams, also where the broker has users, and on addresses that other
    machines can reach. Without an access.password_file, listener.allow_anonymous says so too."""

    certificate: str = ""
    """PEM file of the certificate and its intermediate certificates: the service speaks TLS. Empty
    for none. A reload reads it again, as well as the key and the tokens."""

    key: str = ""
    """PEM file of the certificate's private key, without a password."""

    client_ca: str = ""
    """PEM file of the authorities that sign certificates of readers; with it, every reader needs
    such a certificate. Empty asks for none. Read again at a reload."""

    token_file: str = ""
    """File of the tokens that readers show, one a line, with the permissions of each
    (docs/security.md). With one, every reader needs a token, wherever the service is bound. Empty:
    a token is needed only where access.password_file or access.acl_file is given and neither
    client_ca nor allow_anonymous is; then the file stream-token in the data directory has one, for
    programs of the broker's user."""

    allow_publish: bool = False
    """Let every program that reaches the service publish through it (docs/spark.md, Publishing from
    Spark): it knows no users, and the access list does not apply. With false, programs may publish
    only where everyone on this machine may do so anyway: bind is an address that other machines
    cannot reach, and there is neither an access.password_file nor an access.acl_file."""

    staged_bytes_max: int = Field(default=16 * 1024**3, ge=1_048_576, le=2**62)
    """Most bytes of rows that wait in the data directory to be published; a Spark task that brings
    more fails. 1048576 to 4611686018427387904."""

    staged_expiry_s: Annotated[float, RESTART] = Field(default=86_400.0, ge=0, le=10**10)
    """Time in seconds after which rows are removed if Spark has not committed their batch: longer
    than the longest batch takes. 0 to 10000000000; 0 keeps them for ever."""

    streams: Annotated[tuple[StreamDefinition, ...], RESTART] = Field(
        default=(StreamDefinition(name="messages", topic_filters=("#",)),),
        min_length=1,
        max_length=100,
    )
    """Streams offered, 1 to 100. Every message that belongs to one is kept in the log."""

    readers_max: int = Field(default=100, ge=0, le=1000)
    """Most groups of registered readers (docs/spark.md). One more replaces a group whose lease has
    ended, or is refused. 0 to 1000; 0 refuses all."""

    readers_per_token_max: int = Field(default=10, ge=1, le=1000)
    """Most groups of registered readers of one token, unless the token may do everything
    (docs/security.md). 1 to 1000."""

    reader_lease_s_max: float = Field(default=604_800.0, ge=1, le=10**8)
    """Longest lease of a reader, in seconds: how long the log is kept for a reader that is not
    connected. 1 to 100000000."""

    readers_hold_bytes_max: int = Field(default=20 * 1024**3, ge=0, le=2**62)
    """Size of the log in bytes above which messages leave it although readers have not read them,
    if it is also above durability.retention_bytes_max; the messages that readers lose are counted.
    If the log is bounded by age alone, this must be more than its size. 0 to 4611686018427387904; 0
    holds nothing back."""

    tables_max: int = Field(default=100, ge=0, le=1000)
    """Most tables whose jobs report their progress (docs/spark.md), so that publishers get
    receipts. The report of one more is refused; its job lands messages all the same. 0 to 1000."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Stream:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("stream.certificate and stream.key, two PEM files, belong together")
        if self.client_ca and not self.certificate:
            raise ValueError(
                "stream.client_ca asks readers for certificates, which are shown with TLS: give"
                " stream.certificate and stream.key"
            )
        if self.allow_anonymous and (self.token_file or self.client_ca):
            asks = "token_file asks every reader for a token"
            if not self.token_file:
                asks = "client_ca asks every reader for a certificate"
            raise ValueError(
                f"stream.{asks}, and stream.allow_anonymous lets everyone read: leave out one of"
                " them"
            )
        return self

    @property
    def file_options(self) -> tuple[str, ...]:
        """The command-line options that give the stream service its files."""
        options: list[str] = []
        if self.certificate:
            options += ["--certificate", self.certificate, "--key", self.key]
        if self.client_ca:
            options += ["--client-ca", self.client_ca]
        if self.token_file:
            options += ["--token-file", self.token_file]
        return tuple(options)

    @model_validator(mode="after")
    def _names_differ(self) -> Stream:
        names = [stream.name for stream in self.streams]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"stream.streams names {name!r} twice; give each its own name")
        return self
