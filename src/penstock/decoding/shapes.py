"""Describes the parts of a document that columns need as msgspec Structs: the rest is skipped.

The paths of all columns make a tree. A node that columns access only by key becomes a Struct
with a field for each key; where a path ends, and where a position in a list begins, the value is
taken unchanged, and the column follows the rest of its path.

    columns  temperature = "t.value", first = "list.0"      Struct(t: Struct(value), list)

A payload whose nodes have other types (`"t": 5`) does not fit the Structs. It is decoded without
them then, and put into the same Structs by `Shape.fill`, where `t` has nothing in it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.decoding.paths import follow, is_position, member

Read = Callable[[Any], Any]

_UNFIT: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters that msgspec allows in no field name: a document with such a key is built whole."""


class Shape:
    """The tree of paths, each with the type of the value there.

    Attributes:
        struct: the Struct of the root; None if columns take the root itself, or a position of it,
            and documents stay as they are.
        leaf: the type where a path ends.
        takes_anything: a value of any type is taken somewhere.
    """

    def __init__(self, paths: Sequence[tuple[tuple[str, ...], Any]], depth: int = 0) -> None:
        self.fields: dict[str, Shape] = {}
        self.struct: type[msgspec.Struct] | None = None
        self.leaf: Any = Any
        if any(
            len(path) == depth or is_position(path[depth]) or _UNFIT.search(path[depth])
            for path, _ in paths
        ):
            types = [leaf if len(path) == depth else Any for path, leaf in paths]
            self.leaf = types[0] if all(kind == types[0] for kind in types) else Any
            self.takes_anything = self.leaf is Any
            return
        keys = dict.fromkeys(path[depth] for path, _ in paths)
        for key in keys:
            below = [one for one in paths if one[0][depth] == key]
            self.fields[key] = Shape(below, depth + 1)
        self.takes_anything = any(shape.takes_anything for shape in self.fields.values())
        self._names = {key: f"f{number}" for number, key in enumerate(keys)}
        self.struct = msgspec.defstruct(
            f"Depth{depth}",
            [
                (self._names[key], shape.leaf, None)
                if shape.struct is None
                else (self._names[key], shape.struct, msgspec.field(default_factory=shape.struct))
                for key, shape in self.fields.items()
            ],
            rename={name: key for key, name in self._names.items()},
            gc=False,
        )

    def fill(self, value: object) -> Any:
        """Return a document that was decoded without the Structs, in them."""
        if self.struct is None:
            return value
        found = {
            self._names[key]: shape.fill(member(value, key)) for key, shape in self.fields.items()
        }
        return self.struct(**found)

    def reader(self, path: tuple[str, ...]) -> Read:
        """Return a function from a document to the value at a path."""
        node = self
        names: list[str] = []
        while node.struct is not None:
            key = path[len(names)]
            names.append(node._names[key])
            node = node.fields[key]
        keys = path[len(names) :]
        attribute = operator.attrgetter(".".join(names)) if names else _itself
        if not keys:
            return attribute
        return lambda document: follow(attribute(document), keys)


def _itself(document: Any) -> Any:
    return document
