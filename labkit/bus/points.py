"""A run's rows, gathered by point: the summary of each series and the verdict on it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from labkit.bus import gates
from labkit.records import Row, Run
from labkit.stats import Summary, Verdict, judge, summarise


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
    return [build(run.header.run_id, key, rows, taken) for key, rows in sorted(groups.items())]


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
    if key.engine == "cpu":
        flags += _high("CPU pressure", (row.pressure for row in rows), gates.PRESSURE)
        flags += _strayed(key, rows)
        flags += _high("CPU time taken by the hypervisor", (row.steal for row in rows), gates.STEAL)
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
    if not known or median(known) <= limit:
        return []
    return [f"{what} {median(known):.0%} of the time, over {limit:.0%}"]


def _strayed(key: Key, rows: Sequence[Row]) -> list[str]:
    """The slow tier is a claim about slow cores alone. (The fast tier's class may spill over by design.)"""
    seen = {row.tier_seen for row in rows if row.tier_seen is not None}
    strays = sorted(types for types in seen if types != "E")
    if key.tier != "efficiency" or not strays:
        return []
    return [f"meant for E cores, ran on {' and '.join(strays)}"]


def _starved(rows: Sequence[Row]) -> str | None:
    shares = [row.cpu_share for row in rows if row.cpu_share is not None]
    if not shares or median(shares) >= gates.CPU_SHARE:
        return None
    return f"its threads got {median(shares):.0%} of their cores, {gates.CPU_SHARE:.0%} needed: the machine is busy"
