"""Requests to the admin process of a broker under test, over HTTP or HTTPS."""

import http.client
import json
import ssl
import time
from typing import Any, final
from urllib.parse import urlsplit

from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S


@final
class Answer:
    """An answer over HTTP; names of headers are in lower case."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.body)

    @property
    def checks(self) -> dict[str, bool]:
        """Of a health check: whether each passes."""
        return {one["check"]: one["passes"] for one in self.json["checks"]}

    def why(self, check: str) -> str:
        """Of a health check: the reason of one."""
        return next(str(one["why"]) for one in self.json["checks"] if one["check"] == check)


def get(
    broker: Broker, path: str, method: str = "GET", body: bytes | None = None, /, **headers: str
) -> Answer:
    """Ask the admin process, as soon as it serves."""
    ends_s = time.monotonic() + DEADLINE_S
    while True:
        connection = _connection(broker)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, named, answer.read())
        except (ConnectionError, http.client.BadStatusLine):  # it is starting
            assert time.monotonic() < ends_s, "the admin process does not serve"
        finally:
            connection.close()


def _connection(broker: Broker) -> http.client.HTTPConnection:
    url = urlsplit(broker.admin_url)
    host = url.hostname or ""
    if url.scheme != "https":
        return http.client.HTTPConnection(host, url.port, timeout=DEADLINE_S)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, url.port, timeout=DEADLINE_S, context=context)
