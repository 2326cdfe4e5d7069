"""The types of recipe values, and the base class of all sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ansatz.registry import LARGEST


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a section of a recipe that is not checked yet. Anything but a mapping, which the schema refuses, is
    empty."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _no_bool(value: Any) -> Any:
    """Refuse true and false where a number is expected; to Python they are 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "should be a number")
    return value


def _below_largest(value: Any) -> Any:
    if abs(value) >= LARGEST:
        raise PydanticCustomError("number_size", "should be a number of at most 15 digits")
    return value


Int = Annotated[int, BeforeValidator(_no_bool), AfterValidator(_below_largest)]
Float = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False), AfterValidator(_below_largest)]
Positive = Annotated[Int, Field(gt=0)]
"""A number of things, at least one."""
Count = Annotated[Int, Field(ge=0)]
"""A number of things; 0 often switches a feature off, which the key's description then says."""
Rate = Annotated[Float, Field(ge=0)]
"""A real number that is not negative, such as a coefficient or a number of seconds."""
LearningRate = Annotated[Float, Field(ge=0, le=1000)]
Temperature = Annotated[Float, Field(ge=0, le=1000)]
"""Divides logits. At 1000, every token is about as likely as every other one."""
Seconds = Annotated[Float, Field(gt=0)]
"""A time limit."""
Fraction = Annotated[Float, Field(ge=0, le=1)]
PositiveFraction = Annotated[Float, Field(gt=0, le=1)]
FractionBelowOne = Annotated[Float, Field(ge=0, lt=1)]
StepEnd = Literal["line", "blank_line", "sentence"] | dict[Literal["marker"], str]
"""Where a reasoning step ends, together with the line ends after it. blank_line: steps are paragraphs. sentence: at a
full stop, question mark or exclamation mark before a space, and at the end of a line; a number in front of a step
belongs to it, and abbreviations are not known. {marker: TEXT}: right after this text, which is a part of the step."""


class Section(BaseModel):
    """A section of a recipe: frozen, without unknown keys. The docstring of a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
