"""What a run says about reach: the best read rate against the bus peak, and whether it can be stood behind."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from labkit.bus import gates
from labkit.bus.points import CACHED, Series, gather
from labkit.records import Run
from labkit.stats import Verdict

if TYPE_CHECKING:
    import pandas

MOST = 0.95
"""The knee of the thread curve: the fewest threads that reach this share of the best."""

L1_SCALING = 0.9


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
    """Judge a run of the bus primitive. Reach comes from read-only streaming alone; what is above the peak is none."""
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
    around = [*_partial(run), *_state(run), *run.header.parameters.get("doubts", []), *_pages(run)]
    impossible = [s for s in series if peak is not None and _above(s, peak)]
    if impossible:
        worst = max(impossible, key=lambda s: s.summary.median if s.summary else 0)
        return Verdict("refused", (*worst.verdict.reasons, "the peak or the measurement is wrong", *around))
    if best is None:
        reasons = sorted({reason for s in curve for reason in s.verdict.reasons}) or ["no read rate was measured"]
        return Verdict("refused", (*reasons, *around))
    reasons = [*best.verdict.reasons, *_gaps(run, curve, best.key.tier), *around, *_proofs(run, series, best)]
    return Verdict("unreliable" if reasons else best.verdict.status, tuple(dict.fromkeys(reasons)))


def _above(s: Series, peak: float) -> bool:
    return s.summary is not None and s.summary.median > peak and s.key.probe not in CACHED


def _partial(run: Run) -> list[str]:
    if run.end is None or run.end.status != "partial":
        return []
    return [f"partial: {run.end.reason or 'not finished'}"]


def _gaps(run: Run, curve: tuple[Series, ...], tier: str) -> list[str]:
    """Thread counts of the headline's tier without a rate: the maximum over the rest need not be the maximum."""
    known = {s.key.threads for s in curve if s.key.tier == tier and s.median is not None}
    tried = {s.key.threads for s in curve if s.key.tier == tier}
    if tier == run.header.parameters.get("main_tier"):
        tried |= set(run.header.parameters.get("threads", ()))  # a point whose every window was lost has no rows
    missing = sorted(tried - known)
    if not missing:
        return []
    counts = ", ".join(map(str, missing))
    refused = [s for s in curve if s.key.tier == tier and s.median is None]
    reasons = sorted({reason for s in refused for reason in s.verdict.reasons[-1:]}) or ["no window of theirs counted"]
    return [f"no rate with {counts} threads ({'; '.join(reasons)}): the best may lie there"]


def _proofs(run: Run, series: tuple[Series, ...], best: Series) -> list[str]:
    """The checks that a plan puts beside the curve. A check that could not be made is a reason, not a pass."""
    reads = [s for s in series if s.key.op == "read" and s.key.engine == "cpu" and not s.key.beside]

    def at(probe: str, kernel: str, threads: int, tier: str) -> float | None:
        key = (probe, kernel, threads, tier)
        found = [s for s in reads if (s.key.probe, s.key.kernel, s.key.threads, s.key.tier) == key]
        return found[0].median if found else None

    reasons = []
    ceilings = [s for s in reads if s.key.probe == "ceiling" and s.median is not None]
    for s in ceilings:
        rate = at("sweep", s.key.kernel, s.key.threads, s.key.tier)
        if rate is None:
            reasons.append("the kernel's ceiling has no rate to be compared with")
        elif (s.median or 0) < gates.CEILING * rate:
            reasons.append(
                f"the kernel may be the limit: only {(s.median or 0) / rate:.1f} x faster out of the L2 cache"
            )
    if not ceilings:
        reasons.append("the kernel's ceiling is unknown")
    knees = [s for s in reads if s.key.probe == "knee" and s.median is not None]
    compared = 0
    for s in knees:
        whole, half = at("sweep", s.key.kernel, s.key.threads, s.key.tier), s.median or 0
        if whole is not None:
            compared += 1
            if abs(whole / half - 1) > gates.KNEE:
                reasons.append(
                    f"{s.key.kernel} reads half the bytes at {half / whole:.2f} x the rate: a cache may take part"
                )
    if not compared:
        reasons.append("the size knee is unknown")
    others = [s for s in series if _twin(s, best) and s.median is not None]
    for s in others:
        if best.median and s.median is not None and 1 - s.median / best.median > gates.KERNELS:
            reasons.append(f"kernels disagree: {s.key.kernel} reads {s.median:.1f} GB/s here")
    if not others and not _crosschecked(reads, best):
        reasons.append("no second kernel to check the first against")
    return reasons + _shared_cores([s for s in reads if s.key.probe == "scaling"])


def _twin(s: Series, best: Series) -> bool:
    """The same point as `best`, read with another kernel."""
    return s.key != best.key and msgspec.structs.replace(s.key, kernel=best.key.kernel) == best.key


def _crosschecked(reads: list[Series], best: Series) -> bool:
    """Whether another kernel agreed at some other thread count of the tier (a quick plan checks the ends alone)."""
    rates = [s for s in reads if s.key.probe == "sweep" and s.key.tier == best.key.tier and s.median is not None]
    ours = {s.key.threads: s.median for s in rates if s.key.kernel == best.key.kernel}
    theirs = {s.key.threads: s.median for s in rates if s.key.kernel != best.key.kernel}
    both = set(ours) & set(theirs)
    return bool(both) and all(abs(1 - theirs[n] / ours[n]) <= gates.KERNELS for n in both if ours[n] and theirs[n])


def _shared_cores(scaling: list[Series]) -> list[str]:
    """Out of the L1 cache n cores of one kind do n times one core's work, or they are not n cores."""
    known = {s.key.threads: s.median for s in scaling if s.median is not None}
    if len(known) < 2:
        return ["whether the cores are shared is unknown"] if len(scaling) > 1 else []
    least, most = min(known), max(known)
    share = (known[most] or 0) / (known[least] or 1) / (most / least)
    if share >= L1_SCALING:
        return []
    return [f"cores are shared: {most} threads do {share:.0%} of {most} cores' work in the L1 cache"]


def _state(run: Run) -> list[str]:
    """What the machine's state before and after speaks against the run."""
    before = run.header.state_before
    after = run.end.state_after if run.end else {}
    reasons = [f"before: {reason}" for reason in before.get("unquiet", [])]
    reasons += [f"after: {reason}" for reason in after.get("unquiet", [])]
    for name, words in (("power_source", "power source"), ("thermal_level", "thermal level")):
        if before.get(name) is not None and after.get(name) is not None and before[name] != after[name]:
            reasons.append(f"{words} changed from {before[name]} to {after[name]}")
    return reasons


def _pages(run: Run) -> list[str]:
    share = run.header.parameters.get("huge_page_share")
    if isinstance(share, float) and share < 0.9:
        return [f"only {share:.0%} of the buffer lies on huge pages: plain pages read slower"]
    return []


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
