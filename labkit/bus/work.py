"""One worker's unit of work at one point: a kernel call over one chunk, its result checked."""

from collections.abc import Callable
from functools import partial
from itertools import cycle

import numpy

from labkit.bus import placement
from labkit.bus.kernels import WORD, Kernels
from labkit.bus.memory import CHUNK, Region, share_bytes
from labkit.bus.placement import Tier
from labkit.bus.plan import Point
from labkit.windows import Opener, Step


class Bench:
    """The memory of a sweep, by worker, and how many results were wrong.

    `region_bytes(worker)` is the size of a worker's private region. Without compiled kernels (None) only points
    of the numpy kernel can be opened.
    """

    def __init__(self, kernels: Kernels | None, region_bytes: Callable[[int], int], seed: int) -> None:
        self._kernels = kernels
        self._region_bytes = region_bytes
        self._seed = seed
        self._sources: dict[int, Region] = {}
        self._targets: dict[int, Region] = {}
        self._written: dict[int, dict[int, tuple[int, int, int]]] = {}
        self.wrong = 0
        self.cpus_seen: set[int] = set()

    @property
    def regions(self) -> list[Region]:
        """All regions that were filled so far."""
        return [*self._sources.values(), *self._targets.values()]

    def openers(self, point: Point, tier: Tier) -> list[Opener]:
        """One opener per thread of the point."""
        return [self._opener(point, tier, worker) for worker in range(point.threads)]

    def _opener(self, point: Point, tier: Tier, worker: int) -> Opener:
        def open_here() -> Step:
            placement.settle(tier, worker)
            source = self._source(worker)
            if point.op == "read":
                step = self._read(point, source)
            else:
                step = self._stores(point, source, self._target(worker))
            return self._watched(step) if tier.qos is not None else step

        return open_here

    def _source(self, worker: int) -> Region:
        """A worker's region, of all tiers: its content is the same for each, and memory is not held twice."""
        if worker not in self._sources:
            region = Region(self._region_bytes(worker))
            # Counters of its own: no two workers read the same numbers.
            region.fill(self._kernels, self._seed + (worker << 40))
            self._sources[worker] = region
        return self._sources[worker]

    def _target(self, worker: int) -> Region:
        if worker not in self._targets:
            region = Region(share_bytes(self._region_bytes(worker), 2))
            region.fill(self._kernels, 0)
            self._targets[worker] = region
        return self._targets[worker]

    def _read(self, point: Point, source: Region) -> Step:
        """Reads chunk after chunk of the share. The compiled kernel sums every word, which proves every load.

        numpy cross-checks its rate with code of other authors: the largest 32-bit integer. (Its sum is held up by
        the core, not the bus: 0.91 of the compiled kernel's rate on one Zen 5 core where this gives 0.98.)
        """
        chunks = source.chunks(point.share)
        # A slice that fits a cache is read many times in one call: the call must last as long as a chunk's.
        passes = max(1, CHUNK // (chunks[0][1] * WORD)) if point.probe in ("ceiling", "scaling") else 1
        work: list[tuple[Callable[[], int], int, int]] = []
        for start, count in chunks:
            size = count * WORD * passes
            if point.kernel == "numpy":
                view = source.words[start : start + count].view(numpy.int32)
                work.append((partial(numpy.maximum.reduce, view), source.maximum(start, count), size))
            else:
                call = partial(self._kernels.read, source.address + start * WORD, count, passes)
                work.append((call, source.sum(start, count) * passes % 2**64, size))
        turn = cycle(work)

        def step() -> int:
            call, expected, size = next(turn)
            if call() != expected:
                self.wrong += 1
            return size

        return step

    def _stores(self, point: Point, source: Region, target: Region) -> Step:
        """copy: the share's first half to the target; triad: target = first half + 3 x second half."""
        store = point.store or "regular"
        half = share_bytes(point.share, 2)
        moved, factor = (2, 0) if point.op == "copy" else (3, 3)
        written = self._written[id(target)] = {}  # what a window that was given up had written is not checked
        plan = []
        for start, count in source.chunks(half):
            second = start + half // WORD
            expected = source.sum(start, count) + (factor * source.sum(second, count) if factor else 0)
            # Spoilt beforehand, or an earlier window's result would pass for this one's.
            target.words[start] = 0
            addresses = [target.address + start * WORD, source.address + start * WORD]
            if factor:
                addresses.append(source.address + second * WORD)
            plan.append((start, addresses, count, expected % 2**64))
        turn = cycle(plan)
        kernel = self._kernels.triad[store] if factor else self._kernels.copy[store]

        def step() -> int:
            start, addresses, count, expected = next(turn)
            kernel(*addresses, count)
            written[start] = (addresses[0], count, expected)
            return count * WORD * moved

        return step

    def check_written(self) -> None:
        """Sum what the last window wrote and compare. Outside the window: the check's reads are not its traffic."""
        for chunks in self._written.values():
            for address, count, expected in chunks.values():
                self.wrong += self._kernels.read(address, count, 1) != expected
            chunks.clear()

    def _watched(self, step: Step) -> Step:
        """Note which CPU each unit of work ended on: a QoS class is a hint, this is the evidence."""

        def watched() -> int:
            items = step()
            cpu = placement.current_cpu()
            if cpu is not None:
                self.cpus_seen.add(cpu)
            return items

        return watched
