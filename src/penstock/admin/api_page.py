"""The document of the API, docs/api.md, made from its operations."""

from __future__ import annotations

from typing import Any, Final

from penstock.admin.openapi import REFUSALS, document
from penstock.admin.operations import OPERATIONS, PREFIX, Operation

_INTRODUCTION: Final = """\
# The API

<!-- Written by `make docs` from src/penstock/admin/operations.py; change it there. -->

What `penstock clients`, `sessions`, `retained`, `bans` and `reload` do ([control.md](control.md)),
over HTTP, by the admin process ([monitoring.md](monitoring.md)):

```sh
printf 'alice:%s operator\\n' "$(openssl rand -hex 32)" > tokens && chmod 600 tokens
PENSTOCK_ADMIN__TOKEN_FILE=tokens penstock serve --admin 127.0.0.1:8080

api=http://127.0.0.1:8080/api/v1
token=$(sed 's/.*:\\([^ ]*\\) .*/\\1/' tokens)
curl -H "Authorization: Bearer $token" "$api/sessions?client=press-*"
curl -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \\
     -d '{"filter": {"client": "press-7"}, "why": "maintenance"}' "$api/sessions/kick"
```

What changes nothing is a GET with parameters in the query; what acts is a POST with a JSON object.
The conditions on sessions (`client`, `user`, `address`, `connected`, `older_than_s`; patterns as in
a shell) are parameters of a GET, and the object `filter` of a POST, where `{}` means all. Acts on
many have `only_count`: it changes nothing, and the answer is how many it would concern. Lists come
in pages: `cursor` of an answer goes into the next request, and is empty at the end.

`GET /api/v1/openapi.json` is all of it as an OpenAPI 3.1 document. It is made from the types by
which the broker itself reads requests.

## Tokens and roles

The token file (admin.token_file) has one token a line, `[NAME:]TOKEN [ROLE]`, and only the broker's
user may read it. Users of the broker with a role in admin.users show their password instead
(`curl -u alice`), as they do on [the page](page.md). Without both there is no API.

| role | may |
|---|---|
| `viewer`, or none | look: lists, one session, metrics |
| `operator` | also kick, ban, lift bans, and read the payload of a retained message |
| `admin` | also remove sessions, clear retained messages, empty the broker, and reload |

Each act is a line in the broker's log and an [event](audit.md) `administered`, `by` the name of the
token or user and the address it came from: `alice at 10.0.0.7 (API) disconnected 1 clients`. Tokens
are compared by their hashes: a right one and a wrong one take the same time
(`python -m benchmarks.admin_tokens`). One token or user may ask 20 times a second, after 40 times
at once. An act must say that it is `application/json`, and with the cookie of the page it must have
the CSRF token of its session (`X-CSRF-Token`), so that no other page in a browser can act for
somebody.

A password is checked by the broker, as that of a client, with the same delays and bans
([security.md](security.md#wrong-passwords)), and once more after five minutes; before each act the
broker is asked whether its user may still be here. One address may try ten passwords at once, and
one more every two seconds.

`GET /events` goes back from the newest event: `cursor` of an answer asks for older ones. An answer
may have fewer than `limit` and a cursor, where the search took longer than three seconds. It needs
`events.enabled`; without, it is refused with 409.
"""


def as_markdown() -> str:
    """Return the whole of docs/api.md."""
    described = document()
    lines = [
        _INTRODUCTION,
        "## Operations",
        "",
        "| operation | role | what it does | fields (* must be given) | answer |",
        "|---|---|---|---|---|",
        *(_row(each, described) for each in OPERATIONS),
        "",
        "## Refusals",
        "",
        'All are `{"error": "a sentence"}`.',
        "",
        "| status | |",
        "|---|---|",
        *(f"| {status} | {text} |" for status, text in REFUSALS.items()),
    ]
    return "\n".join(lines) + "\n"


def _row(each: Operation, described: dict[str, Any]) -> str:
    operation = described["paths"][each.path][each.method.lower()]
    if each.acts:
        schema = described["components"]["schemas"][each.request.__name__]
        required = set(schema["required"])
        fields = [(name, name in required) for name in schema["properties"]]
    else:
        fields = [(one["name"], one["required"]) for one in operation["parameters"]]
    shown = ", ".join(f"`{name}`{'*' if needed else ''}" for name, needed in fields)
    content = operation["responses"]["200"]["content"]["application/json"]["schema"]
    path = f"`{each.method} {PREFIX}{each.path}`"
    return f"| {path} | {each.role} | {each.text} | {shown} | {_kind(content)} |"


def _kind(schema: dict[str, Any]) -> str:
    """Return the type of an answer in a word or two."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", "object"))
