"""The JSON API: its operations over HTTP.

::

      request ─▶ who? 401 ─▶ not too often? 429 ─▶ still? 401 ─▶ its role? 403 ─▶ understood? 400
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
from penstock.admin.broker import Broker
from penstock.admin.events import EventReader, ListEvents
from penstock.admin.logins import HttpRefusal
from penstock.admin.openapi import document
from penstock.admin.operations import OPERATIONS, PREFIX, Operation
from penstock.admin.parameters import Mistake, from_json, from_query
from penstock.admin.rate_limiter import RateLimiter
from penstock.auth.admin_tokens import VIEWER
from penstock.control.client import RequestRefused
from penstock.control.metric_requests import ReadHealth, ReadMetrics
from penstock.errors import ConfigError, PenstockError

BODY_BYTES_MAX: Final = 131_072

BODY_S: Final = 10.0
"""Time for the body of a request to arrive, seconds."""

Handler = Callable[[Request], Awaitable[Response]]


def api_routes(broker: Broker, events: EventReader, gate: Gate) -> list[BaseRoute]:
    """Return the routes of all operations, and of the document about them."""
    limiter = RateLimiter()
    described = msgspec.json.encode(document())

    async def openapi(request: Request) -> Response:
        admitted = await admitted_as(gate, limiter, request, VIEWER, acts=False)
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
    operation: Operation, broker: Broker, events: EventReader, gate: Gate, limiter: RateLimiter
) -> Handler:
    async def handle(request: Request) -> Response:
        admitted = await admitted_as(gate, limiter, request, operation.role, acts=operation.acts)
        if isinstance(admitted, HttpRefusal):
            return refusal(*admitted)
        try:
            if operation.acts:
                asked = from_json(operation.request, await json_body(request))
                asked = msgspec.structs.replace(asked, by=admitted.by)
                answer = await broker.act(asked, operation.answer)  # type: ignore[arg-type]
            else:
                asked = from_query(operation.request, request.query_params.multi_items())
                answer = await _queried(broker, events, asked, operation)
        except Mistake as mistake:
            return refusal(mistake.status, str(mistake))
        except RequestRefused as refused:
            return refusal(400 if refused.is_mistake else 409, str(refused))
        except ConfigError as error:  # bytes that are no UTF-8
            return refusal(400, str(error))
        except PenstockError as error:
            return refusal(503, str(error))
        if answer is None:
            return refusal(404, "there is none")
        if operation.finish is not None:
            answer = operation.finish(answer)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return handle


async def _queried(
    broker: Broker, events: EventReader, asked: msgspec.Struct, operation: Operation
) -> Any:
    """Return the answer to a request that changes nothing: from the events or the broker."""
    if isinstance(asked, ListEvents):
        return await events.listed(asked)
    if isinstance(asked, ReadHealth):
        return (await broker.health()).answer
    if isinstance(asked, ReadMetrics):
        return (await broker.metrics()).answer
    return await broker.query(asked, operation.answer)  # type: ignore[arg-type]


def refusal(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    """Return the response to a request that is refused, or that failed."""
    return JSONResponse({"error": why}, status, headers)


async def admitted_as(
    gate: Gate, limiter: RateLimiter, request: Request, role: str, *, acts: bool
) -> Principal | HttpRefusal:
    """Authenticate a request; refuse one whose token or user may not act as ``role``, or asks too
    often.

    Returns:
        The token or user, or why the request is refused.
    """
    admitted = await gate.admit(request, limiter, acts=acts)
    if isinstance(admitted, HttpRefusal):
        return admitted
    grant = admitted.grant
    if not grant.may_act_as(role):
        return HttpRefusal(
            403, f"this needs the role {role}, and {grant.name} has the role {grant.role}"
        )
    return admitted


async def json_body(request: Request) -> bytes:
    """Return the body of a request, which must say that it is JSON: no form of a page does.

    Raises:
        Mistake: it says something else, is too large, does not arrive, or not in time.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Mistake("the body must be application/json", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES_MAX:
                    raise Mistake(f"the body may have {BODY_BYTES_MAX} bytes", 413)
    except ClientDisconnect:
        raise Mistake("the request ended before its body did") from None
    except TimeoutError:
        raise Mistake(f"the body did not arrive within {BODY_S:g} s", 408) from None
    return bytes(body)
