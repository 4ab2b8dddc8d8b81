"""What every group of settings shares."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Group(BaseModel):
    """The base of all groups: none has unknown settings, or changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, of: ValidationInfo) -> object:
        """Python counts with true and false; who writes one for a number meant something else."""
        field = cls.model_fields[of.field_name or ""]
        if isinstance(value, bool) and field.annotation in (int, float):
            raise PydanticCustomError("true_or_false", "not a number")
        return value
