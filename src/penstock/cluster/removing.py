"""Removes a server that is gone for good from the NATS servers of a cluster.

JetStream keeps a place for a server that is lost, and its copy of the log stays missing, until an
operator says that it will not come back. Then another server that runs gets a copy instead.

The leader of JetStream alone answers. If the lost server was the leader, nobody does until another
one is elected, so the request is sent again; what an earlier one did, whose answer was lost, is
done.
"""

from __future__ import annotations

import json
import time
from typing import Final

from penstock.cluster.jetstream import nats_client
from penstock.cluster.nats_client import (
    LoginRefused,
    NatsClient,
    NoAnswer,
    NotSent,
    UnfitServer,
)
from penstock.config.cluster import Cluster
from penstock.errors import StoreError, StoreUnavailable

REMOVE_SUBJECT: Final = "$JS.API.SERVER.REMOVE"
_AGAIN_S: Final = 2.0  # an attempt without an answer; a leader answers after one write
_NO_RESPONDERS: Final = 503
_NOT_A_MEMBER: Final = 10044


def remove_server(settings: Cluster, name: str, login_file: str, timeout_s: float) -> None:
    """Remove the server ``name``, which must not run, from JetStream.

    Args:
        settings: the cluster.
        name: name of the server.
        login_file: file with the login of the system account.
        timeout_s: time limit, seconds.

    Raises:
        StoreError: JetStream refuses it: there is no such server.
        StoreUnavailable: no server answers, or the login is not that of the system account.
    """
    client = nats_client(settings.model_copy(update={"credentials_file": login_file}), "remove")
    try:
        _remove(client, name, login_file, time.monotonic() + timeout_s)
    finally:
        client.close()


def _remove(client: NatsClient, name: str, login_file: str, ends_s: float) -> None:
    """Send the request until it is answered; see ``remove_server``."""
    body = json.dumps({"peer": name}).encode()
    is_unanswered = False
    while True:
        try:
            again_s = min(ends_s, time.monotonic() + _AGAIN_S)
            answer = client.request(REMOVE_SUBJECT, body, again_s)
            break
        except (UnfitServer, LoginRefused) as error:
            raise StoreUnavailable(f"{name} is not removed: {error}") from error
        except (NotSent, NoAnswer) as error:
            if time.monotonic() >= ends_s:
                raise StoreUnavailable(f"{name} is not removed: {error}") from error
            is_unanswered |= isinstance(error, NoAnswer)
    if answer.status == _NO_RESPONDERS:  # servers without JetStream's leader say nothing
        raise StoreUnavailable(
            f"{name} is not removed: {login_file} is not the login of the system account, or"
            " JetStream is off"
        )
    refusal = json.loads(answer.data).get("error")
    if refusal is None or (is_unanswered and refusal.get("err_code") == _NOT_A_MEMBER):
        return
    raise StoreError(f"{name} is not removed: {refusal.get('description')}")
