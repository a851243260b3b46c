"""The machine's state now, the reasons why it is not quiet, and light counters to put around a window."""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from labkit.machine import cgroups
from labkit.machine.facts import Fact
from labkit.machine.sources import Run, known, run_command
from labkit.windows import now_ns

BUSY_OTHERS_LIMIT = 0.10  # of the usable CPUs, in use by others than this process and its children
BUSY_CORES_LIMIT = 0.5  # the same in CPUs: on a machine of many cores one that streams takes a third of a bus
PRESSURE_AVG10_LIMIT = 10.0  # percent of the last 10 s in which some task waited for a CPU
LOAD_PER_CPU_LIMIT = 1.0  # runnable tasks per usable CPU; counts sleepers on disks too, so a hint only
THERMAL_LEVEL_LIMIT = 0  # nominal


class State(msgspec.Struct, frozen=True):
    """One look at the machine. None = unknown; `sources` names, for every field, its source or why it is unknown."""

    at: str  # UTC, ISO 8601
    load1: float | None
    load5: float | None
    load15: float | None
    logical_cpus: int | None
    usable_cpus: int | None
    busy: float | None  # share of all CPUs' time in use during a short sample, 0..1
    busy_others: float | None  # the same without this process and its children
    cpu_pressure_avg10: float | None  # percent
    cpu_pressure_us: int | None  # since boot
    steal_s: float | None  # CPU seconds since boot
    throttled_us: int | None  # CPU time since the group was made
    nr_throttled: int | None
    cpu_mhz: float | None
    thermal_level: int | None  # 0 = nominal
    thermal_name: str | None
    power_source: str | None  # "AC", "battery", "UPS"
    memory_available_bytes: int | None
    uptime_s: float | None
    sources: dict[str, str]


def state(sample_s: float = 0.2) -> State:
    """Look at the machine now; takes `sample_s` seconds. Nothing that is missing raises."""
    facts: dict[str, Fact[Any]] = dict(zip(("load1", "load5", "load15"), _load(), strict=True))
    facts.update(busy(sample_s))
    facts.update(macos_now() if sys.platform == "darwin" else linux_now())
    return State(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        **{name: fact.value for name, fact in facts.items()},
        sources={name: fact.source for name, fact in facts.items()},
    )


def _load() -> tuple[Fact[float], ...]:
    try:
        return tuple(Fact(value, "getloadavg") for value in os.getloadavg())
    except OSError:
        return (Fact(None, "getloadavg gives none"),) * 3


def busy(
    sample_s: float,
    *,
    cpu_times: Callable[[], Any] | None = None,
    own: Callable[[], float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Fact[float]]:
    """`busy` and `busy_others` over `sample_s` seconds, as shares of all CPUs' time.

    Time stolen by a hypervisor and time spent waiting for disks count as not in use.
    """
    import psutil

    cpu_times = cpu_times or psutil.cpu_times
    own = own or own_cpu_seconds
    try:
        own_before, before = own(), cpu_times()
        sleep(sample_s)
        after, own_after = cpu_times(), own()
    except (OSError, psutil.Error, RuntimeError) as error:
        reason = Fact(None, f"no CPU times: {type(error).__name__}")
        return {"busy": reason, "busy_others": reason}
    spent = {
        # guest time is in user time already
        name: getattr(after, name) - getattr(before, name)
        for name in before._fields
        if not name.startswith("guest")
    }
    total = sum(spent.values())
    if total <= 0:
        reason = Fact(None, f"no CPU time was counted within {sample_s:g} s")
        return {"busy": reason, "busy_others": reason}
    in_use = total - sum(spent.get(name, 0.0) for name in ("idle", "iowait", "steal"))
    others = in_use - max(0.0, own_after - own_before)
    source = f"psutil.cpu_times over {sample_s:g} s"
    return {
        "busy": Fact(_share(in_use / total), source),
        "busy_others": Fact(_share(others / total), f"{source}, own CPU time taken off"),
    }


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def own_cpu_seconds() -> float:
    """CPU seconds of this process, its living descendants, and the children it has waited for."""
    import psutil

    waited = os.times()
    total = time.process_time() + waited.children_user + waited.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue  # it ended just now
        total += times.user + times.system + times.children_user + times.children_system
    return total


def linux_now(root: Path = Path("/"), reach: frozenset[int] | None = None) -> dict[str, Fact[Any]]:
    """Every field that Linux gives, from the files under `root`. `reach`: this process's affinity."""
    from labkit.machine import linux, linux_state, topology

    reach = frozenset(os.sched_getaffinity(0)) if reach is None else reach
    pressure = known(lambda: linux_state.cpu_pressure(root))
    throttled = known(lambda: _throttled(root))
    avg10, total_us = pressure.value or (None, None)
    throttled_us, count = throttled.value or (None, None)
    return {
        "logical_cpus": known(lambda: (len(topology.online(root)), "/sys/devices/system/cpu/online")),
        "usable_cpus": known(lambda: linux.usable_cpus(root, reach)),
        "cpu_pressure_avg10": Fact(avg10, pressure.source),
        "cpu_pressure_us": Fact(total_us, pressure.source),
        "steal_s": known(lambda: linux_state.steal_s(root)),
        "throttled_us": Fact(throttled_us, throttled.source),
        "nr_throttled": Fact(count, throttled.source),
        "cpu_mhz": known(lambda: linux_state.cpu_mhz(root)),
        "thermal_level": Fact(None, "Linux has no common thermal pressure level"),
        "thermal_name": Fact(None, "Linux has no common thermal pressure level"),
        "power_source": known(lambda: linux_state.power_source(root)),
        "memory_available_bytes": known(lambda: linux_state.memory_available(root)),
        "uptime_s": known(lambda: linux_state.uptime_s(root)),
    }


def _throttled(root: Path) -> tuple[tuple[int, int], str]:
    microseconds, count, source = cgroups.throttled(root)
    return (microseconds, count), source


def macos_now(run: Run = run_command, load: Callable[[str], Any] = ctypes.CDLL) -> dict[str, Fact[Any]]:
    """Every field that macOS gives. `load` opens libSystem."""
    import psutil

    from labkit.machine import macos

    cpus = Fact(os.cpu_count(), "os.cpu_count")
    level = known(lambda: macos.thermal_level(load))
    named = level.value is not None and level.value < len(macos.THERMAL_LEVELS)
    nothing = Fact(None, "macOS has no such count")
    return {
        "logical_cpus": cpus,
        "usable_cpus": cpus,
        "cpu_pressure_avg10": nothing,
        "cpu_pressure_us": nothing,
        "steal_s": nothing,
        "throttled_us": nothing,
        "nr_throttled": nothing,
        "cpu_mhz": Fact(None, "macOS gives the clock to root only"),
        "thermal_level": level,
        "thermal_name": Fact(macos.THERMAL_LEVELS[level.value] if named else None, level.source),
        "power_source": known(lambda: macos.power_source(run)),
        "memory_available_bytes": known(macos.memory_available),
        "uptime_s": Fact(time.time() - psutil.boot_time(), "psutil.boot_time"),
    }


def quiet_reasons(now: State) -> list[str]:
    """Why the machine is not quiet enough to measure on; [] when nothing speaks against it.

    Not knowing whether other work runs is a reason as well.
    """
    reasons = []
    cpus, usable = now.logical_cpus, now.usable_cpus
    # Before a measurement this process idles, so its own share hardly matters where it cannot be told apart.
    in_use = now.busy if now.busy_others is None else now.busy_others
    others = None if in_use is None or cpus is None or usable is None else in_use * cpus / usable
    limit = min(BUSY_OTHERS_LIMIT, BUSY_CORES_LIMIT / usable) if usable else BUSY_OTHERS_LIMIT
    if others is not None and others > limit:
        reasons.append(f"other work uses {others:.0%} of the {usable} usable CPUs (limit {limit:.0%})")
        if now.load1 is not None and now.load1 / usable > LOAD_PER_CPU_LIMIT:
            reasons.append(f"load average {now.load1:.1f} on {usable} usable CPUs")
    pressure = now.cpu_pressure_avg10
    if pressure is not None and pressure > PRESSURE_AVG10_LIMIT:
        reasons.append(
            f"tasks waited for a CPU in {pressure:.0f} % of the last 10 s (limit {PRESSURE_AVG10_LIMIT:.0f} %)"
        )
    if others is None and pressure is None:
        reasons.append("whether other work runs is unknown")
    if now.thermal_level is not None and now.thermal_level > THERMAL_LEVEL_LIMIT:
        reasons.append(f"thermal pressure is {now.thermal_name or f'level {now.thermal_level}'}")
    if now.power_source == "battery":
        reasons.append("the machine runs on battery")
    return reasons


class Counters(msgspec.Struct, frozen=True):
    """Counts since boot at one instant, light enough to take around every window. None = unknown."""

    monotonic_ns: int
    cpu_pressure_us: int | None
    steal_s: float | None
    throttled_us: int | None
    cpus: int | None


class Delta(msgspec.Struct, frozen=True):
    """What happened between two Counters. None = unknown."""

    seconds: float
    pressure: float | None  # share of the time in which some task waited for a CPU, 0..1
    steal: float | None  # share of all CPUs' time that a hypervisor took, 0..1
    throttled: float | None  # CPU seconds throttled per second: above 1 where several CPUs were


def counters(root: Path = Path("/")) -> Counters:
    """Take the counters now: under a millisecond on Linux; macOS keeps none of them."""
    if sys.platform == "darwin":
        return Counters(now_ns(), None, None, None, os.cpu_count())
    from labkit.machine import linux_state

    pressure = known(lambda: linux_state.cpu_pressure(root)).value
    throttled = known(lambda: _throttled(root)).value
    return Counters(
        monotonic_ns=now_ns(),
        cpu_pressure_us=pressure[1] if pressure else None,
        steal_s=known(lambda: linux_state.steal_s(root)).value,
        throttled_us=throttled[0] if throttled else None,
        cpus=os.cpu_count(),
    )


def delta(before: Counters, after: Counters) -> Delta:
    """Shares of the time from `before` to `after`; unknown where a counter is, or where it ran backwards."""
    seconds = (after.monotonic_ns - before.monotonic_ns) / 1e9

    def rate(first: float | None, last: float | None, per_second: float | None) -> float | None:
        if first is None or last is None or not per_second or last < first or seconds <= 0:
            return None
        return (last - first) / (seconds * per_second)

    pressure = rate(before.cpu_pressure_us, after.cpu_pressure_us, 1e6)
    steal = rate(before.steal_s, after.steal_s, after.cpus)
    return Delta(
        seconds=seconds,
        pressure=None if pressure is None else min(1.0, pressure),  # counters and clock are read apart
        steal=None if steal is None else min(1.0, steal),
        throttled=rate(before.throttled_us, after.throttled_us, 1e6),
    )
