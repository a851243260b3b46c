"""How long a user waits: help, the first window, a quick measurement, a batch, and a batch with nothing to do.

Each figure is the wall time of a whole process, started as a user starts it, over several runs; its median is held
against the target. On a busy machine a missed target says little, which is why the state stands above the table.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from rich.text import Text

from benchmarks import report
from labkit import machine, project, protocol, records
from labkit.errors import ChildFailed
from labkit.windows import now_ns

QUIET_S = 60.0
LABKIT = [sys.executable, "-m", "labkit"]
# Ends when the first worker begins its first unit of work: memory is filled by then, and all workers are ready.
FIRST_WINDOW = """
import os, sys, threading, time
from labkit import windows

began, first = int(sys.argv.pop()), threading.Lock()

def started(*_):
    if not first.acquire(blocking=False):
        time.sleep(60)
    took = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - began
    os.write(1, str(took / 1e9).encode())
    os._exit(0)

windows._run = started
sys.argv = ["labkit", "bus", "--quick", "--wait", "0", "--data-dir", *sys.argv[1:]]
from labkit.cli import main
main()
"""


def timed(command: Sequence[str], *, good: Sequence[int] = (0,), **options: object) -> tuple[float, str]:
    """Wall time of a command, and what it printed. Raises ChildFailed when it ends in a way that is not `good`."""
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    took = time.monotonic() - start
    if done.returncode not in good:
        raise ChildFailed(f"{' '.join(command[-3:])} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return took, done.stdout


def first_window(folder: Path) -> float:
    """Seconds from the start of `labkit bus --quick` until its first window begins.

    Counted: Python and imports, describing the machine, compiling the kernels, one look at how busy it is (0.2 s),
    and filling the memory that the first point needs. Not counted: waiting for a quiet machine.
    """
    command = [sys.executable, "-c", FIRST_WINDOW, str(folder), str(now_ns())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChildFailed(f"labkit bus did not reach its first window: {done.stderr.strip()[-300:]}")
    return float(done.stdout)


def main() -> None:
    """Measure and print."""
    console = report.console()
    console.print(Text("quickness: how long a user waits (wall time of whole processes)", style="bold"))
    for line in report.machine_lines(machine.describe()):
        console.print(Text(line))
    before, _ = protocol.wait_until_quiet(QUIET_S)
    with tempfile.TemporaryDirectory() as temporary:
        figures = _figures(Path(temporary))
    after = machine.state()
    busy = bool(report.unquiet(before) or report.unquiet(after))
    rows = [row(*figure, busy=busy) for figure in figures]
    console.print(Text(report.state_line("Before", before)))
    console.print(Text(report.state_line("After", after)))
    console.print(report.table("", ("figure", "target", "median", "range", "n", "says"), rows, numbers=(1, 2, 3, 4)))


def _figures(folder: Path) -> list[tuple[str, float, list[float]]]:
    """(what, target in seconds, measured seconds), in an order in which each finds what it needs."""
    data = folder / "data"
    shutil.copytree(project.reference_dir(), data / "reference")

    def times(count: int, take: Callable[[], float]) -> list[float]:
        take()  # warms the file cache
        return [take() for _ in range(count)]

    helps = times(9, lambda: timed([*LABKIT, "--help"])[0])
    firsts = times(5, lambda: first_window(folder / "never"))
    # Exit 1 is a verdict that falls short: the measurement was taken all the same.
    quick = [timed([*LABKIT, "bus", "--quick", "--data-dir", str(data)], good=(0, 1))[0]]
    root = project.root()

    def batch(figures: Path) -> tuple[float, str]:
        command = [*LABKIT, "run", "--data-dir", str(data), "--figures-dir", str(figures)]
        return timed(command, cwd=root, env={**os.environ, "NO_COLOR": "1"})

    fresh = [batch(folder / f"figures-{number}")[0] for number in range(3)]
    again = [batch(folder / "figures-0") for _ in range(6)]
    return [
        ("labkit --help", 0.3, helps),
        ("labkit bus --quick until its first window", 1.5, firsts),
        ("labkit bus --quick", 60.0, quick),
        (f"labkit run, {len(records.chips(data))} chips", 60.0, fresh),
        ("labkit run, nothing changed", 3.0, [took for took, said in again if all_skipped(said)]),
    ]


def all_skipped(said: str) -> bool:
    """Whether a batch found nothing to do. While somebody edits labkit it rightly finds something."""
    closing = re.search(r"^Figures: .*notebooks (.*)\.$", said, re.MULTILINE)
    return closing is not None and re.fullmatch(r"\d+ skipped", closing[1]) is not None


def row(what: str, target: float, taken: list[float], *, busy: bool) -> tuple[str, ...]:
    """One line of the table. A target that is missed on a busy machine says nothing."""
    if not taken:
        return what, f"<= {target:g} s", "-", "-", "0", f"{report.UNKNOWN} (not taken)"
    middle = median(taken)
    says = report.HOLDS if middle <= target else f"{report.UNKNOWN} (busy)" if busy else report.FALLS_SHORT
    spread = f"{min(taken):.2f} to {max(taken):.2f} s" if len(taken) > 1 else "-"
    return what, f"<= {target:g} s", f"{middle:.2f} s", spread, str(len(taken)), says
