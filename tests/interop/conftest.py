"""For stock clients over every transport: the broker of the transports' own tests."""

from tests.network.transports.conftest import transports

__all__ = ["transports"]
