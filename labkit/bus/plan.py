"""What a sweep measures: its points, worked out before anything is touched."""

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
    tiers: list[Tier],
    *,
    footprint: int,
    kernels: tuple[str, ...],
    l2_bytes: int | None,
    threads: tuple[int, ...] | None = None,
    quick: bool = False,
) -> list[Point]:
    """The sweep's plan: reads at every thread count, and at the ends what proves them.

    Per tier: read with every kernel at every count (quick: the main tier alone). On the main tier also, at its
    ends (1 and all threads): copy and triad with both store kinds; the L2-resident ceiling and the L1-resident
    scaling probe of the compiled kernel; and at all threads the read over half the bytes, for the size knee.
    """
    plan: list[Point] = []
    for tier in tiers[:1] if quick else tiers:
        for count in thread_counts(tier, threads):
            plan += [Point("sweep", "read", kernel, count, tier.name, footprint) for kernel in kernels]
    main = tiers[0]
    counts = thread_counts(main, threads)
    ends = sorted({counts[0], counts[-1]})
    plan += [Point("knee", "read", kernel, ends[-1], main.name, footprint // 2) for kernel in kernels]
    if "llvm" in kernels:
        resident = max(ROUND, min(CHUNK, (l2_bytes or DEFAULT_L2) // 2) // ROUND * ROUND)
        for count in ends:
            plan.append(Point("ceiling", "read", "llvm", count, main.name, resident * count))
            plan.append(Point("scaling", "read", "llvm", count, main.name, L1_SLICE * count))
            plan += [
                Point("sweep", op, "llvm", count, main.name, footprint, store)
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
