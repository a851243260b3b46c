"""Run notebooks for chips: only what is not done, in parallel, each failure by itself."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from labkit import project
from labkit.batch import matrix, pool
from labkit.batch.messages import Job, Report, Result, Waiting
from labkit.batch.progress import Display, display
from labkit.errors import BadInput

CELL_TIMEOUT_S = 600


def run(
    notebooks: Sequence[str] | None = None,
    chips: Sequence[str] | None = None,
    *,
    data_dir: Path | str = "data",
    figures_dir: Path | str = "figures",
    parameters: Mapping[str, object] | None = None,
    jobs: int | None = None,
    force: bool = False,
    progress: bool = True,
    cell_timeout_s: int = CELL_TIMEOUT_S,
) -> Report:
    """Run `notebooks` (names; default all) for `chips` (default all with data) and return how each run ended.

    A run whose notebook, labkit code, data, parameters and versions are those of its last success, and whose outputs
    are as they were, is skipped unless `force`. Relative folders are meant from the project's root. `parameters` go
    to every notebook, text is coerced to the declared types. `jobs` at a time (default: usable cores).
    Raises BadInput before anything has run; what fails in a notebook is in the report instead.
    """
    begun = time.monotonic()
    root = project.root()
    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs must be at least 1, not {jobs}")
    data, figures = root / data_dir, root / figures_dir
    if not data.is_dir():
        raise BadInput(f"data_dir: there is no folder {data}; pass the folder that holds `runs`")
    planned = matrix.plan(root, data, figures, notebooks, chips, parameters or {}, force, cell_timeout_s)
    results: dict[tuple[str, str], Result] = {}
    with display(len(planned), progress) as shown:

        def note(result: Result) -> None:
            results[result.notebook, result.chip] = result
            shown.finished(result)

        to_do = []
        for job in planned:
            if force or matrix.why_stale(job):
                to_do.append(job)
            else:
                note(Result(job.notebook, job.chip, "skipped", 0.0, "unchanged"))
        if to_do:
            _run(to_do, min(jobs or _usable_cores(), len(to_do)), shown, note)
        for job, reason in _clashes(planned):
            matrix.done_path(job).unlink(missing_ok=True)
            note(Result(job.notebook, job.chip, "failed", results[job.notebook, job.chip].seconds, reason))
    in_order = tuple(results[job.notebook, job.chip] for job in planned)
    return Report(in_order, round(time.monotonic() - begun, 3))


def _run(jobs: Sequence[Job], workers: int, shown: Display, note: Callable[[Result], None]) -> None:
    begun: set[tuple[str, str]] = set()
    with contextlib.closing(pool.run(jobs, workers)) as events:
        for job, message in events:
            if (job.notebook, job.chip) not in begun:
                begun.add((job.notebook, job.chip))
                shown.begun(job)
            match message:
                case Waiting():
                    shown.waiting(job)
                case Result():
                    note(message)


def _clashes(jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
    """Jobs whose outputs another job has written too: whichever came last has replaced the other's."""
    claims: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        done = matrix.read_done(matrix.done_path(job))
        for name in done.outputs if done else ():
            claims[f"{job.folder}/{name}"].append(job)
    seen: set[tuple[str, str]] = set()
    for path, claimants in claims.items():
        for job in claimants:
            if len(claimants) > 1 and (job.notebook, job.chip) not in seen:
                seen.add((job.notebook, job.chip))
                others = " and ".join(other.notebook for other in claimants if other is not job)
                yield job, f"it saves {Path(path).name}, and so does {others}: give one of them another name"


def _usable_cores() -> int:
    """Cores that this process may keep busy: affinity and control groups count."""
    from labkit import machine

    return machine.describe().usable_cpus.value or 1
