"""Run one notebook for one chip, and keep what it made only if it truly came to its end.

Everything is made in a hidden folder beside its place and moved there at the end, so that a run that fails or is
killed leaves what stood there before as it was.
"""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit import atomic, lock, notebook_file, project
from labkit.batch import matrix
from labkit.batch.messages import AtCell, Job, Kernel, Message, Result, Waiting
from labkit.errors import LabkitError
from labkit.notebook import END_MARK

if TYPE_CHECKING:
    from nbformat import NotebookNode

_INJECTED = {"injected-parameters", "papermill-error-cell-tag"}  # cells that papermill adds
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_KERNELSPEC = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}


class Failure(NamedTuple):
    """Why a run does not count, and at which cell (from 1, as in the source notebook)."""

    reason: str
    cell: int | None = None
    line: str | None = None


def execute(job: Job, sockets: Path, tell: Callable[[Message], None]) -> Result:
    """Run `job` unless somebody else has just done it. Never raises for what a notebook or a full disk does."""
    start = time.monotonic()
    folder = Path(job.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock.exclusive(folder / f".{job.notebook}.lock", on_wait=lambda: tell(Waiting())):
            stale = matrix.why_stale(job)
            if stale is None and not job.force:
                return _result(job, "skipped", start, "another batch has just done it")
            failure = _run_and_keep(job, sockets, tell)
    except LabkitError as error:
        return _result(job, "failed", start, str(error))
    except OSError as error:
        return _result(job, "failed", start, f"{error.strerror or error}: {error.filename or job.folder}")
    if failure:
        return _result(job, "failed", start, *failure)
    return _result(job, "done", start, stale or "forced")


def _result(
    job: Job, status: str, start: float, reason: str, cell: int | None = None, line: str | None = None
) -> Result:
    return Result(job.notebook, job.chip, status, round(time.monotonic() - start, 3), reason, cell, line)


def _run_and_keep(job: Job, sockets: Path, tell: Callable[[Message], None]) -> Failure | None:
    folder = Path(job.folder)
    staging = folder / f".{job.notebook}.run"
    shutil.rmtree(staging, ignore_errors=True)  # left by a run that was killed
    staging.mkdir()
    try:
        executed, failure = _run(job, staging, sockets, tell)
        if failure is None:
            _install(job, executed, staging / project.slug(job.chip))
        else:
            # Also when the inputs are those of the last good run: a notebook that has failed is run again.
            matrix.done_path(job).unlink(missing_ok=True)
            if executed is not None:
                atomic.write(folder / f"{job.notebook}.failed.ipynb", _bytes(executed))
        return failure
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _run(
    job: Job, staging: Path, sockets: Path, tell: Callable[[Message], None]
) -> tuple["NotebookNode | None", Failure | None]:
    """Execute the notebook; the executed copy, as far as it got, and why it does not count."""
    import nbformat
    import papermill

    from labkit.batch.kernel import private_kernels

    if notebook_file.read(Path(job.path)).digest() != job.parts["notebook"]:
        return None, Failure("the notebook was changed while the batch was running: run again")
    notebook = nbformat.read(job.path, as_version=4)
    notebook.metadata["kernelspec"] = dict(_KERNELSPEC)
    seen: dict[str, object] = {}

    def at_start(notebook: "NotebookNode") -> None:
        seen["notebook"] = notebook

    def at_cell(cell: "NotebookNode", cell_index: int) -> None:
        seen["cell"] = cell_index
        number = _number(seen["notebook"].cells, cell_index)
        tell(AtCell(number, _first_line(cell.source)))

    staged = _relative(staging, job.root)
    error: Exception | None = None
    try:
        papermill.execute_notebook(
            notebook,
            None,  # we write the copy ourselves: papermill's own write is not atomic
            parameters={
                **job.parameters,
                "chip": job.chip,
                "data_dir": _relative(Path(job.data_dir), job.root),
                "figures_dir": staged,
            },
            kernel_name="python3",
            language="python",
            progress_bar=False,
            request_save_on_cell_execute=False,
            cwd=job.root,
            execution_timeout=job.cell_timeout_s,
            kernel_manager_class=private_kernels(sockets, lambda pid: tell(Kernel(pid))),
            on_notebook_start=at_start,
            on_cell_start=at_cell,
        )
    except Exception as raised:
        error = raised
    executed = seen.get("notebook")
    if executed is None:
        return None, Failure(f"no kernel: {_sentence(error)}")
    failure = _judge(job, executed, error, seen.get("cell"))
    return _cleaned(executed, staged, _relative(Path(job.figures_dir), job.root)), failure


def _judge(job: Job, executed: "NotebookNode", error: Exception | None, last: int | None) -> Failure | None:
    """Why the run does not count. Only what is in the cells is believed: papermill's own metadata call a notebook
    whose kernel was killed "completed"."""
    cells = executed.cells
    # Before the cells' own errors: a cell that is out of time is interrupted, and says KeyboardInterrupt.
    if reason := _kernel_lost(error, job):
        return _failure(cells, last, reason)
    for index, cell in enumerate(cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                return _failure(cells, index, f"{output.ename}: {output.evalue}")
    if error is not None:
        return _failure(cells, last, _sentence(error))
    for index, cell in enumerate(cells):
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            return _failure(cells, index, "this cell was not executed")
    marks = [o.metadata[END_MARK] for c in cells for o in c.get("outputs", ()) if END_MARK in o.get("metadata", {})]
    if not marks:
        return Failure("it ended without its end mark: let lab.finish() be its last line")
    if marks[-1].get("end") != job.notebook:
        return Failure(f"its end mark says {marks[-1].get('end')!r}: give notebook.enter the notebook's own name")
    if marks[-1].get("code") != job.code:
        return Failure(
            "its kernel saw other code than the batch: labkit or the notebook changed meanwhile, or the kernel "
            "imports labkit from somewhere else. Run again"
        )
    return None


def _kernel_lost(error: Exception | None, job: Job) -> str | None:
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    if isinstance(error, DeadKernelError):
        return "the kernel died (killed, or out of memory)"
    if isinstance(error, CellTimeoutError):
        return f"no end after {job.cell_timeout_s} s"
    return None


def _sentence(error: Exception | None) -> str:
    lines = _COLOURS.sub("", str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _failure(cells: "list[NotebookNode]", index: int | None, reason: str) -> Failure:
    reason = " ".join(_COLOURS.sub("", reason).split())
    if index is None:
        return Failure(reason)
    return Failure(reason, _number(cells, index), _first_line(cells[index].source))


def _number(cells: "list[NotebookNode]", index: int) -> int:
    """Cell `index` of the executed copy, counted from 1 in the source notebook."""
    return sum(not _INJECTED & set(cell.metadata.get("tags", ())) for cell in cells[: index + 1])


def _first_line(source: str) -> str:
    return next((line.strip()[:80] for line in source.splitlines() if line.strip()), "")


def _relative(path: Path, root: str) -> str:
    """As a notebook's parameter: relative to the project where possible, so that copies name no machine's folders."""
    return os.path.relpath(path, root) if path.is_relative_to(root) else str(path)


def _cleaned(executed: "NotebookNode", staged: str, figures_dir: str) -> "NotebookNode":
    """The copy to keep: without papermill's banners, times and paths, and with the true figures folder."""
    executed.metadata.pop("papermill", None)
    executed.cells = [c for c in executed.cells if "papermill-error-cell-tag" not in c.metadata.get("tags", ())]
    for cell in executed.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", ()):
            cell.source = cell.source.replace(staged, figures_dir)
    return executed


def _bytes(executed: "NotebookNode") -> bytes:
    import nbformat

    return nbformat.writes(executed).encode()


def _install(job: Job, executed: "NotebookNode", made: Path) -> None:
    """Move what the run made into its place. The done record goes first and comes back last: it vouches for all."""
    folder = Path(job.folder)
    names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    copy = f"{job.notebook}.ipynb"
    with lock.exclusive(folder / ".install.lock"):
        others = (matrix.read_done(folder / f"{other}.done.json") for other in job.notebooks if other != job.notebook)
        kept = {copy, *names}.union(*(done.outputs for done in others if done))
        before = matrix.read_done(matrix.done_path(job))
        matrix.done_path(job).unlink(missing_ok=True)
        for name in set(before.outputs if before else ()) - kept:
            (folder / name).unlink(missing_ok=True)  # it draws this no longer
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(made / name, folder / name)
        atomic.write(folder / copy, _bytes(executed))
        atomic.write(matrix.done_path(job), matrix.done_record(job, [*names, copy]))
    (folder / f"{job.notebook}.failed.ipynb").unlink(missing_ok=True)
