"""Read bandwidth at 1 and at all threads: labkit's kernel against likwid-bench and numpy, interleaved in one run.

Every repeat visits all contestants in an order of its own. All read the same number of bytes on huge pages, from
pinned threads, each its own first-touched part, for the same time. numpy reads the very memory that labkit reads.
"""

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle

import msgspec
from rich.table import Table
from rich.text import Text

from benchmarks import likwid, report
from labkit import lock, machine, protocol, stats
from labkit.bus import gates, memory, placement
from labkit.bus.kernels import WORD, compile_kernels
from labkit.bus.placement import Tier
from labkit.bus.plan import Point
from labkit.bus.work import Bench
from labkit.errors import NotAvailable, Refused
from labkit.machine.state import BUSY_OTHERS_LIMIT, own_cpu_seconds
from labkit.windows import Opener, Step, now_ns, together

REPEATS, MOST = 11, 25
WINDOW_S = 0.5
BUDGET_S = 240.0
QUIET_S = 60.0
QUIET_AGAIN_S = 10.0
TARGET = 0.98
LABKIT = "labkit, compiled kernel"


class Reading(msgspec.Struct, frozen=True):
    """One contestant in one repeat."""

    rate_gbs: float
    starved: str | None  # why it does not count; None: nothing speaks against it


Contestant = Callable[[], tuple[float, float | None]]
"""Reads for about WINDOW_S; returns GB/s and the least share of its core that one of its threads had, or None."""

Key = tuple[int, str]
"""Threads, name."""


class Outcome(msgspec.Struct, frozen=True):
    """All contestants at one thread count."""

    threads: int
    readings: dict[str, dict[int, Reading]]  # by contestant and repeat

    def rates(self, name: str) -> list[float]:
        """GB/s of one contestant over its own repeats that count."""
        return [reading.rate_gbs for _, reading in sorted(self.readings[name].items()) if not reading.starved]

    def own(self, name: str) -> stats.Summary | None:
        """Its rates in numbers; None when no repeat counts."""
        rates = self.rates(name)
        return stats.summarise(rates) if rates else None

    def ratio(self, peer: str) -> stats.Summary | None:
        """labkit / peer within each repeat in which both had their cores; None without one.

        Not all contestants must have had them: on a shared machine hardly a repeat would be left, and whether a
        third one was disturbed says nothing about these two.
        """
        ours, theirs = self.readings[LABKIT], self.readings[peer]
        both = [repeat for repeat in sorted(ours) if repeat in theirs]
        pairs = [
            (ours[repeat].rate_gbs, theirs[repeat].rate_gbs)
            for repeat in both
            if not ours[repeat].starved and not theirs[repeat].starved
        ]
        return stats.paired_ratio(pairs) if pairs else None

    @property
    def taken(self) -> int:
        """Repeats visited."""
        return max(len(repeats) for repeats in self.readings.values())

    @property
    def dropped(self) -> Counter[str]:
        """Readings that do not count, by why."""
        every = (reading for repeats in self.readings.values() for reading in repeats.values())
        return Counter(reading.starved for reading in every if reading.starved)

    @property
    def best_peer(self) -> str | None:
        """The peer with the highest median."""
        medians = {name: own.median for name in self.readings if name != LABKIT and (own := self.own(name))}
        return max(medians, key=medians.__getitem__, default=None)


def outcomes(readings: Mapping[tuple[Key, int], Reading]) -> list[Outcome]:
    """Group readings, which are by contestant and repeat, by thread count."""
    grouped: dict[int, dict[str, dict[int, Reading]]] = defaultdict(lambda: defaultdict(dict))
    for ((threads, name), repeat), reading in readings.items():
        grouped[threads][name][repeat] = reading
    return [Outcome(threads, dict(by_name)) for threads, by_name in sorted(grouped.items())]


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
        """Enter labkit and every peer that is here, at one thread count."""
        import numpy

        point = Point("sweep", "read", "llvm", threads, self.tier.name, self.footprint)
        # Fill one by one: regions then lie in the workers' order.
        openers = self.bench.openers(point, self.tier)
        for opener in openers:
            together({"cpu": [opener]}, 0.01)
        self.contestants[threads, LABKIT] = partial(self._threads, openers)
        for name, function, dtype in (
            ("numpy add.reduce int64", numpy.add.reduce, numpy.int64),
            ("numpy maximum.reduce int32", numpy.maximum.reduce, numpy.int32),
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
        self.notes.append(f"{likwid.PROGRAM} with {threads} threads: CPUs {_list(printed.cpus)}, {pages}")
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
        except Refused as error:
            self._disturbed = True
            self.readings[key, repeat] = Reading(0.0, str(error).partition(":")[0])
            return None
        seconds = (now_ns() - start_ns) / 1e9
        others = (_cpu_seconds_in_use() - before - (own_cpu_seconds() - own)) / seconds / max(1, self.tier.most)
        reading = Reading(rate, why_starved(share, others))
        self._disturbed = reading.starved is not None
        if repeat >= 0:
            self.readings[key, repeat] = reading
        return None if reading.starved else rate


def why_starved(share: float | None, others: float) -> str | None:
    """Why a reading does not count, by labkit's own limits; unknown evidence does not speak against it.

    `share`: the least share of its core that a thread had; `others`: share of the CPUs that other work used.
    """
    if share is not None and share < gates.CPU_SHARE:
        return f"a thread had under {gates.CPU_SHARE:.0%} of its core"
    if others > BUSY_OTHERS_LIMIT:
        return f"other work used over {BUSY_OTHERS_LIMIT:.0%} of the CPUs"
    return None


def _cpu_seconds_in_use() -> float:
    import psutil

    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))


def _list(cpus: object) -> str:
    return " ".join(map(str, cpus)) or "unknown"  # type: ignore[call-overload]


def main() -> None:
    """Measure and print. Raises Refused while labkit is measuring elsewhere on this machine."""
    console = report.console()

    def say(line: str) -> None:
        console.print(Text(line))

    here = machine.describe()
    say("== bus_peers: read bandwidth against peers")
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
    mode, share = memory.page_mode(field.bench.regions)
    say(report.state_line("Before", before))
    say(report.state_line("After", machine.state()))
    say(f"labkit and numpy: {mode} pages{'' if share is None else f', {share:.0%} of their memory on huge ones'}")
    for note in field.notes:
        say(note)
    found = outcomes(field.readings)
    say(
        f"{memory_size(footprint)} read for {WINDOW_S:g} s a turn; {max(each.taken for each in found)} repeats, seed {seed}; "
        "95 % intervals of medians\n"
    )
    for outcome in found:
        console.print(_table(outcome))
        for line in verdict_lines(outcome):
            say(line)
        say("")
    if field.bench.wrong:
        raise NotAvailable(f"{field.bench.wrong} sums of labkit's kernel were wrong: its rates mean nothing here")


def memory_size(size: int) -> str:
    from labkit.machine.show import binary_size

    return binary_size(size)


def _table(outcome: Outcome) -> Table:
    rows = []
    for name in outcome.readings:
        own, ratio = outcome.own(name), outcome.ratio(name) if name != LABKIT else None
        valid = f"{own.n if own else 0}/{outcome.taken}"
        numbers = (
            [f"{own.median:.1f}", report.interval(own), f"{own.best:.1f}", f"{own.spread:.0%}"] if own else ["-"] * 4
        )
        against = [f"{ratio.median:.3f}", report.interval(ratio, 3)] if ratio else ["", ""]
        rows.append([name, *numbers, valid, *against])
    columns = ("contestant", "GB/s", "interval", "best", "spread", "valid", "labkit/it", "interval")
    title = f"{outcome.threads} thread{'s' if outcome.threads > 1 else ''}"
    return report.table(title, columns, sorted(rows), numbers=range(1, 8))


def verdict_lines(outcome: Outcome) -> list[str]:
    """What was dropped, then whether the target holds."""
    dropped = [f"{number} because {reason}" for reason, number in outcome.dropped.most_common()]
    lines = [f"Dropped readings: {'; '.join(dropped)}"] if dropped else []
    peer = outcome.best_peer
    ratio = None if peer is None else outcome.ratio(peer)
    if peer is None or ratio is None or ratio.n < stats.MIN_VALID:
        return [*lines, f"Verdict: {report.UNKNOWN}: fewer than {stats.MIN_VALID} repeats count (busy machine)"]
    best, own = outcome.own(peer), outcome.own(LABKIT)
    assert best is not None  # where there is a ratio there are rates
    assert own is not None
    lines.append(
        f"Verdict: labkit / best peer ({peer}) = {ratio.median:.3f} ({report.interval(ratio, 3)}, {ratio.n} pairs); "
        f"ratio of medians {own.median / best.median:.3f}; target {TARGET:g}: {report.at_least(ratio, TARGET)}"
    )
    modes = [name for name in outcome.readings if stats.modes(outcome.rates(name))]
    if modes:
        lines.append(f"Two modes ({', '.join(modes)}): no median describes them; the ratios within repeats hold")
    return lines
