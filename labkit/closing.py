"""The three lines that end `labkit run`: what was measured, what was published, where the figures are."""

from pathlib import Path
from typing import TYPE_CHECKING

from labkit import records
from labkit.bus.reach import Reach, analyse
from labkit.bus.show import sentence
from labkit.errors import LabkitError
from labkit.records import Run

if TYPE_CHECKING:
    from labkit.batch import Report


def closing_lines(data_dir: Path, figures_dir: Path, report: "Report", measured: Run | LabkitError | None) -> list[str]:
    """What a reader wants to know last. `measured` is this invocation's own run, or why there is none, or None."""
    runs, _ = records.read_all(data_dir)
    lines = []
    if measured is not None:
        found = f"nothing, {measured}" if isinstance(measured, LabkitError) else sentence(analyse(measured))
        lines.append(f"Measured: {found}")
    lines.append(f"Published: {'; '.join(_published(runs)) or 'no data'}.")
    counts = {status: report.count(status) for status in ("done", "skipped", "failed")}
    folders = {result.chip for result in report.results}
    lines.append(
        f"Figures: {_nearest(figures_dir)} ({len(folders)} folder{'s' * (len(folders) != 1)}), notebooks "
        + ", ".join(f"{number} {status}" for status, number in counts.items() if number)
        + "."
    )
    return lines


def _nearest(folder: Path) -> Path:
    """As the reader would type it from here."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _published(runs: tuple[Run, ...]) -> list[str]:
    found: dict[str, Reach] = {}
    for run in runs:
        if run.header.kind == "published":
            reach = analyse(run)
            if reach.share is not None:
                found[run.header.chip] = reach
    return [f"{chip} reaches {reach.share:.0%} of {reach.peak:g} GB/s" for chip, reach in sorted(found.items())]
