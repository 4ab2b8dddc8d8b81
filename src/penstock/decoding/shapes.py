"""Describes the parts of a document that columns need as msgspec Structs: the rest is skipped.

The paths of all columns make a tree. A node that columns access only by key becomes a Struct with a
field for each key. Where a path ends, or its next key may be a position in a list, the value stays
as decoded, and the column follows the remaining keys in it.

    columns  temperature = "t.value", first = "list.0"      Struct(t: Struct(value), list)

A payload whose nodes have other types (`"t": 5`) does not fit the Structs. It is decoded without
them, and `Shape.fill` makes the same Structs of it, where the fields of `t` are None.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.decoding.paths import follow, is_position, member

Read = Callable[[Any], Any]

_NO_FIELD_NAME: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters that msgspec allows in no field name: a document with such a key is built whole."""


class Shape:
    """The tree of paths, each with the type of the value there.

    Attributes:
        fields: the shape below each key.
        struct: the Struct of the root; None if a column takes the root itself, or a position of it,
            and documents stay as decoded.
        leaf_type: the msgspec type of the value if ``struct`` is None.
        takes_anything: true if a leaf has the type Any.
    """

    def __init__(self, paths: Sequence[tuple[tuple[str, ...], Any]], depth: int = 0) -> None:
        self.fields: dict[str, Shape] = {}
        self.struct: type[msgspec.Struct] | None = None
        self.leaf_type: Any = Any
        if any(
            len(path) == depth or is_position(path[depth]) or _NO_FIELD_NAME.search(path[depth])
            for path, _ in paths
        ):
            types = [leaf_type if len(path) == depth else Any for path, leaf_type in paths]
            self.leaf_type = types[0] if all(kind == types[0] for kind in types) else Any
            self.takes_anything = self.leaf_type is Any
            return
        keys = dict.fromkeys(path[depth] for path, _ in paths)
        for key in keys:
            paths_below = [one for one in paths if one[0][depth] == key]
            self.fields[key] = Shape(paths_below, depth + 1)
        self.takes_anything = any(shape.takes_anything for shape in self.fields.values())
        self._field_names = {key: f"f{number}" for number, key in enumerate(keys)}
        self.struct = msgspec.defstruct(
            f"Depth{depth}",
            [
                (self._field_names[key], shape.leaf_type, None)
                if shape.struct is None
                else (
                    self._field_names[key],
                    shape.struct,
                    msgspec.field(default_factory=shape.struct),
                )
                for key, shape in self.fields.items()
            ],
            rename={name: key for key, name in self._field_names.items()},
            gc=False,
        )

    def fill(self, value: object) -> Any:
        """Return the Structs with the values of a document that was decoded without them."""
        if self.struct is None:
            return value
        found = {
            self._field_names[key]: shape.fill(member(value, key))
            for key, shape in self.fields.items()
        }
        return self.struct(**found)

    def reader(self, path: tuple[str, ...]) -> Read:
        """Return a function from a filled or decoded document to the value at a path."""
        node = self
        names: list[str] = []
        while node.struct is not None:
            key = path[len(names)]
            names.append(node._field_names[key])
            node = node.fields[key]
        keys = path[len(names) :]
        attribute = operator.attrgetter(".".join(names)) if names else _identity
        if not keys:
            return attribute
        return lambda document: follow(attribute(document), keys)


def _identity(document: Any) -> Any:
    return document
