"""Which cluster each CPU number belongs to on a Mac: what a QoS class asked for is checked against it."""

import re
from collections.abc import Iterable, Mapping

from labkit.machine.sources import Run, Unknown, run_command

# A node of the device tree, "+-o cpu3@103  <class ...>", then its properties, among them "cluster-type" = <"P">.
_NODE = re.compile(r'\+-o cpu(?P<cpu>\d+)@|"cluster-type" = <"(?P<type>\w+)">')


def core_types(run: Run = run_command) -> dict[int, str]:
    """CPU number -> cluster type as the device tree says it ('P', 'E'); {} where it does not say."""
    try:
        text = run(["ioreg", "-p", "IODeviceTree", "-r", "-n", "cpus", "-l", "-w0"])
    except Unknown:
        return {}
    types: dict[int, str] = {}
    cpu = None
    for found in _NODE.finditer(text):
        if found["cpu"] is not None:
            cpu = int(found["cpu"])
        elif cpu is not None:
            types.setdefault(cpu, found["type"])
    return types


def types_seen(cpus: Iterable[int], types: Mapping[int, str]) -> str | None:
    """The cluster types of the CPUs that a window ran on, as 'P' or 'E+P'; None when any is unknown."""
    seen = {types.get(cpu) for cpu in cpus}
    if not seen or None in seen:
        return None
    return "+".join(sorted(name for name in seen if name is not None))
