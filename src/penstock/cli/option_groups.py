"""Groups of options that several commands share: a dataclass whose fields are the options.

::

      @grouped
      def sub(topic: …, connection: Connection) -> None: …

is to Typer a function with ``topic`` and every field of ``Connection``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` for Typer, with its dataclass parameters replaced by their fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            groups[parameter.name] = hint
            parameters.extend(_fields_of(hint))
        else:
            parameters.append(parameter.replace(annotation=hint, kind=parameter.KEYWORD_ONLY))

    def expanded(**given: Any) -> None:
        for name, group in groups.items():
            chosen = [field.name for field in fields(group) if field.name in given]
            given[name] = group(**{field: given.pop(field) for field in chosen})
        command(**given)

    function: Any = expanded  # a function's signature is no attribute that mypy knows
    function.__name__ = command.__name__
    function.__doc__ = command.__doc__
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {one.name: one.annotation for one in parameters}
    return expanded


def _fields_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
