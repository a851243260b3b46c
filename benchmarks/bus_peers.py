"""Read bandwidth at 1 and at all threads: labkit's kernel against likwid-bench and numpy, interleaved in one run.

Every repeat visits all contestants in an order of its own. All read the same number of bytes on huge pages, from
pinned threads, each its own first-touched part, for the same time. numpy reads the very memory that labkit reads.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle

import msgspec
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
    rates: dict[str, list[float]]  # by contestant, over the repeats that count, in the repeats' order
    taken: int
    dropped: dict[str, int]  # repeats by why they do not count

    def ratio(self, peer: str) -> stats.Summary | None:
        """labkit / peer, each ratio within one repeat; None without a repeat that counts."""
        pairs = list(zip(self.rates[LABKIT], self.rates[peer], strict=True))
        return stats.paired_ratio(pairs) if pairs else None

    @property
    def best_peer(self) -> str | None:
        """The peer with the highest median."""
        peers = {name: stats.summarise(rates).median for name, rates in self.rates.items() if rates and name != LABKIT}
        return max(peers, key=peers.__getitem__, default=None)


def outcomes(readings: Mapping[tuple[Key, int], Reading]) -> list[Outcome]:
    """Group by thread count. `readings` are by contestant and repeat.

    A repeat counts at a thread count when all its contestants had their cores there: a ratio of a free run to a
    starved one would be about the neighbours.
    """
    grouped: dict[int, dict[int, dict[str, Reading]]] = defaultdict(lambda: defaultdict(dict))
    for ((threads, name), repeat), reading in readings.items():
        grouped[threads][repeat][name] = reading
    found = []
    for threads, repeats in sorted(grouped.items()):
        names = list(dict.fromkeys(name for visited in repeats.values() for name in visited))
        rates: dict[str, list[float]] = {name: [] for name in names}
        dropped: dict[str, int] = defaultdict(int)
        for _, visited in sorted(repeats.items()):
            reasons = [reading.starved for reading in visited.values() if reading.starved]
            if len(visited) < len(names):
                reasons.append("not all contestants were measured")
            if reasons:
                dropped[reasons[0]] += 1
                continue
            for name, reading in visited.items():
                rates[name].append(reading.rate_gbs)
        found.append(Outcome(threads, rates, len(repeats), dict(dropped)))
    return found


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
        printed = likwid.run(few).printed
        share = likwid.huge_page_share(few)
        pages = "unknown pages" if share is None else f"{share:.0%} of its memory on huge pages"
        self.notes.append(f"{likwid.PROGRAM} with {threads} threads: CPUs {_list(printed.cpus)}, {pages}")
        wanted = set(self.tier.cpus[:threads])
        if wanted and set(printed.cpus) != wanted:
            self.notes.append(f"labkit and numpy run on CPUs {_list(sorted(wanted))}: not the same cores")
        iterations = max(1, round(WINDOW_S * printed.rate_gbs * 1e9 / self.footprint))
        arguments = likwid.command(self.footprint, threads, iterations, stride)

        def read() -> tuple[float, float | None]:
            ran = likwid.run(arguments)
            return ran.printed.rate_gbs, None if ran.waited is None else 1 - ran.waited

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
        f"{memory_size(footprint)} read for {WINDOW_S:g} s a turn; {max(o.taken for o in found)} repeats, seed {seed}; "
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


def _table(outcome: Outcome) -> object:
    rows = []
    for name, rates in outcome.rates.items():
        if not rates:
            rows.append([name, "-", "-", "-", "-", "-", "-"])
            continue
        own, ratio = stats.summarise(rates), outcome.ratio(name) if name != LABKIT else None
        rows.append(
            [
                name,
                f"{own.median:.1f}",
                report.interval(own),
                f"{own.best:.1f}",
                f"{own.spread:.0%}",
                f"{ratio.median:.3f}" if ratio else "",
                report.interval(ratio, 3) if ratio else "",
            ]
        )
    columns = ("contestant", "GB/s", "interval", "best", "spread", "labkit / it", "interval")
    title = f"{outcome.threads} thread{'s' if outcome.threads > 1 else ''}"
    return report.table(title, columns, rows, numbers=(1, 2, 3, 4, 5, 6))


def verdict_lines(outcome: Outcome) -> list[str]:
    """What counts and what does not, then whether the target holds."""
    valid = len(outcome.rates[LABKIT])
    reasons = ", ".join(f"{number} because {reason}" for reason, number in outcome.dropped.items())
    lines = [f"{valid} of {outcome.taken} repeats count" + (f"; dropped for all: {reasons}" if reasons else "")]
    peer = outcome.best_peer
    if peer is None or valid < stats.MIN_VALID:
        busy = f"only {valid} repeats count, {stats.MIN_VALID} needed: the machine was busy"
        return [*lines, f"Verdict: {report.UNKNOWN} ({busy})"]
    ratio = outcome.ratio(peer)
    said = report.at_least(ratio, TARGET)
    # By construction there is a ratio where repeats count.
    assert ratio is not None
    medians = stats.summarise(outcome.rates[LABKIT]).median / stats.summarise(outcome.rates[peer]).median
    lines.append(
        f"Verdict: labkit reads {ratio.median:.3f} x the best peer, {peer} (ratio of medians {medians:.3f}); "
        f"target {TARGET:g}: {said}"
    )
    modes = [name for name, rates in outcome.rates.items() if stats.modes(rates)]
    if modes:
        lines.append(f"Two modes: {', '.join(modes)}: their medians describe neither; the ratios within repeats do")
    return lines
