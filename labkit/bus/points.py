"""A run's rows, gathered by point: the summary of each series and the verdict on it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from labkit.bus import gates
from labkit.records import Row, Run
from labkit.stats import Summary, Verdict, judge, summarise

CACHED = ("ceiling", "scaling")
"""Probes that read out of a cache on purpose."""


class Key(msgspec.Struct, frozen=True, order=True):
    """What makes rows one series."""

    quantity: str
    probe: str
    engine: str
    beside: str
    tier: str
    threads: int
    op: str
    kernel: str
    store: str
    bytes: int


class Series(msgspec.Struct, frozen=True):
    """One point with its values (those that count), their summary and the verdict. Values in GB/s."""

    run_id: str
    key: Key
    values: tuple[float, ...]
    taken: int  # repeats in all
    summary: Summary | None
    verdict: Verdict

    @property
    def median(self) -> float | None:
        """The series' median, or None when there is none to stand behind."""
        return None if self.summary is None or self.verdict.status == "refused" else self.summary.median


def gather(run: Run) -> list[Series]:
    """Every series of a run, in order of its key."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in run.rows:
        groups[key_of(row)].append(row)
    taken = max((row.repeat + 1 for row in run.rows), default=0)
    build = _published if run.header.kind == "published" else _measured
    found = [build(run.header.run_id, key, rows, taken) for key, rows in sorted(groups.items())]
    return [_within(run.header.bus_peak_gb_per_s, series) for series in found]


def _within(peak: float | None, series: Series) -> Series:
    """Refuse what the bus cannot carry. (Rates out of a cache may be above its peak.)"""
    rate = series.median
    if peak is None or rate is None or rate <= peak or series.key.probe in CACHED:
        return series
    above = f"{rate:.1f} GB/s, above the bus peak of {peak:g} GB/s"
    return msgspec.structs.replace(series, verdict=Verdict("refused", (above,)))


def key_of(row: Row) -> Key:
    """The series a row belongs to; what does not apply is '' or 0."""
    return Key(
        quantity=row.quantity,
        probe=row.probe or "",
        engine=row.engine or "",
        beside=row.beside or "",
        tier=row.tier or "",
        threads=row.threads or 0,
        op=row.op or "",
        kernel=row.kernel or "",
        store=row.store or "",
        bytes=row.bytes or 0,
    )


def _measured(run_id: str, key: Key, rows: Sequence[Row], taken: int) -> Series:
    values = tuple(row.value for row in rows if gates.counts(row))
    wrong = sum(row.wrong or 0 for row in rows)
    flags = []
    if key.engine != "gpu":
        flags += _high("tasks waited for a CPU", (row.pressure for row in rows), gates.PRESSURE)
        flags += _strayed(key, rows)
        flags += _high("the hypervisor took CPU time", (row.steal for row in rows), gates.STEAL)
        flags += _high("a CPU quota throttled it", (row.throttled for row in rows), gates.THROTTLED)
    summary = summarise(values) if values else None
    verdict = judge(summary, taken=taken, flags=flags)
    if wrong:
        verdict = Verdict("refused", (f"{wrong} wrong results", *verdict.reasons))
    elif verdict.status == "refused" and (starved := _starved(rows)):
        verdict = Verdict("refused", (*verdict.reasons, starved))
    return Series(run_id, key, values, taken, summary, verdict)


def _published(run_id: str, key: Key, rows: Sequence[Row], _: int) -> Series:
    """A published median stands for itself; its repeats, where printed, are rounded and only counted."""
    samples = tuple(row.value for row in rows if row.statistic == "sample")
    medians = [row for row in rows if row.statistic == "median"]
    if medians:
        known = medians[0].samples or len(samples) or None
        summary = Summary(n=known or 0, median=medians[0].value, low=None, high=None, spread=medians[0].spread)
        what = f"median of {known}" if known else "median of an unstated number"
    else:
        summary = Summary(n=len(samples), median=median(samples), low=None, high=None)
        what = "a single value" if len(samples) == 1 else f"{len(samples)} values"
    return Series(run_id, key, samples, summary.n, summary, Verdict("published", (what,)))


def _high(what: str, shares: Iterable[float | None], limit: float) -> list[str]:
    known = [share for share in shares if share is not None]
    over = [share for share in known if share > limit]
    if len(over) <= gates.TOO_OFTEN * len(known):
        return []
    return [f"{what} in {len(over)} of {len(known)} windows (up to {max(over):.0%}, limit {limit:.0%})"]


def _strayed(key: Key, rows: Sequence[Row]) -> list[str]:
    """The slow tier is a claim about slow cores alone. (The fast tier's class may spill over by design.)"""
    mixed = sorted({row.tier_seen for row in rows if row.tier_seen is not None and "+" in row.tier_seen})
    if key.tier != "efficiency" or not mixed:
        return []
    return [f"meant for one tier of cores, ran on {' and '.join(mixed)}"]


def _starved(rows: Sequence[Row]) -> str | None:
    shares = [row.cpu_share for row in rows if row.cpu_share is not None]
    if not shares or median(shares) >= gates.CPU_SHARE:
        return None
    return f"its threads got {median(shares):.0%} of their cores, {gates.CPU_SHARE:.0%} needed: the machine is busy"
