"""What the batch and its workers tell each other, one JSON line each; and what the batch tells its caller."""

from typing import Literal

import msgspec

from labkit.parameters import Value


class Job(msgspec.Struct, frozen=True):
    """One cell of the matrix: one notebook for one chip. Paths are absolute."""

    notebook: str
    chip: str  # "all" for a notebook that runs once over all chips
    path: str  # of the notebook
    root: str  # of the project: the kernel's working folder
    folder: str  # where figures, executed copy and done record go
    data_dir: str
    figures_dir: str
    parameters: dict[str, Value]
    parts: dict[str, str]  # digests of everything that decides the result, by what they are of
    code: str  # hash that the notebook must find for itself: its own code and the labkit it imports
    notebooks: tuple[str, ...]  # names of all notebooks of the project
    force: bool
    cell_timeout_s: int


class Result(msgspec.Struct, frozen=True, tag=True):
    """How one cell of the matrix ended."""

    notebook: str
    chip: str
    status: Literal["done", "skipped", "failed"]
    seconds: float
    reason: str  # why it was run, why it was skipped, or what failed
    cell: int | None = None  # failed: number of the notebook's cell, from 1, markdown counted too
    line: str | None = None  # failed: that cell's first line

    def __str__(self) -> str:
        where = f", cell {self.cell} (`{self.line}`)" if self.cell is not None else ""
        took = f" [{self.seconds:.1f} s]" if self.status != "skipped" else ""
        return f"{self.status:<7} {self.notebook}, {self.chip}{where}: {self.reason}{took}"


class Report(msgspec.Struct, frozen=True):
    """How a batch ended."""

    results: tuple[Result, ...]  # in the matrix's order
    seconds: float

    def count(self, status: Literal["done", "skipped", "failed"]) -> int:
        """How many cells of the matrix ended so."""
        return sum(result.status == status for result in self.results)

    @property
    def failed(self) -> tuple[Result, ...]:
        """The cells that failed."""
        return tuple(result for result in self.results if result.status == "failed")

    @property
    def exit_code(self) -> int:
        """0, or 1 if a cell failed."""
        return 1 if self.failed else 0

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(status)} {status}" for status in ("done", "skipped", "failed"))
        return f"{len(self.results)} notebook runs: {counts} [{self.seconds:.1f} s]"


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """Another batch is running this cell of the matrix."""


class Kernel(msgspec.Struct, frozen=True, tag=True):
    """The process that now runs the notebook's code."""

    pid: int


class AtCell(msgspec.Struct, frozen=True, tag=True):
    """The notebook's cell that now begins."""

    cell: int
    line: str


Message = Waiting | Kernel | AtCell | Result
