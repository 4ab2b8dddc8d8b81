"""The OpenAPI 3.1 document of the API, generated from its operations.

Its schemas are generated from the types of the requests (JSON Schema 2020-12, as OpenAPI 3.1 uses
it), without the fields that HTTP requests must not have.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.admin.access import COOKIE
from penstock.admin.operations import OPERATIONS, PREFIX, Operation
from penstock.admin.parameters import HIDDEN
from penstock.control.admin_requests import SessionFilter
from penstock.version import __version__

_REFERENCE: Final = "#/components/schemas/{name}"

REFUSALS: Final = {
    "400": "The request is not valid; the sentence says why.",
    "401": "The request has no token, password or session, or an invalid one.",
    "403": "The token or user does not have the role that the operation needs.",
    "404": "The session or message does not exist.",
    "408": "The body did not arrive in time.",
    "409": "The broker refuses the request in its present state; the sentence says why.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "The token or user sent too many requests; try again in a second.",
    "503": (
        "The broker does not answer in time, or too many requests wait."
        " The operation may have been carried out or not."
    ),
}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    types = [kind for each in OPERATIONS for kind in (each.request, each.http_answer)]
    schemas, components = msgspec.json.schema_components(
        [*types, SessionFilter], ref_template=_REFERENCE
    )
    for component in components.values():
        _hide(component)
    paths: dict[str, Any] = {}
    for place, each in enumerate(OPERATIONS):
        answer = schemas[2 * place + 1]
        if each.may_be_missing:
            answer = next(kind for kind in answer["anyOf"] if kind != {"type": "null"})
        method = each.method.lower()
        paths.setdefault(each.path, {})[method] = _operation(each, components, answer)
    queried = {each.request.__name__ for each in OPERATIONS if not each.modifies}
    for name in queried:  # their fields are parameters
        components.pop(name, None)
    components["Error"] = {
        "type": "object",
        "properties": {"error": {"type": "string", "description": "One sentence."}},
        "required": ["error"],
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "description": "Inspect and control a running broker; see docs/api.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": PREFIX}],
        "security": [{"token": []}, {"password": []}, {"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
            "schemas": components,
        },
    }


def _operation(
    each: Operation, components: dict[str, Any], answer: dict[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.text,
        "description": f"Needs the role {each.role}.",
        "responses": {
            "200": {
                "description": "Done.",
                "content": {"application/json": {"schema": answer}},
            },
            **{
                code: _refusal_schema(text)
                for code, text in REFUSALS.items()
                if _can_refuse(each, code)
            },
        },
    }
    if each.modifies:
        described["requestBody"] = {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": _REFERENCE.format(name=each.request.__name__)}
                }
            },
        }
    else:
        described["parameters"] = _parameters(components[each.request.__name__], components)
    return described


def _can_refuse(each: Operation, code: str) -> bool:
    if code == "404":
        return each.may_be_missing
    return each.modifies or code not in ("408", "413", "415")


def _refusal_schema(text: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(name="Error")}}},
    }


def _parameters(component: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    properties = dict(component["properties"])
    if properties.pop("filter", None) is not None:
        properties = components["SessionFilter"]["properties"] | properties
    required = set(component["required"])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _query_schema(schema)}
        for name, schema in properties.items()
    ]


def _query_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter: the field's, without null; omission means null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return dict(kinds[0]) if len(kinds) == 1 else schema


def _hide(component: dict[str, Any]) -> None:
    """Remove from a schema the hidden fields, and all but the summary of the description."""
    for name in (*HIDDEN, "do"):
        component.get("properties", {}).pop(name, None)
    if "required" in component:
        component["required"] = [
            name for name in component["required"] if name not in (*HIDDEN, "do")
        ]
    if "description" in component:
        component["description"] = component["description"].partition("\n\n")[0]
