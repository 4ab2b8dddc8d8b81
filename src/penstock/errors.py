"""Every exception Penstock raises on purpose.

Local and remote mistakes are different classes, because they end differently: a
`RemoteProtocolError` closes the peer's connection with its reason code, a `LocalProtocolError` is a
mistake of our own caller and travels up to it, a `ConfigError` is printed by the command line and
ends the program, a `StoreError` makes the broker stop acknowledging, and a `ClientError` is for the
program that uses the client library.

    PenstockError
     ├─ ConfigError                       a mistake in the settings
     ├─ ProtocolError                     has a reason code
     │   ├─ RemoteProtocolError           the peer broke the protocol
     │   │   └─ UnsupportedProtocolVersion
     │   └─ LocalProtocolError            our caller asked for something the protocol forbids
     ├─ StoreError                        the durable store
     │   ├─ StoreLocked  ├─ StoreFormatError  ├─ StoreDamaged  ├─ StoreBroken
     │   ├─ StoreFailed
     │   │   └─ CommitUnknown             it may be there, or not
     │   ├─ EpochMismatch  └─ OffsetOutOfRange
     └─ ClientError                      a client could not do what it was asked to
         ├─ ConnectFailed  ├─ NotConnected  ├─ QueueFull  ├─ OutOfSequence
         ├─ PublishFailed  ├─ SubscribeFailed  └─ RequestFailed
"""

from penstock.masking import masked


class PenstockError(Exception):
    """Base of all exceptions raised by Penstock."""


class ConfigError(PenstockError):
    """A mistake in the settings, told in one sentence; it quotes no passwords."""

    def __init__(self, sentence: str) -> None:
        super().__init__(masked(sentence))


class ProtocolError(PenstockError):
    """Something MQTT does not allow.

    reason is an MQTT 5 reason code (0x80 to 0xFF), whatever the version of the connection.
    """

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} (0x{self.reason:02x})"


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; its connection is to be closed with `reason`."""


class UnsupportedProtocolVersion(RemoteProtocolError):
    """A CONNECT names a protocol level this broker does not speak.

    level is the one that the client asked for, so that the answer can take the form it understands:
    below 5 a CONNACK with return code 1, from 5 on one with reason code 0x84.
    """

    def __init__(self, reason: int, message: str, level: int) -> None:
        super().__init__(reason, message)
        self.level = level
        self.args = (reason, message, level)


class LocalProtocolError(ProtocolError):
    """Our own caller asked for something the protocol forbids."""


class StoreError(PenstockError):
    """The durable store cannot carry out an operation."""


class StoreLocked(StoreError):
    """Another process has the store open."""


class StoreFormatError(StoreError):
    """The store was written in a format this version does not read."""


class StoreDamaged(StoreError):
    """The store holds less than was acknowledged: going on would hide it."""


class StoreBroken(StoreError):
    """Files of the store are damaged, so that it cannot be opened, or not all of it be read."""


class StoreFailed(StoreError):
    """Reading or writing failed (disk full, I/O error): what was to be written is not there."""


class CommitUnknown(StoreFailed):
    """A write failed half way: after a crash it may be there or not. Nothing of it may be
    acknowledged, and no other write made, before the same was written once more.
    """


class EpochMismatch(StoreError):
    """An offset of another incarnation of the log was presented."""


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
    """There is no room for one more message to publish."""


class OutOfSequence(ClientError):
    """The number of a message is not greater than that of the message before."""


class PublishFailed(ClientError):
    """A message will not be delivered: the server refused it, or it was given up here.

    is_kept says that it is in the outbox, and will be delivered by the next program: to publish it
    again would make two of it.
    """

    def __init__(self, message: str, reason: int = 0, is_kept: bool = False) -> None:
        super().__init__(message, reason)
        self.is_kept = is_kept
        self.args = (message, reason, is_kept)


class SubscribeFailed(ClientError):
    """The server refused a subscription, or the end of one."""


class RequestFailed(ClientError):
    """A request was not answered in time, or cannot be made."""
