"""Before a sweep: settle what a user can get wrong, and work out what will be measured. Touches no memory."""

import secrets

import msgspec

from labkit import machine
from labkit.bus import gpu, kernels, memory, placement, plan
from labkit.bus.plan import Point
from labkit.errors import BadInput, NotAvailable

KERNELS = ("llvm", "numpy")


class Settings(msgspec.Struct, frozen=True):
    """How a sweep is taken. Times in seconds."""

    quick: bool = False
    threads: tuple[int, ...] | None = None
    kernels: tuple[str, ...] = KERNELS
    peak_gbs: float | None = None
    gpu: bool | None = None  # None: when this machine has one
    seed: int | None = None  # None: drawn, and recorded
    window_s: float = 0.25  # medians from 5 ms to 1 s agree; longer windows scatter less
    budget_s: float = 600.0  # no further repeat is begun that would not fit
    quiet_s: float = 60.0  # longest wait for a quiet machine


QUICK = Settings(quick=True, window_s=0.1, budget_s=36.0, quiet_s=15.0)
"""Under a minute on any machine: the main core tier alone, shorter windows."""


class Prepared(msgspec.Struct, frozen=True):
    """A sweep that can be taken: everything that a user can get wrong is settled."""

    settings: Settings
    here: machine.Machine
    tiers: tuple[placement.Tier, ...]
    counts: tuple[int, ...]  # threads on the main tier
    footprint: int
    operand: int | None  # bytes of a GPU operand; None: no GPU
    compiled: kernels.Kernels | None
    doubts: tuple[str, ...]  # what speaks against the result before anything is measured
    points: tuple[Point, ...]
    seed: int


def prepare(settings: Settings) -> Prepared:
    """Work out what to measure. Touches nothing. Raises BadInput, NotAvailable, Refused (too little memory)."""
    unknown = set(settings.kernels) - set(KERNELS)
    if unknown or not settings.kernels:
        raise BadInput(f"--kernels {','.join(settings.kernels)}: choose from {', '.join(KERNELS)}")
    names, compiled, without = _kernels(settings.kernels)
    here = machine.describe(settings.peak_gbs)
    tiers = placement.tiers(here)
    if settings.threads is None:
        counts = placement.thread_counts(tiers[0], quick=settings.quick)
    else:
        counts = placement.check_threads(tiers[0], settings.threads)
    limit = here.memory_limit_bytes.value
    caches = here.last_level_bytes.value
    footprint = memory.footprint(caches, limit, max(counts))
    points = plan.points(
        tiers,
        counts,
        footprint=footprint,
        kernels=names,
        l2_bytes=here.tiers[0].l2_bytes,
        quick=settings.quick,
    )
    operand = None
    if gpu.available() if settings.gpu is None else settings.gpu:
        gpu.require()
        operand = gpu.operand_bytes(limit)
        points += plan.gpu_points(
            tiers[0], counts, kernel=names[0], footprint=footprint, operand=operand, ops=tuple(gpu.OPS)
        )
    return Prepared(
        settings=settings,
        here=here,
        tiers=tuple(tiers),
        counts=tuple(counts),
        footprint=footprint,
        operand=operand,
        compiled=compiled,
        doubts=(*without, *memory.doubts(footprint, caches)),
        points=tuple(points),
        seed=secrets.randbits(32) if settings.seed is None else settings.seed,
    )


def _kernels(asked: tuple[str, ...]) -> tuple[tuple[str, ...], kernels.Kernels | None, list[str]]:
    """The kernels to use. Where code cannot be generated (a hardened runtime) numpy's is left, and that is said."""
    if "llvm" not in asked:
        return asked, None, []
    try:
        return asked, kernels.compile_kernels(), []
    except NotAvailable as error:
        rest = tuple(name for name in asked if name != "llvm")
        if not rest:
            raise
        return rest, None, [str(error)]
