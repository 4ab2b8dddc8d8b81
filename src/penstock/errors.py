"""Every exception Penstock raises on purpose.

Each class has its own handling: a `RemoteProtocolError` closes the peer's connection with its
reason code, a `LocalProtocolError` is raised to the caller that made the mistake, a `ConfigError`
is printed by the command line and ends the program, a `StoreError` makes the broker stop
acknowledging, and a `ClientError` is for the program that uses the client library.

    PenstockError
     ├─ ConfigError                       a mistake in the settings
     ├─ ProtocolError                     has a reason code
     │   ├─ RemoteProtocolError           the peer broke the protocol
     │   │   └─ UnsupportedProtocolVersion
     │   └─ LocalProtocolError            the caller asked for something the protocol forbids
     ├─ StoreError                        the durable store
     │   ├─ StoreLocked  ├─ StoreFormatError
     │   ├─ StoreUnavailable              not now: another attempt may succeed
     │   │   └─ CommitUnknown             the write may be on disk or not
     │   ├─ StoreCorrupt                  what is there cannot be read, or is not whole
     │   ├─ HistoryMismatch               it has less than was acknowledged, or something else
     │   ├─ EpochMismatch  └─ OffsetOutOfRange
     └─ ClientError                      a client could not carry out an operation
         ├─ ConnectFailed  ├─ NotConnected  ├─ QueueFull  ├─ OutOfSequence
         ├─ PublishFailed  ├─ SubscribeFailed  └─ RequestFailed
"""

from penstock.masking import mask_secrets


class PenstockError(Exception):
    """Base of all exceptions raised by Penstock."""


class ConfigError(PenstockError):
    """The settings are wrong; the message is one sentence, with every password masked."""

    def __init__(self, sentence: str) -> None:
        super().__init__(mask_secrets(sentence))


class ProtocolError(PenstockError):
    """Something happened that MQTT does not allow.

    reason is an MQTT 5 reason code (0x80 to 0xFF), whatever the version of the connection.
    """

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} (0x{self.reason:02x})"


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; the receiver closes its connection with `reason`."""


class UnsupportedProtocolVersion(RemoteProtocolError):
    """A CONNECT names a protocol level that this broker does not support.

    level is the protocol level in the CONNECT. It selects the form of the answer: below 5 a CONNACK
    with return code 1, from 5 on a CONNACK with reason code 0x84.
    """

    def __init__(self, reason: int, message: str, level: int) -> None:
        super().__init__(reason, message)
        self.level = level
        self.args = (reason, message, level)


class LocalProtocolError(ProtocolError):
    """The caller asked for something that the protocol forbids."""


class StoreError(PenstockError):
    """The durable store cannot carry out an operation."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreFormatError(StoreError):
    """The store was written in a format this version does not read."""


class HistoryMismatch(StoreError):
    """The store can be read, and its history is not the one that was acknowledged: the end is
    missing, another process wrote to it, or it is not a part of its cluster's log. It is not used,
    so that an operator decides."""


class StoreCorrupt(StoreError):
    """A store, a backup or a copy is damaged: it cannot be opened, some of it cannot be read or
    understood, or an examination found that some of it is missing. Another attempt finds the same.

    Args:
        message: the sentence.
        part: the damaged part of the database; empty for a file beside the database.
    """

    def __init__(self, message: str, part: str = "") -> None:
        super().__init__(message)
        self.part = part


class StoreUnavailable(StoreError):
    """The store could not be read or written, for instance because the disk is full or the broker's
    process does not answer; another attempt may succeed. A failed write may have written something,
    unless the operation says otherwise."""


class CommitUnknown(StoreUnavailable):
    """A write failed half way, and may be in the store after a crash, or not.

    The caller repeats the same write before it acknowledges any of it and before any other write.
    """


class EpochMismatch(StoreError):
    """An offset belongs to another epoch of the log."""


class OffsetOutOfRange(StoreError):
    """An offset lies before the earliest or after the latest one the log has."""


class ClientError(PenstockError):
    """A client could not carry out an operation.

    reason is the MQTT 5 reason code that the server gave, whatever the version; 0 if it gave none.
    """

    def __init__(self, message: str, reason: int = 0) -> None:
        super().__init__(message, reason)
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message} (0x{self.reason:02x})" if self.reason else self.message


class ConnectFailed(ClientError):
    """No server was reached, or none accepted the client."""


class NotConnected(ClientError):
    """The client has no connection, or is closed."""


class QueueFull(ClientError):
    """The queue of messages to publish is full."""


class OutOfSequence(ClientError):
    """The sequence number of a message is not greater than that of the message before."""


class PublishFailed(ClientError):
    """A message was not delivered: the server refused it, or the client stopped trying.

    is_kept is true for a message in the outbox: the next program with this outbox delivers it, and
    publishing it again would duplicate it.
    """

    def __init__(self, message: str, reason: int = 0, is_kept: bool = False) -> None:
        super().__init__(message, reason)
        self.is_kept = is_kept
        self.args = (message, reason, is_kept)


class SubscribeFailed(ClientError):
    """The server refused to subscribe or to unsubscribe."""


class RequestFailed(ClientError):
    """A request was not answered in time, or could not be sent."""
