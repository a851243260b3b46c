"""What a sweep measures: its points, worked out before anything is touched."""

from collections.abc import Sequence

import msgspec

from labkit.bus.memory import CHUNK, ROUND, share_bytes
from labkit.bus.placement import Tier, thread_counts

DEFAULT_L2 = 512 * 2**10
L1_SLICE = 16 * 2**10
STORES = ("regular", "nontemporal")
# Traffic on the bus per byte that the program stores or loads: a regular store first reads the line it will
# overwrite (write-allocate), a non-temporal one does not. Regular copy 3/2, triad 4/3; non-temporal 1.
TRAFFIC = {("copy", "regular"): 3 / 2, ("triad", "regular"): 4 / 3}


class Point(msgspec.Struct, frozen=True):
    """One configuration: what is done, by how many threads, where, over how many bytes."""

    probe: str  # sweep: the curve; knee: half the bytes; ceiling, scaling: out of the L2 and L1 cache
    op: str
    kernel: str
    threads: int
    tier: str
    bytes: int  # that one pass of all threads touches
    store: str | None = None
    engine: str = "cpu"
    beside: str | None = None  # the engine that works at the same time

    @property
    def share(self) -> int:
        """Bytes of the region that each thread works on in one pass."""
        return share_bytes(self.bytes, self.threads) if self.probe in ("sweep", "knee") else self.bytes // self.threads

    @property
    def traffic(self) -> float:
        """Bus bytes per program byte, by the write-allocate model."""
        return TRAFFIC.get((self.op, self.store or ""), 1.0)


def points(
    tiers: Sequence[Tier],
    counts: Sequence[int],
    *,
    footprint: int,
    kernels: tuple[str, ...],
    l2_bytes: int | None,
    quick: bool = False,
) -> list[Point]:
    """The sweep's plan: reads at every thread count, and at the ends what proves them. `counts`: the main tier's.

    Reads with every kernel at every count of every tier; copy and triad with both store kinds at the main tier's
    ends. The proofs are on the main tier: the L2-resident ceiling at the least count, the read over half the bytes
    (the size knee) at the largest, and the L1-resident scaling from one core to all cores of the fastest kind.
    Quick: the main tier alone, its cross-check at the ends alone, stores at the largest count alone.
    """
    main, ends = tiers[0], sorted({counts[0], counts[-1]})
    plan: list[Point] = []
    for tier in tiers[:1] if quick else tiers:
        for count in [n for n in (counts if tier is main else thread_counts(tier)) if n <= tier.most]:
            used = kernels[:1] if quick and count not in ends else kernels
            plan += [Point("sweep", "read", kernel, count, tier.name, footprint) for kernel in used]
    plan += [Point("knee", "read", kernel, ends[-1], main.name, footprint // 2) for kernel in kernels]
    if "llvm" not in kernels:
        return plan
    resident = max(ROUND, min(CHUNK, (l2_bytes or DEFAULT_L2) // 2) // ROUND * ROUND)
    plan.append(Point("ceiling", "read", "llvm", ends[0], main.name, resident * ends[0]))
    for count in sorted({ends[0], max(ends[0], min(ends[-1], main.cores))}):
        plan.append(Point("scaling", "read", "llvm", count, main.name, L1_SLICE * count))
    plan += [
        Point("sweep", op, "llvm", count, main.name, footprint, store)
        for count in (ends[-1:] if quick else ends)
        for op in ("copy", "triad")
        for store in STORES
    ]
    return plan


def gpu_points(
    main: Tier, counts: list[int], *, kernel: str, footprint: int, operand: int, ops: tuple[str, ...]
) -> list[Point]:
    """The GPU alone with every op shape, and the CPU's reads beside its first (read-only) op at few and all threads.

    The CPU alone at the same thread counts is in the sweep, in the same repeats.
    """
    alone = [Point("sweep", op, "mlx", 0, "gpu", operand, engine="gpu") for op in ops]
    both = [
        Point("contention", "read", kernel, count, main.name, footprint, beside="gpu")
        for count in sorted({max(1, counts[-1] // 2), counts[-1]})
    ]
    return alone + both
