"""What a person sees while a batch runs: a bar on a terminal, one plain line per finished run elsewhere."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol

from labkit.batch.messages import Job, Result


class Display(Protocol):
    """Shows how a batch goes on."""

    def begun(self, job: Job) -> None:
        """A run has begun."""

    def waiting(self, job: Job) -> None:
        """A run waits for another batch that is at it."""

    def finished(self, result: Result) -> None:
        """A run has ended, or was not needed."""


class Silent:
    """Shows nothing."""

    def begun(self, job: Job) -> None: ...
    def waiting(self, job: Job) -> None: ...
    def finished(self, result: Result) -> None: ...


class Plain:
    """One line per event that a log should keep."""

    def begun(self, job: Job) -> None: ...

    def waiting(self, job: Job) -> None:
        print(f"waiting {job.notebook}, {job.chip}: another batch is running it", flush=True)

    def finished(self, result: Result) -> None:
        print(result, flush=True)


class Bar:
    """A progress bar, with the same lines above it."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self.progress = Progress(*columns, console=Console(), transient=True)
        self._task = self.progress.add_task("", total=total)
        self._running: dict[tuple[str, str], str] = {}

    def begun(self, job: Job) -> None:
        self._running[job.notebook, job.chip] = f"{job.notebook}, {job.chip}"
        self._describe()

    def waiting(self, job: Job) -> None:
        self._running[job.notebook, job.chip] += " (waiting for another batch)"
        self._describe()

    def finished(self, result: Result) -> None:
        self._running.pop((result.notebook, result.chip), None)
        self.progress.console.print(str(result), markup=False, highlight=False, soft_wrap=True)
        self.progress.advance(self._task)
        self._describe()

    def _describe(self) -> None:
        from rich.markup import escape

        self.progress.update(self._task, description=escape("; ".join(self._running.values())))


@contextlib.contextmanager
def display(total: int, wanted: bool) -> Iterator[Display]:
    """The display that fits standard output."""
    if not wanted:
        yield Silent()
    elif not sys.stdout.isatty():
        yield Plain()
    else:
        bar = Bar(total)
        with bar.progress:
            yield bar
