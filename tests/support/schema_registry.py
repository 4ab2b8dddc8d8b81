"""A schema registry on loopback: the part of Confluent's REST API that readers use."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class SchemaRegistry:
    """What it knows, and what it was asked.

    Attributes:
        url: where it is.
        login: what it asks for, USER:PASSWORD; empty for nothing.
        asked: the paths of all requests.
        fails_with: an HTTP status that it answers everything with; 0 for none.
        gives_source: whether it has Protobuf as source only, whatever format is asked for.
    """

    url: str = ""
    login: str = ""
    asked: list[str] = field(default_factory=list)
    fails_with: int = 0
    gives_source: bool = False
    _schemas: list[dict[str, Any]] = field(default_factory=list)
    _subjects: dict[str, list[int]] = field(default_factory=dict)

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", *references: tuple[str, str, int]
    ) -> int:
        """Add a schema; returns its id. Protobuf's is its descriptor in base64."""
        entry: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":  # as the registry leaves it out
            entry["schemaType"] = kind
        if references:
            names = ("name", "subject", "version")
            entry["references"] = [dict(zip(names, one, strict=True)) for one in references]
        self._schemas.append(entry)
        self._subjects.setdefault(subject, []).append(len(self._schemas))
        return len(self._schemas)

    def answer(self, target: str, authorization: str) -> tuple[int, dict[str, Any]]:
        """Status and body for a request."""
        self.asked.append(target)
        if self.fails_with:
            return self.fails_with, {"error_code": self.fails_with * 100 + 1, "message": "down"}
        expected = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and authorization != expected:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(target)
        is_serialized = parse_qs(parts.query).get("format") == ["serialized"]
        match [unquote(part) for part in parts.path.strip("/").split("/")]:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self._schemas):
                return 200, self._entry(int(number), is_serialized)
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions", _] if subject not in self._subjects:
                return 404, {"error_code": 40401, "message": "Subject not found"}
            case ["subjects", subject, "versions", version]:
                ids = self._subjects[subject]
                place = len(ids) if version == "latest" else int(version)
                if not 0 < place <= len(ids):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                found = self._entry(ids[place - 1], is_serialized)
                return 200, {"subject": subject, "version": place, "id": ids[place - 1], **found}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _entry(self, number: int, is_serialized: bool) -> dict[str, Any]:
        entry = self._schemas[number - 1]
        is_protobuf = entry.get("schemaType") == "PROTOBUF"
        if is_protobuf and (self.gives_source or not is_serialized):
            return {**entry, "schema": 'syntax = "proto3"; message Source {}'}
        return entry


@contextmanager
def schema_registry(login: str = "") -> Iterator[SchemaRegistry]:
    """A registry that answers until the block ends."""
    registry = SchemaRegistry(login=login)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
