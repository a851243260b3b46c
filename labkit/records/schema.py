"""The record: one schema for everything that labkit measures, reads or models.

A run is one file: a header line, one line per row, an end line. A row is one value at one point of one
repeat; what holds for the whole run stands once, in the header. Unknown fields are errors, missing values stay missing.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SCHEMA = 1

Kind = Literal["measured", "published", "emulated", "model"]
"""The four kinds of truth. They are never mixed in one series."""

Unit = Literal["GB/s", "bytes", "s", "items/s", "fraction", "count"]

UNITS: dict[str, Unit] = {
    "read_bandwidth": "GB/s",  # bytes loaded / time, by a read-only kernel; GB is 1e9 bytes
    "stream_bandwidth": "GB/s",  # program loads + stores / time, as STREAM counts them; `op` names it
    "aggregate_bandwidth": "GB/s",  # two engines together, both counted in one window
}
"""Every quantity that a record may hold, with the one unit it has."""

Text = Annotated[str, Meta(min_length=1, max_length=400)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which labkit wrote the run."""

    version: Text
    source: Text  # sha256 over the package's source files
    dirty: bool | None = None  # uncommitted changes; None where git cannot tell


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="header"):
    """What holds for every row of a run."""

    schema: Annotated[int, Meta(ge=1)]
    run_id: Text
    primitive: Text
    kind: Kind
    chip: Text
    machine: Text  # salted hash of a hardware id; a label for published machines
    started_at: Text | None = None  # UTC, ISO 8601; None: the published source does not say
    labkit: Code | None = None  # None: not measured by labkit
    key: Text | None = None  # hash of everything that determines the run
    gpu_cores: Count | None = None
    bus_peak_gb_per_s: Annotated[float, Meta(gt=0)] | None = None
    bus_peak_source: Text | None = None
    source: Text | None = None  # where published data come from
    parameters: dict[str, Any] = {}
    facts: dict[str, Any] = {}  # the machine, as machine.describe gave it
    state_before: dict[str, Any] = {}
    versions: dict[str, str] = {}
    thresholds: dict[str, float] = {}


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="row"):
    """One value at one point of one repeat. A new parameter is a new field here, with its meaning."""

    quantity: Text
    value: float
    unit: Unit
    repeat: Count
    statistic: Literal["sample", "median"] = "sample"  # published rows may be medians of `samples` values
    samples: Count | None = None  # how many values a median stands for
    spread: Annotated[float, Meta(ge=0)] | None = None  # published (max - min) / median; else computed from samples
    at: Seconds | None = None  # start of the window, seconds since the run's start
    window_s: Seconds | None = None
    # the point
    probe: Text | None = None  # what the row is for: sweep, knee, ceiling, scaling, contention
    engine: Literal["cpu", "gpu"] | None = None
    beside: Text | None = None  # the engine that was working at the same time; None: alone
    kernel: Text | None = None
    op: Text | None = None
    store: Literal["regular", "nontemporal"] | None = None
    threads: Count | None = None
    tier: Text | None = None  # core tier asked for (QoS class or affinity set)
    tier_seen: Text | None = None  # tier verified by reading back the cores that ran; None: unverified
    bytes: Count | None = None  # bytes that one pass touches
    # the evidence
    bytes_counted: Count | None = None  # program loads + stores in the window
    bytes_bus_model: Count | None = None  # with write-allocate traffic added
    cpu_share: Annotated[float, Meta(ge=0)] | None = None  # least thread-CPU time / wall time of the threads
    pressure: Annotated[float, Meta(ge=0)] | None = None  # share of the window in which some task waited for a CPU
    steal: Annotated[float, Meta(ge=0)] | None = None  # share of CPU time taken by the hypervisor
    throttled: Annotated[float, Meta(ge=0)] | None = None  # CPU seconds a second withheld by a cgroup's quota
    page_faults: Count | None = None
    wrong: Count | None = None  # chunks whose result was not the exact one
    overlap: Share | None = None  # share of this engine's window that both engines were working in


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="end"):
    """The run is whole. Without this line a file is not a run."""

    status: Literal["complete", "partial"]
    rows: Count
    finished_at: Text
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]  # of every byte before this line
    reason: Text | None = None  # why a run is partial
    state_after: dict[str, Any] = {}


class Run(msgspec.Struct, frozen=True):
    """One run in memory: what a run file or a published table holds."""

    header: Header
    rows: tuple[Row, ...]
    end: End | None
    path: str


PARAMETERS: tuple[str, ...] = Row.__struct_fields__
"""Names of a row's fields, in the order in which a table shows them."""
