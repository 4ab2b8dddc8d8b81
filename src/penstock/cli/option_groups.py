"""Groups of options that several commands share: a dataclass whose fields are the options.

::

      @expand_option_groups
      def sub(topic: …, connection: Connection) -> None: …

Typer sees a function with the parameter ``topic`` and one for every field of ``Connection``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command for Typer: replace each parameter that is a dataclass by the fields of the
    class."""
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

    def run_command(**values: Any) -> None:
        for name, group in groups.items():
            names = [field.name for field in fields(group) if field.name in values]
            values[name] = group(**{field: values.pop(field) for field in names})
        command(**values)

    function: Any = run_command  # a function's signature is no attribute that mypy knows
    function.__name__ = command.__name__
    function.__doc__ = command.__doc__
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_command


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
