"""The base of every group of settings."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from penstock.engine.values.change_effects import RESTART, ChangeEffect, effect_declared_by


class SettingsGroup(BaseModel):
    """The base of all groups: refuses unknown settings, and cannot be changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_for_number(cls, value: object, of: ValidationInfo) -> object:
        """Refuse true and false where a number belongs; Python would take them as 1 and 0."""
        field = cls.model_fields[of.field_name or ""]
        if isinstance(value, bool) and field.annotation in (int, float):
            raise PydanticCustomError("true_or_false", "not a number")
        return value


def effect_of(model: type[BaseModel], name: str) -> ChangeEffect:
    """Return the moment from which a change of the field `name` of `model` takes effect in a
    running broker."""
    for declared in model.model_fields[name].metadata:
        if isinstance(declared, ChangeEffect):
            return declared
    for base in model.__mro__:
        if name in inspect.get_annotations(base):
            return effect_declared_by(base)
    return RESTART


def explanations(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each setting of a group, and of its base classes, by name of the
    setting.

    The texts are read from the source only when help or documents are written: reading them for
    every class would be a fifth of the time that it takes to load the settings. Without source
    text, in an installation of compiled files only, the result is empty.
    """
    return {
        name: text
        for base in reversed(model.__mro__)
        if base is not object and base is not BaseModel
        for name, text in _own_explanations(base).items()
    }


def _own_explanations(kind: type) -> dict[str, str]:
    """Return the text below each attribute of a class by name; Python does not keep these
    strings."""
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}
    (definition,) = ast.parse(dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for attribute, text in pairwise(definition.body):
        match attribute, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(explanation))),
            ):
                texts[name] = inspect.cleandoc(explanation)
    return texts
