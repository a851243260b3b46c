"""Which windows count, and what makes a series one that cannot be stood behind."""

from typing import Protocol

CPU_SHARE = 0.97
"""A thread that had less of its core than this was not measuring the bus (spread 9 % below it, 4 % above)."""

PAGE_FAULTS = 8
"""A handful is the interpreter's own; a touched page of the buffer would be hundreds."""

PRESSURE = 0.10
STEAL = 0.05
THROTTLED = 0.01
TOO_OFTEN = 0.2
"""Pressure, steal or throttling beyond its limit in more than this share of the windows speaks against a series."""

CEILING = 2.0
"""The kernel must be this much faster out of the L2 cache, or it and not the bus was the limit."""

KNEE = 0.05
"""Half the bytes must give the same rate within this, or a cache still takes part."""

KERNELS = 0.10
"""Two kernels that read the same bytes agree within this."""

THRESHOLDS: dict[str, float] = {
    "cpu_share": CPU_SHARE,
    "page_faults": PAGE_FAULTS,
    "pressure": PRESSURE,
    "steal": STEAL,
    "throttled": THROTTLED,
    "too_often": TOO_OFTEN,
    "ceiling": CEILING,
    "knee": KNEE,
    "kernels": KERNELS,
}
"""What a run's header records: a reader can tell which rules were in force."""


class Evidence(Protocol):
    """What a window leaves for judging it (a records.Row, or a row of the loaded table)."""

    engine: str | None
    cpu_share: float | None
    page_faults: int | None
    wrong: int | None


def counts(row: Evidence) -> bool:
    """Whether the window's value takes part in its series. Unknown evidence does not speak against it."""
    if row.wrong:
        return False
    if row.engine == "gpu":
        return True  # a thread that waits for a GPU rightly uses little CPU
    starved = row.cpu_share is not None and row.cpu_share < CPU_SHARE
    faulted = row.page_faults is not None and row.page_faults > PAGE_FAULTS
    return not (starved or faulted)
