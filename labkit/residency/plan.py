"""The plan: a model's operations in program order, each with the engine that it is planned on.

One versioned JSON file holds one plan. An operation is known by its key: function, block, ordinal. The same structure
comes from a model's specification (no placement yet), from Core ML (live), from another tool's record, from prediction.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from labkit.errors import BadInput
from labkit.records import Code, Kind
from labkit.residency.values import Operand, Value

SCHEMA = 1
ANE, GPU, CPU = "ANE", "GPU", "CPU"
ENGINES = (ANE, GPU, CPU)
"""The engines that Core ML names today. A plan may name others: they are shown as they are."""

ComputeUnits = Literal["CPU_ONLY", "CPU_AND_NE", "CPU_AND_GPU", "ALL"]
Source = Literal["live", "recorded", "predicted"]
Weight = Annotated[float, Meta(ge=0, le=1e300)]
Ordinal = Annotated[int, Meta(ge=0, le=2**31)]


class BadPlan(BadInput):
    """A plan file is damaged, foreign or contradicts itself."""


class Key(NamedTuple):
    """What tells an operation from every other one of its plan."""

    function: str
    block: str
    ordinal: int

    def __str__(self) -> str:
        return f"{self.function}{'/' + self.block if self.block else ''} #{self.ordinal}"


class Prediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the Neural Engine is expected to take an operation, and why."""

    ane: Literal["likely", "unlikely", "unknown"]
    rule: str  # id of the rule that decided
    reason: str
    confidence: Literal["high", "medium", "low"]
    conflicts: tuple[str, ...] = ()  # ids of rules or sources that say otherwise


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One operation and where it is planned. `const` operations are no operations; `constexpr_*` are, marked so."""

    function: str = "main"  # "1/main": of the second model of a pipeline
    block: str = ""  # "": the function's own; "7/0": first block of the operation with ordinal 7; "7/0/2/1": deeper
    ordinal: Ordinal  # position among the block's operations, `const` left out
    type: str  # without the opset: conv, not ios18.conv
    opset: str | None = None  # ios18
    name: str | None = None
    inputs: tuple[Operand, ...] = ()
    outputs: tuple[Value, ...] = ()
    preferred: str | None = None  # None: the source gives no engine
    supported: tuple[str, ...] | None = None  # None: the source does not say
    cost: Weight | None = None  # Core ML's own weight, relative within this plan; None: not given, never 0
    estimated_cost: Weight | None = None  # labkit's static model of it, on a scale of its own
    prediction: Prediction | None = None
    extra: dict[str, Any] = {}  # what a foreign record says beyond this

    @property
    def key(self) -> Key:
        """(function, block, ordinal)."""
        return Key(self.function, self.block, self.ordinal)

    @property
    def constant(self) -> bool:
        """Decompresses weights when the model is loaded: no engine runs it, summaries count it apart."""
        return self.type.startswith("constexpr_")


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All operations in program order (depth first: an operation, then those of its blocks), and what they are of."""

    format: Literal["labkit-plan"]
    schema: Annotated[int, Meta(ge=1)]
    source: Source
    kind: Kind  # live: measured; predicted: model; recorded: published or measured, as its origin says
    model: str
    compute_units: str | None = None  # one of ComputeUnits where the source follows Core ML; None: not said
    chip: str | None = None
    os: str | None = None  # "macOS 26.5.1"
    os_build: str | None = None
    coremltools: str | None = None
    model_sha256: str | None = None  # of the model's specification
    compile: Literal["cold", "warm"] | None = None
    taken_at: str | None = None  # UTC, ISO 8601
    origin: str | None = None  # where a recorded plan comes from
    labkit: Code | None = None
    constants: int | None = None  # `const` operations left out; None: the source does not say
    operations: tuple[Operation, ...]
    extra: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """sha256 over the plan's content."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def title(self) -> str:
        """How a table names the plan: model, units, chip, OS."""
        parts = (self.model, self.compute_units, self.chip, self.os)
        return ", ".join(part for part in parts if part) + (" (predicted)" if self.source == "predicted" else "")


def encode(plan: Plan) -> bytes:
    """The bytes of a plan file: indented JSON. Raises BadPlan when two operations have one key."""
    check_keys(plan.operations, plan.model)
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def decode(content: bytes, where: str | Path) -> Plan:
    """The plan in `content`. Raises BadPlan naming `where` and the field that is wrong."""
    try:
        plan = msgspec.json.decode(content, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPlan(f"{where}: is no labkit plan: {error}") from None
    if plan.schema > SCHEMA:
        raise BadPlan(f"{where}: plan schema {plan.schema} is newer than this labkit knows ({SCHEMA}): upgrade labkit")
    check_keys(plan.operations, where)
    return plan


def check_keys(operations: Iterable[Operation], where: str | Path) -> None:
    """Raise BadPlan when two operations of `operations` have one key."""
    seen: set[Key] = set()
    for operation in operations:
        if operation.key in seen:
            raise BadPlan(f"{where}: two operations have the key {operation.key}")
        seen.add(operation.key)
