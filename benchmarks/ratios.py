"""What the readings of labkit and its peers say: each one's rate, and labkit against each peer."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec
from rich.table import Table

from benchmarks import report
from labkit import stats
from labkit.bus import gates
from labkit.machine.state import BUSY_OTHERS_LIMIT

LABKIT = "labkit"
TARGET = 0.98

Key = tuple[int, str]
"""Threads, name of the contestant."""


class Reading(msgspec.Struct, frozen=True):
    """One contestant in one repeat."""

    rate_gbs: float
    starved: str | None  # why it does not count; None: nothing speaks against it


def why_starved(share: float | None, others: float) -> str | None:
    """Why a reading does not count, by labkit's own limits; unknown evidence does not speak against it.

    `share`: the least share of its core that a thread had; `others`: share of the CPUs that other work used.
    """
    if share is not None and share < gates.CPU_SHARE:
        return f"a thread had under {gates.CPU_SHARE:.0%} of its core"
    if others > BUSY_OTHERS_LIMIT:
        return f"other work used over {BUSY_OTHERS_LIMIT:.0%} of the CPUs"
    return None


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
        both = [(ours[repeat], theirs[repeat]) for repeat in sorted(ours) if repeat in theirs]
        pairs = [(our.rate_gbs, their.rate_gbs) for our, their in both if not our.starved and not their.starved]
        return stats.paired_ratio(pairs) if pairs else None

    @property
    def peers(self) -> list[str]:
        """Everybody but labkit."""
        return [name for name in self.readings if name != LABKIT]

    @property
    def taken(self) -> int:
        """Repeats visited."""
        return max(len(repeats) for repeats in self.readings.values())

    @property
    def dropped(self) -> Counter[str]:
        """Readings that do not count, by why."""
        every = (reading for repeats in self.readings.values() for reading in repeats.values())
        return Counter(reading.starved for reading in every if reading.starved)


def outcomes(readings: Mapping[tuple[Key, int], Reading]) -> list[Outcome]:
    """Group readings, which are by contestant and repeat, by thread count."""
    grouped: dict[int, dict[str, dict[int, Reading]]] = defaultdict(lambda: defaultdict(dict))
    for ((threads, name), repeat), reading in readings.items():
        grouped[threads][name][repeat] = reading
    return [Outcome(threads, dict(by_name)) for threads, by_name in sorted(grouped.items())]


def verdict(outcome: Outcome) -> str:
    """Whether labkit reads at least TARGET x the best peer: judged against every peer, by the whole interval.

    The peer with the highest median is not picked first: between near equals that would pick the luckiest one.
    """
    ratios = {peer: ratio for peer in outcome.peers if (ratio := outcome.ratio(peer)) and ratio.n >= stats.MIN_VALID}
    if not ratios or len(ratios) < len(outcome.peers):
        missing = ", ".join(peer for peer in outcome.peers if peer not in ratios) or "any peer"
        return f"{report.UNKNOWN}: fewer than {stats.MIN_VALID} repeats count against {missing} (busy machine)"
    said = {peer: report.at_least(ratio, TARGET) for peer, ratio in ratios.items()}
    lowest = min(ratios, key=lambda peer: ratios[peer].median)
    own, best = outcome.own(LABKIT), max(own.median for peer in outcome.peers if (own := outcome.own(peer)))
    assert own is not None  # where there are ratios there are rates
    words = (
        f"lowest ratio {ratios[lowest].median:.3f} ({report.interval(ratios[lowest], 3)}), to {lowest}; "
        f"ratio of medians to the best {own.median / best:.3f}"
    )
    for status in (report.FALLS_SHORT, report.UNKNOWN):
        against = [peer for peer in said if said[peer] == status]
        if against:
            why = ": the interval holds the target" if status == report.UNKNOWN else ""
            return f"{status} against {', '.join(against)}{why}; {words}"
    return f"{report.HOLDS}; {words}"


def table(outcome: Outcome) -> Table:
    """One row per contestant."""
    rows = []
    for name in (LABKIT, *sorted(outcome.peers)):
        own, ratio = outcome.own(name), None if name == LABKIT else outcome.ratio(name)
        valid = f"{own.n if own else 0}/{outcome.taken}"
        numbers = [f"{own.median:.1f}", report.interval(own), f"{own.spread:.0%}"] if own else ["-"] * 3
        against = [f"{ratio.median:.3f}", report.interval(ratio, 3)] if ratio else ["", ""]
        rows.append([name, *numbers, valid, *against])
    columns = ("contestant", "GB/s", "interval", "spread", "valid", "labkit/it", "interval")
    title = f"{outcome.threads} thread{'s' if outcome.threads > 1 else ''}"
    return report.table(title, columns, rows, numbers=range(1, 7))


def lines(outcome: Outcome) -> list[str]:
    """The verdict, and what to know beside it."""
    found = [f"labkit >= {TARGET:g} x the best peer: {verdict(outcome)}"]
    if outcome.dropped:
        reasons = "; ".join(f"{number} because {reason}" for reason, number in outcome.dropped.most_common())
        found.append(f"Readings that do not count: {reasons}")
    modes = [name for name in outcome.readings if stats.modes(outcome.rates(name))]
    if modes:
        found.append(f"Two modes: {', '.join(modes)}. No median describes them; the ratios within repeats do")
    return found
