"""The bytes that are read: how many, on which pages, with which content, and what their sums must be."""

import contextlib
import mmap
import os
from pathlib import Path

from labkit.bus.kernels import ROUND, WORD, Kernels
from labkit.errors import Refused

CHUNK = 64 * 2**20
"""One kernel call: 1-2 ms of reading, long against the call's overhead, short against a window."""

LEAST = 2**30
MOST_OF_MEMORY = 0.25
CACHES = 4
"""A footprint of this many times all last-level caches together reads memory, not cache."""

HUGE_PAGE = 2 * 2**20


def footprint(last_level_bytes: int | None, memory_limit: int | None, threads: int) -> int:
    """Bytes that all threads together read in one pass: max(1 GiB, 4 x all last-level caches, 64 MiB x threads).

    At most a quarter of the memory this process may use, private regions and write targets included. Raises
    Refused when that quarter does not hold 4 x the caches: such a figure would be the cache's.
    """
    needed = CACHES * (last_level_bytes or 0)
    wanted = max(LEAST, needed, CHUNK * threads)
    if memory_limit is not None:
        while wanted > needed and held(wanted, threads) > memory_limit * MOST_OF_MEMORY:
            wanted = max(needed, wanted // 2)
        if held(wanted, threads) > memory_limit * MOST_OF_MEMORY or wanted < ROUND:
            raise Refused(
                f"{memory_limit / 2**30:.1f} GiB of usable memory are too little: reading past the caches with "
                f"{threads} threads needs {held(needed, threads) / MOST_OF_MEMORY / 2**30:.1f} GiB"
            )
    return wanted


def doubts(total: int, last_level_bytes: int | None) -> list[str]:
    """What speaks against a footprint that `footprint` allowed."""
    found = []
    if last_level_bytes is None:
        found.append("the size of the last-level caches is unknown: the buffer may not be past them")
    if total < LEAST:
        found.append(f"only {total / 2**20:.0f} MiB are read, for want of memory; {LEAST / 2**20:.0f} MiB are the rule")
    return found


def held(total: int, threads: int) -> int:
    """Memory that a sweep over 1..threads holds for a footprint of `total`: regions and half as much to write to."""
    return sum(region_bytes(total, worker) for worker in range(threads)) * 3 // 2


def region_bytes(total: int, worker: int) -> int:
    """Size of one worker's private region.

    With n threads each reads total / n. Worker k takes part from n = k + 1 on, so its largest share is
    total / (k + 1): private first-touched memory for every thread count costs total x H(n), not total x n.
    """
    return share_bytes(total, worker + 1)


def share_bytes(total: int, threads: int) -> int:
    """What each of `threads` workers reads: whole chunks where it holds any, else whole rounds."""
    share = total // threads
    unit = CHUNK if share >= CHUNK else ROUND
    return max(unit, share // unit * unit)


class Region:
    """One worker's private memory: anonymous, on huge pages where the system grants them.

    `fill` must be called by the thread that will read it, pinned where it will stay: pages belong to the node
    that first touches them, and never-written pages all map to one page of zeros that sits in the cache.
    """

    def __init__(self, size: int) -> None:
        import numpy

        self.size = size
        # Private: Python's default is a shared mapping, which Linux backs with huge pages only where shmem may.
        try:
            self._map = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise Refused(f"{size / 2**20:.0f} MiB of memory cannot be had: {error.strerror}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # Where huge pages are switched off the kernel says EINVAL; page_mode() reports what came of it.
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        whole = numpy.frombuffer(self._map, numpy.uint64)
        skip = -whole.ctypes.data % HUGE_PAGE // WORD
        self.words = whole[skip : skip + size // WORD]
        self.address: int = self.words.ctypes.data
        self._sums: dict[tuple[int, int], int] = {}

    def fill(self, kernels: Kernels | None, first: int) -> None:
        """Random content (data that compress are read faster than the bus allows), distinct by `first`.

        Without compiled kernels numpy does it, some ten times slower.
        """
        if kernels is not None:
            kernels.fill(self.address, self.size // WORD, first)
        else:
            import numpy

            random = numpy.random.Generator(numpy.random.SFC64(first))
            for start in range(0, len(self.words), 2**20):
                part = self.words[start : start + 2**20]
                part[:] = random.integers(0, 2**64, len(part), numpy.uint64)
        self._sums.clear()

    def sum(self, start: int, count: int) -> int:
        """The exact sum of `count` words from word `start`, modulo 2**64, by numpy: the reference."""
        key = (start, count)
        if key not in self._sums:
            import numpy

            self._sums[key] = int(numpy.add.reduce(self.words[start : start + count]))
        return self._sums[key]

    def maximum(self, start: int, count: int) -> int:
        """The largest 32-bit integer in `count` words from word `start`, found in blocks small enough to be cached."""
        key = (start, -count)
        if key not in self._sums:
            import numpy

            words = self.words[start : start + count].view(numpy.int32)
            self._sums[key] = max(int(words[i : i + 4096].max()) for i in range(0, len(words), 4096))
        return self._sums[key]

    def chunks(self, size: int) -> list[tuple[int, int]]:
        """(first word, words) of the chunks that one pass over the first `size` bytes reads."""
        step = min(CHUNK, size) // WORD
        return [(start, step) for start in range(0, size // WORD // step * step, step)]


def page_mode(regions: list[Region], smaps: Path = Path("/proc/self/smaps")) -> tuple[str, float | None]:
    """What the regions lie on: ('huge', share of bytes on huge pages), ('base', share) or ('unknown', None).

    Asking for huge pages is not getting them: plain pages read about 30 % slower, so the answer is counted from
    the kernel's own table. Systems without that table (macOS: 16 KiB pages, no huge pages for user memory) say
    ('base', None) with their page size known from os.sysconf.
    """
    if not smaps.is_file():
        return (f"base {os.sysconf('SC_PAGE_SIZE') // 1024} KiB", None)
    try:
        table = smaps.read_text(errors="replace")
    except OSError:
        return ("unknown", None)
    spans = [(region.address, region.address + region.size) for region in regions]
    huge, inside = 0, False
    for line in table.splitlines():
        field, _, rest = line.partition(" ")
        if "-" in field and not field.endswith(":"):
            low, _, high = field.partition("-")
            inside = any(int(low, 16) < end and int(high, 16) > start for start, end in spans)
        elif inside and field == "AnonHugePages:":
            huge += int(rest.split()[0]) * 1024
    total = sum(region.size for region in regions)
    share = min(1.0, huge / total)
    return ("huge" if share > 0.9 else f"base {os.sysconf('SC_PAGE_SIZE') // 1024} KiB", share)
