"""Requests of the control socket, made of a query or of a JSON object.

The conditions on sessions, an object of their own in the request (``SessionFilter``), stand
beside the other parameters in a query. Fields that the admin process fills in itself are refused in
both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from penstock.control.admin_requests import SessionFilter

HIDDEN: Final = frozenset({"by", "owner", "offsets"})
"""Fields that are not asked for over HTTP: who asks, which the admin process knows, and offsets."""

Asked = TypeVar("Asked", bound=msgspec.Struct)


class Mistake(Exception):
    """A request that cannot be understood; the text says why.

    Attributes:
        status: the status of the answer.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def from_query(kind: type[Asked], query: Iterable[tuple[str, str]]) -> Asked:
    """Return the request that a query asks for.

    Raises:
        Mistake: a parameter is unknown, missing, given twice, or has a value that it may not have.
    """
    given: dict[str, Any] = {}
    for name, value in query:
        if name in given:
            raise Mistake(f"the parameter {name} is given twice")
        given[name] = value
    if "filter" in kind.__struct_fields__:
        conditions = {
            name: given.pop(name) for name in SessionFilter.__struct_fields__ if name in given
        }
        if "filter" in given:
            raise Mistake("the conditions are parameters of their own, such as client=press-*")
        given["filter"] = conditions
    _refuse_ours(given)
    return _converted(given, kind, strict=False)


def from_json(kind: type[Asked], body: bytes) -> Asked:
    """Return the request that a JSON object asks for; errors as of ``from_query``."""
    try:
        given = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Mistake(f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise Mistake("the body must be a JSON object")
    _refuse_ours(given)
    return _converted(given, kind, strict=True)


def _refuse_ours(given: dict[str, Any]) -> None:
    for name in (*HIDDEN, "do"):
        if name in given:
            raise Mistake(f"there is no field {name}")


def _converted(given: dict[str, Any], kind: type[Asked], *, strict: bool) -> Asked:
    try:
        return msgspec.convert(given, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError, ValueError, OverflowError) as error:
        raise Mistake(str(error)) from None
