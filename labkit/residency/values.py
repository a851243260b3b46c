"""What flows between operations: named values with an element type and a shape, as far as they are known."""

from math import prod
from typing import Annotated

import msgspec
from msgspec import Meta

Size = Annotated[int, Meta(ge=0, le=2**48)]
Shape = tuple[Size | None, ...]
Literal = bool | int | float | str | tuple[bool | int | float | str, ...]

_BITS = {
    "bool": 8, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (1, 2, 3, 4, 6, 8, 16, 32, 64)},
}  # fmt: skip


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One named value. None says unknown: for a dimension, one that is flexible and has no default."""

    name: str
    dtype: str | None = None  # fp16, fp32, int32, bool, string ...; a state's type is that of what it wraps
    shape: Shape | None = None  # () is a scalar; None: unknown rank, or no tensor

    @property
    def elements(self) -> int | None:
        """How many elements the value has; None where any dimension is unknown."""
        if self.shape is None or None in self.shape:
            return None
        return prod(self.shape)  # type: ignore[arg-type]

    @property
    def bytes(self) -> int | None:
        """Size in bytes, packed elements rounded up; None where the shape or the element's width is unknown."""
        elements, bits = self.elements, _BITS.get(self.dtype or "")
        return None if elements is None or bits is None else (elements * bits + 7) // 8


class Operand(Value, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One input of an operation. `name` is empty for an immediate value."""

    parameter: str  # as the operation calls it: x, weight, axes
    constant: bool = False  # known when the model is compiled: const and constexpr_* outputs, immediate values
    literal: Literal | None = None  # the constant itself, when it has at most LITERAL_LIMIT elements


LITERAL_LIMIT = 64
