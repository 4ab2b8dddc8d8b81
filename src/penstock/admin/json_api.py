"""The JSON API: its operations over HTTP.

::

      request ─▶ authenticate (401) ─▶ rate limit (429) ─▶ confirm the session (401)
              ─▶ check the role (403) ─▶ decode (400)
              ─▶ the broker, over the control socket ─▶ 200, or 404, 409, 503
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.admin.access import Gate, Principal
from penstock.admin.broker import BrokerRequests
from penstock.admin.events import EventReader, ListEvents
from penstock.admin.logins import HttpRefusal
from penstock.admin.openapi import document
from penstock.admin.operations import OPERATIONS, PREFIX, Operation
from penstock.admin.parameters import BadRequest, from_json, from_query
from penstock.admin.rate_limiter import RateLimiter
from penstock.auth.admin_tokens import VIEWER
from penstock.control.admin_requests import LiftBan, MakeBan
from penstock.control.client import RequestRefused
from penstock.control.metric_requests import ReadHealth, ReadMetrics
from penstock.errors import ConfigError, PenstockError

BODY_BYTES_MAX: Final = 131_072

BODY_S: Final = 10.0
"""Time within which the body of a request must arrive, seconds."""

Handler = Callable[[Request], Awaitable[Response]]


def api_routes(broker: BrokerRequests, events: EventReader, gate: Gate) -> list[BaseRoute]:
    """Return the routes of all operations, and of the OpenAPI document."""
    limiter = RateLimiter()
    described = msgspec.json.encode(document())

    async def openapi(request: Request) -> Response:
        admitted = await admit_with_role(gate, limiter, request, VIEWER, modifies=False)
        if isinstance(admitted, HttpRefusal):
            return refusal(*admitted)
        return Response(described, media_type="application/json")

    routes: list[BaseRoute] = [
        Route(
            PREFIX + each.path,
            _handler(each, broker, events, gate, limiter),
            methods=[each.method],
            name=each.name,
        )
        for each in OPERATIONS
    ]
    return [*routes, Route(f"{PREFIX}/openapi.json", openapi, name="openapi")]


def _handler(
    operation: Operation,
    broker: BrokerRequests,
    events: EventReader,
    gate: Gate,
    limiter: RateLimiter,
) -> Handler:
    async def handle(request: Request) -> Response:
        admitted = await admit_with_role(
            gate, limiter, request, operation.role, modifies=operation.modifies
        )
        if isinstance(admitted, HttpRefusal):
            return refusal(*admitted)
        try:
            if operation.modifies:
                command = from_json(operation.request, await json_body(request))
                command = msgspec.structs.replace(command, by=admitted.by)
                if isinstance(command, MakeBan | LiftBan):
                    command = msgspec.structs.replace(command, as_role=admitted.grant.role)
                answer = await broker.execute(command, operation.answer)  # type: ignore[arg-type]
            else:
                query = from_query(operation.request, request.query_params.multi_items())
                answer = await _answer_query(broker, events, query, operation)
        except BadRequest as mistake:
            return refusal(mistake.status, str(mistake))
        except RequestRefused as refused:
            return refusal(400 if refused.is_mistake else 409, str(refused))
        except ConfigError as error:  # the request has bytes that are not UTF-8
            return refusal(400, str(error))
        except PenstockError as error:
            return refusal(503, str(error))
        if answer is None:
            return refusal(404, "not found")
        if operation.convert is not None:
            answer = operation.convert(answer)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return handle


async def _answer_query(
    broker: BrokerRequests, events: EventReader, query: msgspec.Struct, operation: Operation
) -> Any:
    """Return the answer to a request that changes nothing, from the event log or the broker."""
    if isinstance(query, ListEvents):
        return await events.list_events(query)
    if isinstance(query, ReadHealth):
        return (await broker.health()).answer
    if isinstance(query, ReadMetrics):
        return (await broker.metrics()).answer
    return await broker.query(query, operation.answer)  # type: ignore[arg-type]


def refusal(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response with an error.

    Args:
        status: the HTTP status.
        why: the reason, one sentence.
        headers: further headers.
    """
    return JSONResponse({"error": why}, status, headers)


async def admit_with_role(
    gate: Gate, limiter: RateLimiter, request: Request, role: str, *, modifies: bool
) -> Principal | HttpRefusal:
    """Authenticate a request, apply the rate limit, and check the role.

    Args:
        gate: authenticates the request.
        limiter: limits the rate of requests of each token or user.
        request: the request.
        role: the role that the token or user must have at least.
        modifies: whether the request changes something.

    Returns:
        The token or user, or the reason for a refusal.
    """
    admitted = await gate.admit(request, limiter, modifies=modifies)
    if isinstance(admitted, HttpRefusal):
        return admitted
    grant = admitted.grant
    if not grant.may_act_as(role):
        return HttpRefusal(
            403, f"this needs the role {role}, and {grant.name} has the role {grant.role}"
        )
    return admitted


async def json_body(request: Request) -> bytes:
    """Return the body of a request.

    The content type must be JSON, because an HTML form of another site cannot send that type.

    Raises:
        BadRequest: the content type is another one, the body is larger than ``BODY_BYTES_MAX``,
            the request was aborted, or the body did not arrive within ``BODY_S``.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest("the body must be application/json", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES_MAX:
                    raise BadRequest(f"the body may have at most {BODY_BYTES_MAX} bytes", 413)
    except ClientDisconnect:
        raise BadRequest("the request was aborted before its body was complete") from None
    except TimeoutError:
        raise BadRequest(f"the body did not arrive within {BODY_S:g} s", 408) from None
    return bytes(body)
