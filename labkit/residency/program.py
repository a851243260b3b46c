"""A model as its specification states it: its functions and their operations, before anybody places them."""

import msgspec

from labkit.residency.plan import Operation
from labkit.residency.values import Shape, Value


class Input(Value, frozen=True, omit_defaults=True):
    """An input of a model. `shape` is the default one; flexible inputs also say which others they take."""

    enumerated: tuple[Shape, ...] = ()
    ranges: tuple[tuple[int, int | None], ...] = ()  # lowest and highest size of each dimension; None: no limit

    @property
    def flexible(self) -> bool:
        """Whether the input takes more than one shape."""
        return len(self.enumerated) > 1 or any(low != high for low, high in self.ranges)


class Function(msgspec.Struct, frozen=True):
    """One function: its operations in program order, depth first, `const` left out and counted."""

    name: str  # "main"; "1/main": of the second model of a pipeline
    opset: str | None  # CoreML7; None for a neural network
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    constants: int
    states: tuple[Value, ...] = ()


class Model(msgspec.Struct, frozen=True):
    """What a model file holds. `functions` of a pipeline's models have the model's index before their names."""

    name: str  # file name without its ending
    kind: str  # mlProgram, neuralNetwork, pipeline
    specification_version: int
    sha256: str  # of the specification's bytes (a .mlmodelc: of its program text)
    functions: tuple[Function, ...]
    default_function: str  # the one that Core ML plans when nobody asks for another
    weight_bytes: int | None = None  # size of the weight files beside it; None: none are there
    notes: tuple[str, ...] = ()  # what a reader should know: parts that cannot be walked, missing weights

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Of all functions, one after the other."""
        return tuple(operation for function in self.functions for operation in function.operations)
