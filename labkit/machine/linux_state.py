"""How a Linux machine is now: pressure, steal, throttling, clock, power, memory, uptime."""

import os
import re
from pathlib import Path

from labkit.machine import cgroups
from labkit.machine.linux import memory_field
from labkit.machine.sources import Unknown, listing, read_text, shown, whole_number

PRESSURE = re.compile(r"^some avg10=([0-9]{1,3}\.[0-9]+) avg60=\S+ avg300=\S+ total=([0-9]{1,20})$", re.MULTILINE)


def cpu_pressure(root: Path = Path("/")) -> tuple[tuple[float, int], str]:
    """((percent of the last 10 s, microseconds since boot) in which some task waited for a CPU, source)."""
    name = "proc/pressure/cpu"
    found = PRESSURE.search(text := read_text(root, name))
    if not found:
        raise Unknown(f"/{name} is not understood: {shown(text)}")
    return (float(found[1]), int(found[2])), f"/{name} some"


def steal_s(root: Path = Path("/")) -> tuple[float, str]:
    """Seconds that a hypervisor kept from this machine's CPUs, summed over them, since boot."""
    fields = read_text(root, "proc/stat").partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        raise Unknown(f"/proc/stat has no steal column: {shown(' '.join(fields))}")
    ticks = whole_number(fields[8], "/proc/stat steal")
    return ticks / os.sysconf("SC_CLK_TCK"), "/proc/stat steal"


def cpu_mhz(root: Path = Path("/")) -> tuple[float, str]:
    """Mean clock over the frequency policies, in MHz."""
    folder = "sys/devices/system/cpu/cpufreq"
    policies = [name for name in listing(root, folder) if name.startswith("policy")]
    if not policies:
        raise Unknown(f"/{folder} is empty: no frequency driver (usual in a virtual machine)")
    names = [f"{folder}/{policy}/scaling_cur_freq" for policy in policies]
    khz = [whole_number(read_text(root, name), f"/{name}") for name in names]
    if 0 in khz:
        raise Unknown(f"/{folder} gives a clock of 0")
    return sum(khz) / len(khz) / 1000, f"mean of {len(khz)} policies in /{folder}"


def power_source(root: Path = Path("/")) -> tuple[str, str]:
    """ "AC" or "battery". A machine without a battery and without a listed supply does not say."""
    folder = "sys/class/power_supply"
    online = discharging = False
    supplies = listing(root, folder)
    for supply in supplies:
        try:
            kind = read_text(root, f"{folder}/{supply}/type").strip()
        except Unknown:
            continue
        if _field(root, f"{folder}/{supply}/scope") == "Device":
            continue  # the battery of a mouse
        if kind == "Battery":
            discharging |= _field(root, f"{folder}/{supply}/status") == "Discharging"
        elif kind in ("Mains", "USB"):
            online |= _field(root, f"{folder}/{supply}/online") == "1"
    if online:
        return "AC", f"/{folder}"
    if discharging:
        return "battery", f"/{folder}"
    raise Unknown(f"/{folder} lists no supply in use" if supplies else f"/{folder} lists no supply")


def _field(root: Path, name: str) -> str | None:
    try:
        return read_text(root, name).strip()
    except Unknown:
        return None


def memory_available(root: Path = Path("/")) -> tuple[int, str]:
    """Bytes that could be had now: MemAvailable, or the room that is left below a cgroup limit."""
    available = memory_field(root, "MemAvailable")
    left = cgroups.memory_left(root)
    return available if left is None else min(available, left)


def uptime_s(root: Path = Path("/")) -> tuple[float, str]:
    """Seconds since boot."""
    found = re.match(r"[0-9]{1,12}\.[0-9]+", text := read_text(root, "proc/uptime"))
    if not found:
        raise Unknown(f"/proc/uptime is not understood: {shown(text)}")
    return float(found[0]), "/proc/uptime"
