"""The machine that this process runs on, by its system."""

import sys

from labkit.errors import NotAvailable
from labkit.machine.facts import Machine


def describe(peak_gbs: float | None = None) -> Machine:
    """The machine that this process runs on. `peak_gbs` (GB/s) declares the bus peak.

    A source that is missing, unreadable or garbled makes its fact unknown and never raises. Raises BadInput
    for a peak that is not a positive number, NotAvailable on systems other than macOS and Linux.
    """
    if sys.platform == "darwin":
        from labkit.machine import macos

        return macos.machine(peak_gbs)
    if sys.platform == "linux":
        from labkit.machine import linux

        return linux.machine(peak_gbs)
    raise NotAvailable(f"labkit reads macOS and Linux machines; this one says it is {sys.platform}")
