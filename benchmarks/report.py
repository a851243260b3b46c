"""What benchmarks print: the machine, its state, tables of at most 100 columns, verdicts in words."""

from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from labkit import machine
from labkit.machine import Machine, State
from labkit.machine.show import binary_size
from labkit.stats import Summary

WIDTH = 100

HOLDS, FALLS_SHORT, UNKNOWN = "holds", "does not hold", "cannot tell"


def console() -> Console:
    """Plain text of a fixed width, so that reports of different terminals compare line by line."""
    return Console(width=WIDTH, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> Table:
    """A table; the columns at the positions `numbers` are set flush right."""
    built = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        built.add_column(column, justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        built.add_row(*(Text(cell) for cell in row))
    return built


def machine_lines(here: Machine) -> list[str]:
    """Which machine it is, in two lines."""
    peak = here.bus_peak_gb_per_s
    return [
        f"Machine: {here.chip.value or 'unknown chip'} ({here.arch.value}), {here.usable_cpus.value} usable CPUs, "
        f"{'virtual' if here.virtual.value else 'physical'}, {here.os.value}",
        f"Caches: {here.last_level_bytes.value and binary_size(here.last_level_bytes.value)} last level; "
        f"memory {here.memory_bytes.value and binary_size(here.memory_bytes.value)}; "
        f"bus peak {f'{peak.value:g} GB/s' if peak.value else 'unknown'}",
    ]


def unquiet(state: State) -> list[str]:
    """What other work speaks against measuring; the pressure of the last ten seconds may be the benchmark's own."""
    return machine.quiet_reasons(msgspec.structs.replace(state, cpu_pressure_avg10=None))


def state_line(when: str, state: State) -> str:
    """How busy the machine was, and what speaks against measuring on it."""
    load = "unknown" if state.load1 is None else f"{state.load1:.1f}"
    pressure = "unknown" if state.cpu_pressure_avg10 is None else f"{state.cpu_pressure_avg10:.1f} %"
    return f"{when}: load {load}, CPU pressure {pressure}, {'; '.join(unquiet(state)) or 'quiet'}"


def interval(summary: Summary, digits: int = 1) -> str:
    """'35.9 to 36.4', or '-' without one."""
    if summary.low is None or summary.high is None:
        return "-"
    return f"{summary.low:.{digits}f} to {summary.high:.{digits}f}"


def at_least(ratio: Summary | None, target: float) -> str:
    """Whether a ratio is at least `target`, judged by its whole interval."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return UNKNOWN
    if ratio.low >= target:
        return HOLDS
    return FALLS_SHORT if ratio.high < target else UNKNOWN
