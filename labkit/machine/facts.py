"""What a machine is: every fact with where it came from. Unknown is None with the reason, never 0."""

import hashlib
import platform
from typing import Generic, TypeVar

import msgspec

import labkit

T = TypeVar("T")


class Fact(msgspec.Struct, Generic[T], frozen=True):
    """A value and its source. `value` None means unknown; `source` then says why."""

    value: T | None
    source: str


class Tier(msgspec.Struct, frozen=True):
    """Cores of one kind, fastest tier first; a machine of equal cores has one tier, named "cpu"."""

    name: str  # what the system calls it: "Performance" (macOS), "cpu_atom", "capacity 446" (Linux)
    cpus: tuple[int, ...]  # CPUs this process may use: one per physical core first, then SMT siblings;
    # () on macOS, which has no affinity
    cores_in_reach: int | None  # cpus[:cores_in_reach] holds one CPU per physical core
    physical_cores: int | None  # of the whole tier, in reach of this process or not
    logical_cpus: int | None
    l2_bytes: int | None  # of one L2 cache
    source: str


class Cache(msgspec.Struct, frozen=True):
    """All caches of one level, type, size and sharing, over all online CPUs."""

    level: int
    type: str  # "Data", "Instruction" or "Unified"
    bytes: int  # of one instance
    instances: int
    shared_by: int  # logical CPUs that share one instance
    tier: str | None = None  # where the system tells caches apart by tier (macOS)


class NumaNode(msgspec.Struct, frozen=True):
    """A NUMA node and its online CPUs; () for memory without CPUs."""

    node: int
    cpus: tuple[int, ...]


class Machine(msgspec.Struct, frozen=True):
    """The machine as it is, apart from its state now. Bytes are bytes; GB/s is 1e9 bytes/s."""

    chip: Fact[str]  # brand string
    machine: Fact[str]  # stable anonymous id: 12 hex digits of a salted hash of a hardware id
    arch: Fact[str]  # as this process sees it
    virtual: Fact[bool]  # whether a hypervisor says that it is there
    os: Fact[str]
    os_build: Fact[str]
    logical_cpus: Fact[int]  # online
    physical_cores: Fact[int]
    usable_cpus: Fact[int]  # whole CPUs that this process may keep busy: affinity and cgroup quotas
    tiers: tuple[Tier, ...]  # never empty
    gpu_cores: Fact[int]
    memory_bytes: Fact[int]
    memory_limit_bytes: Fact[int]  # what is to be had now: available memory or the lowest cgroup limit
    cache_line_bytes: Fact[int]
    caches: Fact[tuple[Cache, ...]]
    last_level_bytes: Fact[int]  # sum of all last-level caches in reach of the CPUs this process may use
    numa_nodes: Fact[tuple[NumaNode, ...]]
    huge_pages: Fact[str]
    bus_peak_gb_per_s: Fact[float]
    versions: dict[str, str]  # what is installed; a missing name is not installed


VERSIONED = (
    "numpy",
    "pandas",
    "matplotlib",
    "llvmlite",
    "mlx",
    "coremltools",
    "msgspec",
    "psutil",
    "papermill",
    "jupyterlab",
)
"""Distributions whose versions can change a result."""

SALT = b"labkit machine id 1\n"


def anonymous_id(hardware_id: str) -> str:
    """12 hex digits that name a machine and tell nothing about it: salted SHA-256 of its hardware id."""
    return hashlib.sha256(SALT + hardware_id.strip().lower().encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of Python, labkit and what it measures with, read from metadata: nothing is imported."""
    from importlib import metadata

    found = {"python": platform.python_version(), "labkit": labkit.__version__}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
