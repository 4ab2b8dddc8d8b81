"""Decodes the parameters of HTTP requests into requests of the control socket.

Parameters come in a query or in a JSON object. The conditions on sessions are an object of their
own in a JSON object (``SessionFilter``), and parameters beside the others in a query. Fields that
the admin process sets itself are refused in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from penstock.control.admin_requests import SessionFilter

HIDDEN: Final = frozenset({"by", "as_role", "owner", "offsets"})
"""Fields that HTTP requests must not have: the admin process sets them, or leaves them out."""

RequestT = TypeVar("RequestT", bound=msgspec.Struct)


class BadRequest(Exception):
    """An HTTP request that is not valid; the text says why.

    Attributes:
        status: the HTTP status of the response.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def from_query(kind: type[RequestT], query: Iterable[tuple[str, str]]) -> RequestT:
    """Decode the parameters of a query; return the request.

    Raises:
        BadRequest: a parameter is unknown, missing, given twice, or has an invalid value.
    """
    given: dict[str, Any] = {}
    for name, value in query:
        if name in given:
            raise BadRequest(f"the parameter {name} is given twice")
        given[name] = value
    if "filter" in kind.__struct_fields__:
        conditions = {
            name: given.pop(name) for name in SessionFilter.__struct_fields__ if name in given
        }
        if "filter" in given:
            raise BadRequest("the conditions are parameters of their own, such as client=press-*")
        given["filter"] = conditions
    _refuse_hidden_fields(given)
    return _convert(given, kind, strict=False)


def from_json(kind: type[RequestT], body: bytes) -> RequestT:
    """Decode a JSON object; return the request.

    Raises:
        BadRequest: the body is not a JSON object, or a field is unknown, missing, or has an invalid
            value.
    """
    try:
        given = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadRequest("the body must be a JSON object")
    _refuse_hidden_fields(given)
    return _convert(given, kind, strict=True)


def _refuse_hidden_fields(given: dict[str, Any]) -> None:
    for name in (*HIDDEN, "do"):
        if name in given:
            raise BadRequest(f"there is no field {name}")


def _convert(given: dict[str, Any], kind: type[RequestT], *, strict: bool) -> RequestT:
    try:
        return msgspec.convert(given, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError, ValueError, OverflowError) as error:
        raise BadRequest(str(error)) from None
