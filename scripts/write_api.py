"""Write docs/api.md from the operations of the API; `make check` fails while it is out of date."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from penstock.admin.openapi import REFUSALS, document
from penstock.admin.operations import OPERATIONS, PREFIX, Operation

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "api.md"
_INTRODUCTION: Final = """\
# The API

<!-- Written by `make docs` from src/penstock/admin/operations.py; change it there. -->

The admin process ([monitoring.md](monitoring.md)) offers over HTTP what the commands
`penstock clients`, `sessions`, `retained`, `bans` and `reload` do ([control.md](control.md)):

```sh
printf 'alice:%s operator\\n' "$(openssl rand -hex 32)" > tokens && chmod 600 tokens
PENSTOCK_ADMIN__TOKEN_FILE=tokens penstock serve --admin 127.0.0.1:8080

api=http://127.0.0.1:8080/api/v1
token=$(sed 's/.*:\\([^ ]*\\) .*/\\1/' tokens)
curl -H "Authorization: Bearer $token" "$api/sessions?client=press-*"
curl -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \\
     -d '{"filter": {"client": "press-7"}, "why": "maintenance"}' "$api/sessions/kick"
```

An operation that changes nothing is a GET with parameters in the query; one that changes something
is a POST with a JSON object. The conditions on sessions (`client`, `user`, `address`, `connected`,
`older_than_s`; patterns as in a shell) are parameters of a GET, and the object `filter` of a POST,
where `{}` means all sessions. Operations on many sessions, messages or bans have `only_count`: with
it they change nothing, and the answer is the number that they would affect. Lists are paged:
`cursor` of an answer goes into the next request, and is empty on the last page.

`GET /api/v1/openapi.json` is the OpenAPI 3.1 document of all operations. It is generated from the
types with which the broker itself decodes requests.

## Tokens and roles

The token file (admin.token_file) has one token a line, `[NAME:]TOKEN [ROLE]`, and only the broker's
user may read it. Users of the broker with a role in admin.users authenticate with their password
instead (`curl -u alice`), as they do on [the page](page.md). If neither is set, the API refuses all
requests.

| role | may |
|---|---|
| `viewer`, or none | read: lists, one session, metrics |
| `operator` | also kick, ban, lift bans, and read the payload of a retained message |
| `admin` | also remove sessions, clear retained messages, drain the broker, and reload |

Each POST is a line in the broker's log and an [event](audit.md) `administered`, `by` the name of
the token or user and the address it came from: `alice at 10.0.0.7 (API) disconnected 1 clients`.
Tokens are compared by their hashes: a right one and a wrong one take the same time
(`python -m benchmarks.admin_tokens`). One token or user may send 20 requests a second, with bursts
of 40. A POST must have the content type `application/json`, and with the cookie of the page also
the CSRF token of its session (`X-CSRF-Token`), so that no other page in a browser can send it on
the user's behalf.

The broker checks a password as it checks those of clients, with the same delays and bans
([security.md](security.md#wrong-passwords)), and checks it again after five minutes; before each
POST it confirms that the user still has its role. One address may try ten passwords in a burst, and
one more every two seconds.

`GET /events` lists events from the newest to older ones; `cursor` of an answer continues with older
ones. An answer may have fewer than `limit` entries and yet a cursor, if the search took longer than
three seconds. The operation needs `events.enabled`, and is otherwise refused with 409.
"""


def as_markdown() -> str:
    """Return the text of docs/api.md."""
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
    if each.modifies:
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
    """Return the type of an answer in a few words, such as "list of `Page`"."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", "object"))


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
