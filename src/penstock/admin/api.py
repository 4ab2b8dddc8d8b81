"""The JSON API: its operations over HTTP.

::

      request ─▶ token? 401 ─▶ not too often? 429 ─▶ its role? 403 ─▶ understood? 400
                  ─▶ the broker, over the control socket ─▶ 200, or 404, 409, 503
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.admin.access import Gate
from penstock.admin.broker import Broker
from penstock.admin.openapi import document
from penstock.admin.operations import OPERATIONS, PREFIX, Operation
from penstock.admin.parameters import Mistake, from_json, from_query
from penstock.admin.rates import Rates
from penstock.auth.admin_tokens import VIEWER, AdminGrant
from penstock.control.client import Refused
from penstock.errors import ConfigError, PenstockError

BODY_BYTES_MAX: Final = 131_072

Handler = Callable[[Request], Awaitable[Response]]


def api_routes(broker: Broker, gate: Gate) -> list[BaseRoute]:
    """Return the routes of all operations, and of the document about them."""
    rates = Rates()
    described = msgspec.json.encode(document())

    async def openapi(request: Request) -> Response:
        granted = _granted(gate, rates, request, VIEWER)
        if isinstance(granted, Response):
            return granted
        return Response(described, media_type="application/json")

    routes: list[BaseRoute] = [
        Route(
            PREFIX + each.path,
            _handler(each, broker, gate, rates),
            methods=[each.method],
            name=each.name,
        )
        for each in OPERATIONS
    ]
    return [*routes, Route(f"{PREFIX}/openapi.json", openapi, name="openapi")]


def _handler(operation: Operation, broker: Broker, gate: Gate, rates: Rates) -> Handler:
    async def handle(request: Request) -> Response:
        granted = _granted(gate, rates, request, operation.role)
        if isinstance(granted, Response):
            return granted
        try:
            if operation.acts:
                asked = from_json(operation.request, await _body(request))
                asked = msgspec.structs.replace(asked, by=_name(granted, request))
            else:
                asked = from_query(operation.request, request.query_params.multi_items())
            answer = await broker.ask(asked, operation.answer)  # type: ignore[arg-type]
        except Mistake as mistake:
            return refusal(400, str(mistake))
        except _NotJsonError:
            return refusal(415, "the body must be application/json")
        except _TooLargeError:
            return refusal(413, f"the body may have {BODY_BYTES_MAX} bytes")
        except Refused as refused:
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


def refusal(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    """Return the answer that something was not done."""
    return JSONResponse({"error": why}, status, headers)


def _granted(gate: Gate, rates: Rates, request: Request, role: str) -> AdminGrant | Response:
    """Return who asks, or the refusal."""
    if not gate.asks:
        return refusal(403, "the API needs admin.token_file, which says who may do what")
    grant = gate.grant(request.headers.get("authorization", ""))
    if grant is None:
        return refusal(
            401,
            "this asks for a token: Authorization: Bearer TOKEN",
            {"WWW-Authenticate": 'Bearer realm="penstock"'},
        )
    if not rates.may_ask(grant.name):
        return refusal(429, "the token was used too often", {"Retry-After": "1"})
    if not grant.may_act_as(role):
        return refusal(403, f"this needs the role {role}, and the token is a {grant.role}'s")
    return grant


def _name(grant: AdminGrant, request: Request) -> str:
    """Return who acts, for the log and the event."""
    address = "" if request.client is None else f" at {request.client.host}"
    return f"{grant.name}{address} (API)"


class _NotJsonError(Exception):
    pass


class _TooLargeError(Exception):
    pass


async def _body(request: Request) -> bytes:
    """Return the body of a request, which must say that it is JSON: no form of a page does."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _NotJsonError
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                raise _TooLargeError
    except ClientDisconnect:
        raise Mistake("the request ended before its body did") from None
    return bytes(body)
