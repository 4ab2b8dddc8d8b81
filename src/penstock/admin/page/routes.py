"""The routes of the page: its files, login and logout.

::

      POST /page/login {"user", "password"} ─▶ the session's cookie, user, role and CSRF token
      GET /page/session ─▶ user, role and CSRF token of the session
      POST /page/logout ─▶ the session ends

The page's Content-Security-Policy allows it to load its own files and to send requests to its own
server, and nothing else; it forbids scripts to turn text into HTML (trusted types).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.admin.access import cookie_key, cookie_name, has_csrf_token, is_same_site
from penstock.admin.json_api import json_body, refusal
from penstock.admin.logins import PAGE_AGE_S, HttpRefusal, Logins, address_of
from penstock.admin.parameters import BadRequest, from_json
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
"""Logins under way at a time, so that slow ones do not use up ``web.ANSWERS_MAX``."""

_KINDS: Final = {"js": "text/javascript", "css": "text/css"}
_FILES: Final = ("page.css", "page.js", "api.js", "dom.js", "overview.js", "clients.js", "lists.js")


class _Form(msgspec.Struct, forbid_unknown_fields=True):
    user: LoginText
    password: LoginText


def page_routes(logins: Logins | None) -> list[BaseRoute]:
    """Return the routes of the page; without ``logins`` a login is refused with the reason."""
    under_way = 0

    async def log_in(request: Request) -> Response:
        nonlocal under_way
        if logins is None:
            return refusal(403, "nobody may log in: set admin.users, or admin.token_file")
        if not is_same_site(request):
            return refusal(403, "the request comes from a page of another site")
        if under_way >= LOGINS_MAX:
            return refusal(503, "too many logins are under way", {"Retry-After": "1"})
        under_way += 1
        try:
            return await _answer_login(logins, request)
        finally:
            under_way -= 1

    async def show_session(request: Request) -> Response:
        key = cookie_key(request)
        session = None if logins is None else logins.find(key, address_of(request))
        if session is None or not is_same_site(request):
            return JSONResponse({"user": None, "logins": logins is not None})
        return _session_response(session)

    async def log_out(request: Request) -> Response:
        key = cookie_key(request)
        session = None if logins is None else logins.find(key, address_of(request))
        if logins is not None and session is not None:
            if not is_same_site(request) or not has_csrf_token(request, session):
                return refusal(403, "the request does not come from the page of this session")
            logins.end(key)
        answer = Response(status_code=204)
        answer.delete_cookie(cookie_name(request), secure=request.url.scheme == "https")
        return answer

    return [
        Route("/", _file_handler("page.html", "text/html")),
        *(
            Route(f"/page/{name}", _file_handler(name, _KINDS[name.rpartition(".")[2]]))
            for name in _FILES
        ),
        Route("/favicon.ico", lambda _: Response(status_code=204)),  # browsers request it
        Route("/page/login", log_in, methods=["POST"]),
        Route("/page/session", show_session),
        Route("/page/logout", log_out, methods=["POST"]),
    ]


async def _answer_login(logins: Logins, request: Request) -> Response:
    """Log an operator in; return the response with the session's cookie, or a refusal."""
    try:
        form = from_json(_Form, await json_body(request))
        found = await logins.log_in(form.user, form.password, address_of(request))
    except BadRequest as mistake:
        return refusal(mistake.status, str(mistake))
    except PenstockError as error:
        return refusal(503, str(error))
    if isinstance(found, HttpRefusal):
        return refusal(*found)
    secret, session = found
    answer = _session_response(session)
    answer.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(PAGE_AGE_S),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def _file_handler(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that serves a file of the page."""
    text = (files("penstock.admin.page") / name).read_text(encoding="utf-8")
    content = text.replace("{{version}}", __version__).encode()

    async def answer(request: Request) -> Response:
        del request
        headers = {"Content-Security-Policy": POLICY}
        return Response(content, media_type=kind, headers=headers)

    return answer


def _session_response(session: Session) -> JSONResponse:
    grant = session.grant
    return JSONResponse({"user": grant.name, "role": grant.role, "csrf_token": session.csrf_token})
