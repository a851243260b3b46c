"""Read bandwidth at 1 and at all threads: labkit's kernel against likwid-bench and numpy, interleaved in one run.

Every repeat visits all contestants in an order of its own. All read the same number of bytes on huge pages, from
pinned threads, each its own first-touched part, for the same time. numpy reads the very memory that labkit reads.
"""

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle

from rich.text import Text

from benchmarks import likwid, ratios, report
from benchmarks.ratios import LABKIT, Key, Reading
from labkit import lock, machine, protocol
from labkit.bus import memory, placement
from labkit.bus.kernels import WORD, compile_kernels
from labkit.bus.placement import Tier
from labkit.bus.plan import Point
from labkit.bus.work import Bench
from labkit.errors import Refused
from labkit.machine.show import binary_size
from labkit.machine.state import own_cpu_seconds
from labkit.windows import Opener, Step, now_ns, together

REPEATS, MOST = 11, 25
WINDOW_S = 0.5
BUDGET_S = 300.0
QUIET_S = 60.0
QUIET_AGAIN_S = 3.0

Contestant = Callable[[], tuple[float, float | None]]
"""Reads for about WINDOW_S; returns GB/s and the least share of its core that one of its threads had, or None."""


class Field:
    """Who takes part, and what each has done in each repeat."""

    def __init__(self, tier: Tier, footprint: int, seed: int) -> None:
        self.tier = tier
        self.footprint = footprint
        self.bench = Bench(compile_kernels(), partial(memory.region_bytes, footprint), seed)
        self.contestants: dict[Key, Contestant] = {}
        self.readings: dict[tuple[Key, int], Reading] = {}
        self.notes: list[str] = []
        self._disturbed = False

    def enter(self, threads: int, stride: int) -> None:
        """Enter labkit and every peer that is here, at one thread count. `stride`: see likwid.command."""
        import numpy

        point = Point("sweep", "read", "llvm", threads, self.tier.name, self.footprint)
        openers = self.bench.openers(point, self.tier)
        # Filled one by one, so that the regions lie in the workers' order.
        for opener in openers:
            together({"cpu": [opener]}, 0.01)
        self.contestants[threads, LABKIT] = partial(self._threads, openers)
        for name, function, dtype in (
            ("numpy add int64", numpy.add.reduce, numpy.int64),
            ("numpy maximum int32", numpy.maximum.reduce, numpy.int32),
        ):
            readers = [self._numpy(point, worker, function, dtype) for worker in range(threads)]
            self.contestants[threads, name] = partial(self._threads, readers)
        if likwid.missing() is None:
            self.contestants[threads, f"{likwid.PROGRAM} {likwid.TEST}"] = self._likwid(threads, stride)

    def _threads(self, openers: list[Opener]) -> tuple[float, float | None]:
        engine = together({"cpu": openers}, WINDOW_S).engines["cpu"]
        return engine.rate / 1e9, engine.cpu_share

    def _numpy(self, point: Point, worker: int, function: Callable[..., object], dtype: type) -> Opener:
        def open_here() -> Step:
            placement.settle(self.tier, worker)
            region = self.bench.regions[worker]
            chunks = region.chunks(point.share)
            turn = cycle([region.words[start : start + count].view(dtype) for start, count in chunks])
            size = chunks[0][1] * WORD

            def step() -> int:
                function(next(turn))
                return size

            return step

        return open_here

    def _likwid(self, threads: int, stride: int) -> Contestant:
        """Iterations are chosen so that the timed phase lasts a window; the runs for that find out about pages."""
        few = likwid.command(self.footprint, threads, 4, stride)
        printed = likwid.run(few, threads).printed
        share = likwid.huge_page_share(few)
        pages = "unknown pages" if share is None else f"{share:.0%} of its memory on huge pages"
        self.notes.append(f"{likwid.PROGRAM}, threads on CPUs {_list(printed.cpus)}: {pages}")
        wanted = set(self.tier.cpus[:threads])
        if wanted and set(printed.cpus) != wanted:
            self.notes.append(f"labkit and numpy run on CPUs {_list(sorted(wanted))}: not the same cores")
        iterations = max(1, round(WINDOW_S * printed.rate_gbs * 1e9 / self.footprint))
        arguments = likwid.command(self.footprint, threads, iterations, stride)

        def read() -> tuple[float, float | None]:
            ran = likwid.run(arguments, threads)
            return ran.printed.rate_gbs, ran.cpu_share

        return read

    def measure(self, key: Key, repeat: int) -> float | None:
        """One contestant's turn, for protocol.interleave."""
        if self._disturbed:
            protocol.wait_until_quiet(QUIET_AGAIN_S)
        start_ns, own, before = now_ns(), own_cpu_seconds(), _cpu_seconds_in_use()
        try:
            rate, share = self.contestants[key]()
        except Refused:
            reading = Reading(0.0, "its threads did not work at the same time")
        else:
            used = _cpu_seconds_in_use() - before - (own_cpu_seconds() - own)
            others = used / ((now_ns() - start_ns) / 1e9) / self.tier.most
            reading = Reading(rate, ratios.why_starved(share, others))
        self._disturbed = reading.starved is not None
        if repeat >= 0:
            self.readings[key, repeat] = reading
        return None if reading.starved else reading.rate_gbs


def _cpu_seconds_in_use() -> float:
    import psutil

    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))


def _list(cpus: Iterable[int]) -> str:
    return " ".join(map(str, cpus)) or "unknown"


def main() -> None:
    """Measure and print. Raises Refused while labkit is measuring elsewhere on this machine."""
    console = report.console()

    def say(line: str) -> None:
        console.print(Text(line))

    here = machine.describe()
    console.print(Text("bus_peers: read bandwidth against peers", style="bold"))
    for line in report.machine_lines(here):
        say(line)
    absent = likwid.missing()
    if absent:
        say(f"Skipped: {absent}")
    tier = placement.tiers(here)[0]
    counts = sorted({1, placement.thread_counts(tier)[-1]})
    footprint = memory.footprint(here.last_level_bytes.value, here.memory_limit_bytes.value, counts[-1])
    cores = sum(each.physical_cores or 0 for each in here.tiers)
    seed = secrets.randbits(32)
    with lock.measuring_lock():
        before, _ = protocol.wait_until_quiet(QUIET_S)
        field = Field(tier, footprint, seed)
        for threads in counts:
            # One thread per core first, as labkit places them.
            stride = len(tier.cpus) // cores if cores and threads <= cores else 1
            field.enter(threads, max(1, stride))
        protocol.interleave(
            list(field.contestants), field.measure, seed=seed, repeats=REPEATS, most=MOST, budget_s=BUDGET_S
        )
        after = machine.state()
    if field.bench.wrong:
        raise Refused(f"{field.bench.wrong} sums of labkit's kernel were wrong: its rates mean nothing here")
    mode, share = memory.page_mode(field.bench.regions)
    say(report.state_line("Before", before))
    say(report.state_line("After", after))
    for note in field.notes:
        say(note)
    say(f"labkit and numpy: {mode} pages{'' if share is None else f', {share:.0%} of their memory on huge ones'}")
    found = ratios.outcomes(field.readings)
    taken = max(outcome.taken for outcome in found)
    say(f"{binary_size(footprint)}, {WINDOW_S:g} s a turn, {taken} repeats, seed {seed}; 95 % intervals of medians\n")
    for outcome in found:
        console.print(ratios.table(outcome))
        for line in ratios.lines(outcome):
            say(line)
        say("")
