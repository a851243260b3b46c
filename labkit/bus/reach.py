"""What a run says about reach: the best read rate against the bus peak, and whether it can be stood behind."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from labkit.bus import gates
from labkit.bus.points import Series, gather
from labkit.records import Run
from labkit.stats import Verdict

if TYPE_CHECKING:
    import pandas

MOST = 0.95
"""The knee of the thread curve: the fewest threads that reach this share of the best."""

L1_SCALING = 0.9
"""Out of the L1 cache n cores do n times one core's work, or they are not n cores."""


class Reach(msgspec.Struct, frozen=True):
    """CPU bus reach of one run. Rates in GB/s (1e9 bytes/s); None is unknown, never 0."""

    run: Run
    series: tuple[Series, ...]
    curve: tuple[Series, ...]  # read-only, CPU alone: the better kernel at each tier and thread count
    best: Series | None  # the curve's highest median: the headline
    single: Series | None  # at one thread, on the tier of the best
    threads_for_most: int | None  # fewest threads within MOST of the best, on its tier
    peak: float | None
    verdict: Verdict

    @property
    def share(self) -> float | None:
        """Headline / bus peak; None without either."""
        if self.best is None or self.best.median is None or self.peak is None or self.verdict.status == "refused":
            return None
        return self.best.median / self.peak

    def share_of(self, series: Series) -> float | None:
        """A series' median / bus peak."""
        return None if series.median is None or self.peak is None else series.median / self.peak


def analyse(run: Run) -> Reach:
    """Judge a run of the bus primitive. Reach comes from read-only streaming alone."""
    series = tuple(gather(run))
    reads = [s for s in series if s.key.probe == "sweep" and s.key.op == "read" and s.key.engine == "cpu"]
    by_place: dict[tuple[str, int], list[Series]] = defaultdict(list)
    for s in reads:
        by_place[s.key.tier, s.key.threads].append(s)
    curve = tuple(max(group, key=lambda s: s.median or 0.0) for _, group in sorted(by_place.items()))
    known = [s for s in curve if s.median is not None]
    best = max(known, key=lambda s: s.median or 0.0, default=None)
    peak = run.header.bus_peak_gb_per_s
    same_tier = [s for s in known if best is not None and s.key.tier == best.key.tier]
    enough = [s for s in same_tier if best is not None and (s.median or 0) >= MOST * (best.median or 0)]
    return Reach(
        run=run,
        series=series,
        curve=curve,
        best=best,
        single=next((s for s in same_tier if s.key.threads == 1), None),
        threads_for_most=min((s.key.threads for s in enough), default=None),
        peak=peak,
        verdict=_verdict(run, series, curve, best, peak),
    )


def _verdict(
    run: Run, series: tuple[Series, ...], curve: tuple[Series, ...], best: Series | None, peak: float | None
) -> Verdict:
    """The headline's verdict: its own, and what the rest of the run says about it."""
    if run.header.kind == "published" and best is not None:
        return best.verdict
    around = _partial(run) + _state(run) + _memory_and_code(run)
    if best is None:
        reasons = sorted({reason for s in curve for reason in s.verdict.reasons}) or ["no read rate was measured"]
        return Verdict("refused", (*reasons, *around))
    if peak is not None and (best.median or 0) > peak:
        above = f"{best.median:.1f} GB/s is above the bus peak of {peak:g} GB/s"
        return Verdict("refused", (above, *around))
    reasons = [*best.verdict.reasons, *_gaps(curve), *around, *_proofs(series, best)]
    return Verdict("unreliable" if reasons else best.verdict.status, tuple(reasons))


def _partial(run: Run) -> list[str]:
    if run.end is None or run.end.status != "partial":
        return []
    return [f"partial: {run.end.reason or 'not finished'}"]


def _gaps(curve: tuple[Series, ...]) -> list[str]:
    """Thread counts without a rate: the maximum over the rest need not be the maximum."""
    missing = sorted({s.key.threads for s in curve if s.median is None})
    if not missing:
        return []
    counts = ", ".join(map(str, missing))
    reasons = sorted({reason for s in curve if s.median is None for reason in s.verdict.reasons[-1:]})
    return [f"no rate with {counts} threads ({'; '.join(reasons)}): the best may lie there"]


def _proofs(series: tuple[Series, ...], best: Series) -> list[str]:
    """The checks that a plan puts beside the curve. A check that could not be made is a reason, not a pass."""
    reasons = []

    def one(probe: str, kernel: str, threads: int) -> float | None:
        found = [s for s in series if (s.key.probe, s.key.kernel, s.key.threads) == (probe, kernel, threads)]
        found = [s for s in found if s.key.op == "read" and s.key.engine == "cpu" and not s.key.beside]
        return found[0].median if found else None

    singles = [s for s in series if s.key.probe == "sweep" and s.key.op == "read" and s.key.kernel == "llvm"]
    least = min((s.key.threads for s in singles), default=1)
    most = max((s.key.threads for s in singles), default=1)
    ceiling, rate = one("ceiling", "llvm", least), one("sweep", "llvm", least)
    if ceiling is None or rate is None:
        reasons.append("the kernel's ceiling is unknown")
    elif ceiling < gates.CEILING * rate:
        reasons.append(f"the kernel may be the limit: only {ceiling / rate:.1f} x faster out of the L2 cache")
    if best.key.threads == most:
        half, whole = one("knee", best.key.kernel, most), best.median
        if half is None or whole is None:
            reasons.append("the size knee is unknown")
        elif abs(whole / half - 1) > gates.KNEE:
            reasons.append(f"half the bytes are read at {half / whole:.2f} x the rate: a cache may take part")
    other = [s for s in series if _twin(s, best)]
    for s in other:
        if s.median is not None and best.median and 1 - s.median / best.median > gates.KERNELS:
            reasons.append(f"kernels disagree: {s.key.kernel} reads {s.median:.1f} GB/s here")
    one_core, all_cores = one("scaling", "llvm", least), one("scaling", "llvm", most)
    if most > least and one_core and all_cores:
        scaling = all_cores / one_core / (most / least)
        if scaling < L1_SCALING:
            reasons.append(f"cores are shared: {most} threads do {scaling:.0%} of {most} cores' work in the L1 cache")
    return reasons


def _twin(s: Series, best: Series) -> bool:
    """The same point as `best`, read with another kernel."""
    return s.key != best.key and msgspec.structs.replace(s.key, kernel=best.key.kernel) == best.key


def _state(run: Run) -> list[str]:
    """What the machine's state before and after speaks against the run."""
    before = run.header.state_before
    after = run.end.state_after if run.end else {}
    reasons = [f"before: {reason}" for reason in before.get("unquiet", [])]
    for name, words in (("power_source", "power source"), ("thermal_level", "thermal level")):
        if before.get(name) is not None and after.get(name) is not None and before[name] != after[name]:
            reasons.append(f"{words} changed from {before[name]} to {after[name]}")
    return reasons


def _memory_and_code(run: Run) -> list[str]:
    reasons = []
    share = run.header.parameters.get("huge_page_share")
    if isinstance(share, float) and share < 0.9:
        reasons.append(f"only {share:.0%} of the buffer lies on huge pages: plain pages read slower")
    if without := run.header.parameters.get("without"):
        reasons.append(str(without))
    return reasons


def table(reach: Reach) -> "pandas.DataFrame":
    """One line per series: (series, 17 columns); rates in GB/s, shares as fractions, '' where nothing applies."""
    import pandas

    header = reach.run.header
    lines: list[dict[str, Any]] = []
    for s in reach.series:
        summary = s.summary if s.verdict.status != "refused" else None
        lines.append(
            {
                "chip": header.chip,
                "machine": header.machine,
                "run_id": s.run_id,
                "kind": header.kind,
                **msgspec.structs.asdict(s.key),
                "n": len(s.values) if header.kind == "measured" else (s.summary.n if s.summary else 0),
                "taken": s.taken,
                "median": summary.median if summary else None,
                "low": summary.low if summary else None,
                "high": summary.high if summary else None,
                "mad": summary.mad if summary else None,
                "spread": summary.spread if summary else None,
                "best": summary.best if summary else None,
                "share": reach.share_of(s),
                "verdict": s.verdict.status,
                "reasons": "; ".join(s.verdict.reasons),
            }
        )
    return pandas.DataFrame(lines)
