"""Retained messages: the last known good value of each topic (v3.1 §2.1 RETAIN).

A tree of topic levels, so that a new subscription with wildcards visits only what it
matches. An empty payload removes the message and is not itself retained [MQTT-3.3.1-6].
"""

from __future__ import annotations

from typing import final

from penstock.engine.message import Message


@final
class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.message: Message | None = None


@final
class RetainedMessages:
    """At most ``limit`` retained messages, one for each topic."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._root = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, message: Message) -> bool:
        """Keep ``message`` for its topic; False when there is no room for a new topic."""
        node = self._root
        if self._count >= self._limit and self.get(message.topic) is None:
            return False
        for level in message.topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = _Node()
                node.children[level] = child
            node = child
        if node.message is None:
            self._count += 1
        node.message = message
        return True

    def remove(self, topic: str) -> bool:
        """Forget the message of ``topic``; whether there was one."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                return False
            path.append((node, level))
            node = child
        if node.message is None:
            return False
        node.message = None
        self._count -= 1
        while path and _is_unused(node):
            node, level = path.pop()
            del node.children[level]
        return True

    def get(self, topic: str) -> Message | None:
        """The retained message of exactly ``topic``."""
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                return None
            node = child
        return node.message

    def match(self, topic_filter: str) -> list[Message]:
        """The retained messages whose topics ``topic_filter`` matches."""
        found: list[Message] = []
        self._walk(self._root, topic_filter.split("/"), 0, found)
        return found

    def _walk(self, node: _Node, wanted: list[str], depth: int, found: list[Message]) -> None:
        if depth == len(wanted):
            if node.message is not None:
                found.append(node.message)
            return
        level = wanted[depth]
        if level == "#":
            _everything(node, depth == 0, found)
        elif level == "+":
            for name, child in node.children.items():
                if depth > 0 or not name.startswith("$"):
                    self._walk(child, wanted, depth + 1, found)
        else:
            exact = node.children.get(level)
            if exact is not None:
                self._walk(exact, wanted, depth + 1, found)


def _is_unused(node: _Node) -> bool:
    # A function of its own: beside `node.message = None` the type checker takes the message of
    # every other node for None too, and the compiled code would insist on it.
    return not node.children and node.message is None


def _everything(node: _Node, first_level: bool, found: list[Message]) -> None:
    """All messages at and below ``node``; at the first level not those under ``$``."""
    if node.message is not None:
        found.append(node.message)
    for name, child in node.children.items():
        if not first_level or not name.startswith("$"):
            _everything(child, False, found)
