"""The answers of the admin process to HTTP.

===========  ========================================================  =======
path         what it says                                              token
===========  ========================================================  =======
/            the page of operators (``page``)                          a login
/healthz     200 while the broker's event loop turns, else 503         none
/readyz      200 while clients can be served, else 503; of a cluster   none
             only the primary, or another role that is asked for
/metrics     all metrics, for Prometheus; 503 if the broker is silent  asked
/api/v1/…    the JSON API (``api``)                                    needed
===========  ========================================================  =======

Checks are JSON. Where tokens or passwords are asked for, a request without one is told which check
failed, and not why: reasons name paths of this machine. Checks are answered however many other
requests there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.admin.access import Gate
from penstock.admin.api import api_routes, refusal
from penstock.admin.broker import Broker
from penstock.admin.events import EventReader
from penstock.admin.exposition import Exposition
from penstock.admin.health import (
    ANY,
    LAG_MAX,
    PRIMARY,
    STANDBY,
    Check,
    RequiredRole,
    alive,
    ready,
)
from penstock.admin.logins import HttpRefusal, Logins
from penstock.admin.page.routes import page_routes
from penstock.control.metric_requests import Health
from penstock.errors import PenstockError

ANSWERS_MAX: Final = 48
"""Requests that are answered at the same time, health checks apart: these have places of their
own."""

LAG_DIGITS_MAX: Final = 18

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer that has no other value for one."""

_CHECKS: Final = frozenset({"/healthz", "/readyz"})


def web_app(
    broker: Broker,
    exposition: Exposition,
    events: EventReader,
    gate: Gate,
    logins: Logins | None,
    disk_free_bytes_min: int,
) -> Starlette:
    """Return the application.

    Args:
        broker: asks the broker.
        exposition: writes its metrics.
        events: reads its events.
        gate: decides who may ask.
        logins: lets operators in; None: there are none.
        disk_free_bytes_min: free bytes of the disk below which the broker is not ready.
    """

    async def healthz(request: Request) -> Response:
        return _checked(await alive(broker), gate.recognises(request))

    async def readyz(request: Request) -> Response:
        try:
            required = required_role_of(request)
        except ValueError as error:
            return refusal(400, str(error))
        checks, health = await ready(broker, disk_free_bytes_min, required)
        return _checked(checks, gate.recognises(request), health)

    async def metrics(request: Request) -> Response:
        if gate.requires_credentials:
            admitted = await gate.admit(request, acts=False)
            if isinstance(admitted, HttpRefusal):
                return refusal(*admitted)
        try:
            found = await broker.metrics()
        except PenstockError as error:
            return refusal(503, str(error))
        text, content_type = exposition.text(found, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *api_routes(broker, events, gate),
            *page_routes(logins),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(gate))],
        exception_handlers={HTTPException: _refused},
    )


Next = Callable[[Request], Awaitable[Response]]


def _guard(gate: Gate) -> Callable[[Request, Next], Awaitable[Response]]:
    """Return the middleware before all routes.

    It refuses another machine's ``Host`` and more than ``ANSWERS_MAX`` requests at once, and adds
    ``HEADERS`` to each response.
    """
    answering = 0

    async def guard(request: Request, call_next: Next) -> Response:
        nonlocal answering
        is_check = request.scope["path"] in _CHECKS  # what it says, whatever the Host header says
        if not gate.accepts_host(request.headers.get("host", "")):
            response = refusal(
                421, "the Host header names another machine; ask for localhost, or 127.0.0.1"
            )
        elif answering >= ANSWERS_MAX and not is_check:
            response = refusal(503, "too many requests are answered now", {"Retry-After": "1"})
        else:
            answering += not is_check
            try:
                response = await call_next(request)
            finally:
                answering -= not is_check
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


def required_role_of(request: Request) -> RequiredRole:
    """Return the role of a member that a request asks for; ValueError if there is none such.

    Its parameters are ``role`` (primary, standby, any) and ``lag`` (entries).
    """
    role = request.query_params.get("role", PRIMARY)
    lag = request.query_params.get("lag", str(LAG_MAX))
    if role not in (PRIMARY, STANDBY, ANY):
        raise ValueError(f"role must be {PRIMARY}, {STANDBY} or {ANY}")
    if not (lag.isascii() and lag.isdigit() and len(lag) <= LAG_DIGITS_MAX):
        raise ValueError("lag must be a number of entries, 0 or more")
    return RequiredRole(role, int(lag))


def _checked(checks: Sequence[Check], with_reasons: bool, health: Health | None = None) -> Response:
    passes = all(check.passes for check in checks)
    told: list[dict[str, object]] = []
    for check in checks:
        line: dict[str, object] = {"check": check.name, "passes": check.passes}
        if with_reasons:
            line["why"] = check.why
        told.append(line)
    answer: dict[str, object] = {"passes": passes, "checks": told}
    if health is not None and health.role:
        answer |= {"role": health.role, "lag": health.lag}
    return JSONResponse(answer, 200 if passes else 503)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a path or a method that does not exist."""
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
