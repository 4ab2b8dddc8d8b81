"""The base of every group of settings."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Group(BaseModel):
    """The base of all groups: none has unknown settings, or changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Explain the limits that the group inherits from the engine, as the engine does."""
        for base in cls.__mro__[:-1]:
            if not issubclass(base, BaseModel):
                for name, text in _explanations(base).items():
                    cls.model_fields[name].description = text

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, of: ValidationInfo) -> object:
        """Refuse true and false where a number belongs: Python would count with them."""
        field = cls.model_fields[of.field_name or ""]
        if isinstance(value, bool) and field.annotation in (int, float):
            raise PydanticCustomError("true_or_false", "not a number")
        return value


def _explanations(kind: type) -> dict[str, str]:
    """Return the text below each attribute of a class, which Python does not keep, by name.

    Nothing where the source text is not installed: only help texts and documents need it.
    """
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}
    (definition,) = ast.parse(dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for attribute, text in pairwise(definition.body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(explanation))),
            ):
                found[name] = inspect.cleandoc(explanation)
    return found
