"""The routes of the page: its files, and logging in and out.

::

      POST /page/login {"user", "password"} ─▶ a cookie, and the act secret for the page's memory
      GET /page/session ─▶ who is logged in, and the act secret again
      POST /page/logout ─▶ neither is worth anything any more

The policy for its content lets the page load its own files and ask its own server, and nothing
else; text becomes HTML nowhere (trusted types).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.admin.access import cookie_key, cookie_name, has_csrf_token, is_ours
from penstock.admin.api import json_body, refusal
from penstock.admin.logins import PAGE_AGE_S, HttpRefusal, Logins, address_of
from penstock.admin.parameters import Mistake, from_json
from penstock.admin.sessions import Session
from penstock.control.login_requests import LoginText
from penstock.errors import PenstockError
from penstock.version import __version__

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " form-action 'none'; frame-ancestors 'none'; base-uri 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)

LOGINS_MAX: Final = 12
"""Logins under way: those whose forms do not arrive take no places of who is in already."""

_KINDS: Final = {"js": "text/javascript", "css": "text/css"}
_FILES: Final = ("page.css", "page.js", "api.js", "dom.js", "overview.js", "clients.js", "lists.js")


class _Form(msgspec.Struct, forbid_unknown_fields=True):
    user: LoginText
    password: LoginText


def page_routes(logins: Logins | None) -> list[BaseRoute]:
    """Return the routes of the page; without logins it says what to set."""
    under_way = 0

    async def log_in(request: Request) -> Response:
        nonlocal under_way
        if logins is None:
            return refusal(403, "nobody may log in: set admin.users, or admin.token_file")
        if not is_ours(request):
            return refusal(403, "a page of another site asks")
        if under_way >= LOGINS_MAX:
            return refusal(503, "too many logins are under way", {"Retry-After": "1"})
        under_way += 1
        try:
            return await _logged_in(logins, request)
        finally:
            under_way -= 1

    async def who(request: Request) -> Response:
        key = cookie_key(request)
        session = None if logins is None else logins.find(key, address_of(request))
        if session is None or not is_ours(request):
            return JSONResponse({"user": None, "logins": logins is not None})
        return _session(session)

    async def log_out(request: Request) -> Response:
        key = cookie_key(request)
        session = None if logins is None else logins.find(key, address_of(request))
        if logins is not None and session is not None:
            if not is_ours(request) or not has_csrf_token(request, session):
                return refusal(403, "this is not the page's own request")
            logins.end(key)
        answer = Response(status_code=204)
        answer.delete_cookie(cookie_name(request), secure=request.url.scheme == "https")
        return answer

    return [
        Route("/", _file("page.html", "text/html")),
        *(Route(f"/page/{name}", _file(name, _KINDS[name.rpartition(".")[2]])) for name in _FILES),
        Route("/favicon.ico", lambda _: Response(status_code=204)),  # browsers ask for one
        Route("/page/login", log_in, methods=["POST"]),
        Route("/page/session", who),
        Route("/page/logout", log_out, methods=["POST"]),
    ]


async def _logged_in(logins: Logins, request: Request) -> Response:
    """Answer the form of a login with a session and its cookie, or with a refusal."""
    try:
        form = from_json(_Form, await json_body(request))
        found = await logins.log_in(form.user, form.password, address_of(request))
    except Mistake as mistake:
        return refusal(mistake.status, str(mistake))
    except PenstockError as error:
        return refusal(503, str(error))
    if isinstance(found, HttpRefusal):
        return refusal(*found)
    secret, session = found
    answer = _session(session)
    answer.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(PAGE_AGE_S),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that answers with a file of the page."""
    text = (files("penstock.admin.page") / name).read_text(encoding="utf-8")
    content = text.replace("{{version}}", __version__).encode()

    async def answer(request: Request) -> Response:
        del request
        headers = {"Content-Security-Policy": POLICY}
        return Response(content, media_type=kind, headers=headers)

    return answer


def _session(session: Session) -> JSONResponse:
    grant = session.grant
    return JSONResponse({"user": grant.name, "role": grant.role, "csrf_token": session.csrf_token})
