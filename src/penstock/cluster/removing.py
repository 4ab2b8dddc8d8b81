"""Removes a server that is gone for good from the NATS servers of a cluster.

JetStream keeps a place for a server that is lost, and its copy of the log stays missing, until an
operator says that it will not come back. Then another server that runs gets a copy instead.
"""

from __future__ import annotations

import json
import time
from typing import Final

from penstock.cluster.jetstream import nats_client
from penstock.cluster.nats_client import LoginRefused, NoAnswer, NotSent
from penstock.config.cluster import Cluster
from penstock.errors import StoreError, StoreFailed

REMOVE_SUBJECT: Final = "$JS.API.SERVER.REMOVE"
_NO_RESPONDERS: Final = 503


def remove_server(settings: Cluster, name: str, login_file: str, timeout_s: float) -> None:
    """Remove the server ``name``, which must not run, from JetStream.

    Args:
        settings: the cluster.
        name: name of the server.
        login_file: file with the login of the system account.
        timeout_s: time limit, seconds.

    Raises:
        StoreError: JetStream refuses it: there is no such server.
        StoreFailed: no server answers, or the login is not that of the system account.
    """
    client = nats_client(settings.model_copy(update={"credentials_file": login_file}), "remove")
    body = json.dumps({"peer": name}).encode()
    try:
        answer = client.request(REMOVE_SUBJECT, body, time.monotonic() + timeout_s)
    except (NotSent, NoAnswer, LoginRefused) as error:
        raise StoreFailed(f"{name} is not removed: {error}") from error
    finally:
        client.close()
    if answer.status == _NO_RESPONDERS:
        raise StoreFailed(
            f"{name} is not removed: JetStream has no leader, or {login_file} is not the login of"
            " the system account"
        )
    refusal = json.loads(answer.data).get("error")
    if refusal is not None:
        raise StoreError(f"{name} is not removed: {refusal.get('description')}")
