"""A client that minds its own business while others misbehave.

It publishes numbered messages to itself, at QoS 1 and 2 in turn, one after the other and all the
time, and checks each answer and each message. It fails when a message is missing, comes twice or
out of order, when anything else arrives, or when the broker closes on it.
"""

import threading
from types import TracebackType
from typing import Final, Self, final

from tests.support.broker import Address
from tests.support.deadline import wait_for
from tests.support.raw_client import RawClient

_PAUSE_S: Final = 0.002  # leaves the machine to the others


@final
class Bystander:
    """One client in a thread of its own; a context manager.

    Args:
        address: of the broker.
        name: its client identifier and its topic.
    """

    def __init__(self, address: Address, name: str) -> None:
        self.count = 0  # messages published, acknowledged and received
        self._name = name
        self._client = RawClient(address)
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._client.connect(self._name)
        self._client.subscribe(self._name, qos=2)
        self._thread.start()
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._raise()

    def stop(self) -> None:
        """Take the message under way to its end, and leave."""
        self._stop.set()
        self._thread.join()
        self._client.drop()

    def check(self) -> None:
        """Another message goes all the way, from now on."""
        start = self.count
        wait_for(f"{self._name} to go on", lambda: self.failed or self.count >= start + 2)
        self._raise()

    @property
    def failed(self) -> bool:
        """Whether something disturbed it."""
        return self._failure is not None

    def _raise(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"{self._name} was disturbed") from self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                body = str(self.count).encode()
                assert self._client.publish(self._name, body, 1 + self.count % 2) == 0
                message = self._client.take()
                assert (message.payload, message.dup) == (body, False), message
                self.count += 1
        except BaseException as failure:
            self._failure = failure
