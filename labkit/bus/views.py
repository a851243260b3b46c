"""Runs as a notebook shows them: one subject a machine, and tidy tables for its figures."""

import textwrap
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from labkit.bus.points import Series
from labkit.bus.reach import Reach, analyse
from labkit.records import Ignored, Run
from labkit.stats import MAX_SPREAD, Verdict, sessions

if TYPE_CHECKING:
    import pandas


class Contention(msgspec.Struct, frozen=True):
    """CPU and GPU reading at once, each counted in the common window. GB/s."""

    threads: int
    cpu_alone: Series
    gpu_alone: Series
    cpu_beside: Series
    gpu_beside: Series
    together: Series
    verdict: Verdict

    @property
    def over_gpu_alone(self) -> float | None:
        """Both together / the GPU alone: what adding the CPU brings."""
        both, alone = self.together.median, self.gpu_alone.median
        return None if both is None or not alone or self.verdict.status == "refused" else both / alone


class Subject(msgspec.Struct, frozen=True):
    """One machine as its data show it: its newest measured run, or all that was published of it."""

    chip: str
    machine: str
    kind: str
    gpu_cores: int | None
    reach: Reach
    gpu: tuple[Series, ...]  # the GPU alone, by op
    contention: tuple[Contention, ...]
    earlier: int  # measured runs that the newest one replaces


def subjects(runs: Sequence[Run]) -> list[Subject]:
    """One subject per chip, machine and kind that has CPU reads, in order of their names.

    Measured runs of one machine are sessions of their own and are never pooled: the newest complete one is shown
    (a partial one only where there is no complete one).
    """
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.header.primitive == "bus":
            groups[run.header.chip, run.header.machine, run.header.kind].append(run)
    found = []
    for (chip, machine, kind), group in sorted(groups.items()):
        chosen = [_newest(group)] if kind == "measured" else group
        reaches = [analyse(run) for run in chosen]
        reach = next((reach for reach in reaches if reach.curve), None)
        if reach is None:
            continue
        series = [s for each in reaches for s in each.series]
        found.append(
            Subject(
                chip=chip,
                machine=machine,
                kind=kind,
                gpu_cores=reach.run.header.gpu_cores,
                reach=reach,
                gpu=tuple(s for s in series if s.key.engine == "gpu" and s.key.probe == "sweep"),
                contention=tuple(_contention(series)),
                earlier=len(group) - len(chosen),
            )
        )
    return found


def _newest(runs: Sequence[Run]) -> Run:
    complete = [run for run in runs if run.end is not None and run.end.status == "complete"]
    return max(complete or runs, key=lambda run: run.header.started_at or "")


def _contention(series: Sequence[Series]) -> list[Contention]:
    both = [s for s in series if s.key.quantity == "aggregate_bandwidth"]
    return [found for s in both if (found := _side_by_side(s, series)) is not None]


def _side_by_side(both: Series, series: Sequence[Series]) -> Contention | None:
    threads = both.key.threads
    kernels = [s.key.kernel for s in series if s.key.engine == "cpu" and s.key.beside == "gpu"]
    kernel_beside = kernels[0] if kernels else ""

    def pick(engine: str, beside: str, any_threads: bool = False) -> Series | None:
        """Published files hold the solo rates under the contention probe; our own runs share the sweep's."""
        kernel = "mlx" if engine == "gpu" else kernel_beside
        found = [
            s
            for s in series
            if s.key.engine == engine
            and s.key.beside == beside
            and (any_threads or s.key.threads == threads)
            and s.key.op in ("", "read", "sum")
            and s.key.kernel in ("", kernel)
            and s.key.probe in ("contention", "sweep")
        ]
        return min(found, key=lambda s: (s.key.probe, s.key.threads != threads), default=None)

    parts = (pick("cpu", ""), pick("gpu", "", True), pick("cpu", "gpu"), pick("gpu", "cpu"))
    found = [part for part in (*parts, both) if part is not None]
    if len(found) < 5:
        return None
    reasons = [f"{_who(s)}: {reason}" for s in found for reason in s.verdict.reasons if s.verdict.status != "published"]
    reasons += [
        f"{_who(s)}: spread {s.summary.spread:.0%}, over {MAX_SPREAD:.0%}"
        for s in found
        if s.verdict.status == "published" and s.summary and (s.summary.spread or 0) > MAX_SPREAD
    ]
    if any(s.median is None for s in found):
        verdict = Verdict("refused", tuple(reasons))
    elif reasons:
        verdict = Verdict("unreliable", tuple(reasons))
    else:
        verdict = Verdict("published" if both.verdict.status == "published" else "ok")
    return Contention(threads, *parts, both, verdict)


def _who(s: Series) -> str:
    if not s.key.engine:
        return "together"
    return f"{s.key.engine} beside {s.key.beside}" if s.key.beside else f"{s.key.engine} alone"


def _line(subject: Subject, s: Series, **more: Any) -> dict[str, Any]:
    summary = s.summary if s.median is not None else None
    return {
        "chip": subject.chip,
        "machine": subject.machine,
        "kind": subject.kind,
        "run_id": s.run_id,
        **more,
        "gb_per_s": s.median,
        "low": summary.low if summary else None,
        "high": summary.high if summary else None,
        "bus_peak_gb_per_s": subject.reach.peak,
        "share": subject.reach.share_of(s),
        "n": (len(s.values) if subject.kind == "measured" else summary.n) if summary else 0,
        "taken": s.taken,
        "verdict": s.verdict.status,
        "run_verdict": subject.reach.verdict.status,
        "reasons": "; ".join(s.verdict.reasons),
    }


def verdicts(found: Sequence[Subject]) -> "pandas.DataFrame":
    """One line a subject: (subjects, 12). The headline with its trust; a refused one shows no number."""
    import pandas

    lines = []
    for subject in found:
        reach, best = subject.reach, subject.reach.best
        shown = best if reach.verdict.status != "refused" else None
        lines.append(
            {
                "chip": subject.chip,
                "machine": subject.machine,
                "kind": subject.kind,
                "run_id": subject.reach.run.header.run_id,
                "verdict": reach.verdict.status,
                "gb_per_s": shown.median if shown else None,
                "threads": shown.key.threads if shown else None,
                "one_core_gb_per_s": reach.single.median if shown and reach.single else None,
                "bus_peak_gb_per_s": reach.peak,
                "share": reach.share,
                "reasons": "; ".join(reach.verdict.reasons),
                "earlier_runs": subject.earlier,
            }
        )
    return pandas.DataFrame(lines)


def told(found: Sequence[Subject], ignored: Sequence[Ignored] = ()) -> str:
    """What the subjects' runs say, a paragraph each with the verdict and its reasons, and what was not read."""
    from labkit.bus.show import sentence

    lines = []
    for subject in found:
        earlier = f" Earlier runs of it, not shown: {subject.earlier}." if subject.earlier else ""
        lines.append(f"{subject.machine}: {sentence(subject.reach)}{earlier}")
    lines += [f"not read: {one.path}: {one.reason}" for one in ignored]
    return "\n\n".join(textwrap.fill(line, 100) for line in lines)


def curve(found: Sequence[Subject]) -> "pandas.DataFrame":
    """Read-only CPU rates by tier and thread count, refused ones left out: tidy, GB/s and share of the peak."""
    import pandas

    return pandas.DataFrame(
        _line(subject, s, tier=s.key.tier, threads=s.key.threads, kernel=s.key.kernel)
        for subject in found
        for s in subject.reach.curve
        if s.median is not None
    )


def stores(found: Sequence[Subject]) -> "pandas.DataFrame":
    """Copy and triad by store kind: counted as the program moves bytes, and with write-allocate traffic added."""
    import pandas

    from labkit.bus.plan import TRAFFIC

    lines = []
    for subject in found:
        for s in subject.reach.series:
            if s.key.op in ("copy", "triad") and s.median is not None:
                line = _line(subject, s, op=s.key.op, stores=s.key.store, threads=s.key.threads)
                traffic = TRAFFIC.get((s.key.op, s.key.store), 1.0)
                lines.append({**line, "bus_model_gb_per_s": s.median * traffic})
    return pandas.DataFrame(lines)


def engines(found: Sequence[Subject]) -> "pandas.DataFrame":
    """One core, the best thread count and the GPU's ops, each alone. Empty where no GPU was measured."""
    import pandas

    lines = []
    for subject in found:
        if not subject.gpu:
            continue
        reach = subject.reach
        if reach.single is not None and reach.single.median is not None:
            lines.append(_line(subject, reach.single, engine="CPU, 1 thread"))
        if reach.best is not None and reach.verdict.status != "refused":
            lines.append(_line(subject, reach.best, engine=f"CPU, {reach.best.key.threads} threads"))
        lines += [_line(subject, s, engine=f"GPU, {s.key.op}") for s in subject.gpu if s.median is not None]
    return pandas.DataFrame(lines)


def contention(found: Sequence[Subject]) -> "pandas.DataFrame":
    """CPU and GPU alone and at once, by CPU thread count; refused cases left out."""
    import pandas

    lines = []
    for subject in found:
        for case in subject.contention:
            if case.verdict.status == "refused":
                continue
            lines.append(
                {
                    "chip": subject.chip,
                    "machine": subject.machine,
                    "kind": subject.kind,
                    "run_id": case.together.run_id,
                    "threads": case.threads,
                    "cpu_alone": case.cpu_alone.median,
                    "gpu_alone": case.gpu_alone.median,
                    "cpu_beside_gpu": case.cpu_beside.median,
                    "gpu_beside_cpu": case.gpu_beside.median,
                    "together": case.together.median,
                    "over_gpu_alone": case.over_gpu_alone,
                    "bus_peak_gb_per_s": subject.reach.peak,
                    "verdict": case.verdict.status,
                    "run_verdict": subject.reach.verdict.status,
                    "reasons": "; ".join(case.verdict.reasons),
                }
            )
    return pandas.DataFrame(lines)


def comparability(found: Sequence[Subject]) -> str:
    """One sentence on whether the subjects' differences can be put down to the machines."""
    times = [(s.reach.run.header.started_at, s.reach.run.end.finished_at if s.reach.run.end else None) for s in found]
    matched = all(sessions(a, b) == "matched" for a in times for b in times)
    if len(found) < 2 or matched:
        return "All sessions overlap in time: differences are the machines'."
    return (
        "Confounded: these sessions do not overlap in time (or their times are not published), so small differences "
        "may be the hour's and not the machine's. One box moved by 16 standard errors within three hours in "
        "published data."
    )
