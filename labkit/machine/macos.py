"""What a Mac is and how it is now, from sysctl, system_profiler, ioreg, pmset and notify(3). Needs no root.

Every command goes through one `Run`, so all of this is tested on recorded output where there is no Mac.
"""

import ctypes
import json
import os
import platform
import re
from collections.abc import Callable
from typing import Any

from labkit.machine.facts import Cache, Fact, Machine, Tier, anonymous_id, versions
from labkit.machine.peak import bus_peak
from labkit.machine.sources import Run, Unknown, known, run_command, shown, whole_number

THERMAL_NAME = b"com.apple.system.thermalpressurelevel"
THERMAL_LEVELS = ("nominal", "moderate", "heavy", "trapping", "sleeping")


class Sysctl:
    """Kernel variables: one call for the two large subtrees, then one for each name they did not show."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._table: dict[str, str] = {}
        try:
            text = run(["sysctl", "hw", "machdep.cpu"])
        except Unknown:
            return  # each name is then asked for by itself, and tells its own reason
        for line in text.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                self._table[name.strip()] = value.strip()

    def text(self, name: str) -> str:
        if not self._table.get(name):
            self._table[name] = self._run(["sysctl", "-n", name]).strip()
        if not self._table[name]:
            raise Unknown(f"sysctl {name} is empty")
        return self._table[name]

    def number(self, name: str) -> int:
        """A count or a size; 0 is no answer to any of the names asked for here."""
        value = whole_number(self.text(name), f"sysctl {name}")
        if value == 0:
            raise Unknown(f"sysctl {name} is 0")
        return value


def machine(
    peak_gbs: float | None = None,
    *,
    run: Run = run_command,
    version: str | None = None,
    available: Callable[[], int] | None = None,
) -> Machine:
    """Describe this Mac. `version` (macOS) and `available` (bytes of memory) default to asking the system."""
    sysctl = Sysctl(run)
    chip = known(lambda: (sysctl.text("machdep.cpu.brand_string"), "sysctl machdep.cpu.brand_string"))
    gpus = known(lambda: gpu_cores(run))
    cores = known(lambda: (sysctl.number("hw.physicalcpu"), "sysctl hw.physicalcpu"))
    cpus = known(lambda: (sysctl.number("hw.logicalcpu"), "sysctl hw.logicalcpu"))
    memory = known(lambda: (sysctl.number("hw.memsize"), "sysctl hw.memsize"))
    release = platform.mac_ver()[0] if version is None else version
    levels = perf_levels(sysctl)
    return Machine(
        chip=chip,
        machine=known(lambda: hardware_id(run)),
        arch=known(lambda: architecture(sysctl)),
        virtual=known(lambda: (sysctl.text("kern.hv_vmm_present") != "0", "sysctl kern.hv_vmm_present")),
        os=Fact(f"macOS {release}" if release else None, "platform.mac_ver"),
        os_build=known(lambda: (sysctl.text("kern.osversion"), "sysctl kern.osversion")),
        logical_cpus=cpus,
        physical_cores=cores,
        usable_cpus=Fact(cpus.value, f"{cpus.source}; macOS sets no quota"),
        tiers=levels or (Tier("cpu", (), cores.value, cores.value, cpus.value, None, cores.source),),
        gpu_cores=gpus,
        memory_bytes=memory,
        memory_limit_bytes=known(lambda: memory_limit(memory, available)),
        cache_line_bytes=known(lambda: (sysctl.number("hw.cachelinesize"), "sysctl hw.cachelinesize")),
        caches=known(lambda: caches(sysctl, levels)),
        last_level_bytes=known(lambda: last_level(sysctl, levels)),
        numa_nodes=Fact(None, "macOS tells of no NUMA nodes"),
        huge_pages=Fact("none for user memory", "macOS on arm64 has no superpages for user memory"),
        bus_peak_gb_per_s=bus_peak(chip.value, gpus.value, cores.value, peak_gbs),
        versions=versions(),
    )


def architecture(sysctl: Sysctl) -> tuple[str, str]:
    """The instruction set of this process, and whether it is translated: Rosetta would spoil every number."""
    arch = os.uname().machine
    if arch == "x86_64" and known(lambda: (sysctl.text("sysctl.proc_translated"), "")).value == "1":
        return arch, "uname; this Python runs under Rosetta: install one for arm64"
    return arch, "uname"


def perf_levels(sysctl: Sysctl) -> tuple[Tier, ...]:
    """Core tiers by performance level, 0 = fastest, by the system's own names; () where it has no levels."""
    count = known(lambda: (sysctl.number("hw.nperflevels"), "sysctl hw.nperflevels")).value or 0
    tiers = []
    for level in range(min(count, 8)):
        key = f"hw.perflevel{level}"
        name = known(lambda key=key: (sysctl.text(f"{key}.name"), ""))
        cores = known(lambda key=key: (sysctl.number(f"{key}.physicalcpu"), ""))
        cpus = known(lambda key=key: (sysctl.number(f"{key}.logicalcpu"), ""))
        l2 = known(lambda key=key: (sysctl.number(f"{key}.l2cachesize"), ""))
        reasons = "".join(f"; {fact.source}" for fact in (name, cores, cpus, l2) if fact.value is None)
        tiers.append(
            Tier(
                name=name.value or f"perflevel{level}",
                cpus=(),  # no affinity: threads are steered by QoS class only
                cores_in_reach=cores.value,
                physical_cores=cores.value,
                logical_cpus=cpus.value,
                l2_bytes=l2.value,
                source=f"sysctl {key}{reasons}",
            )
        )
    return tuple(tiers)


def caches(sysctl: Sysctl, levels: tuple[Tier, ...]) -> tuple[tuple[Cache, ...], str]:
    """L1 and L2 caches of each tier. The system level cache is in no sysctl, so it is not here."""
    if not levels:
        raise Unknown("no performance levels (hw.nperflevels)")
    found = []
    for level, tier in enumerate(levels):
        key = f"hw.perflevel{level}"
        cpus = sysctl.number(f"{key}.logicalcpu")
        for number, kind, name in ((1, "Data", "l1dcachesize"), (1, "Instruction", "l1icachesize")):
            found.append(Cache(number, kind, sysctl.number(f"{key}.{name}"), cpus, 1, tier.name))
        found.append(_l2(sysctl, level, tier))
    return tuple(found), "sysctl hw.perflevelN; no sysctl gives the system level cache"


def _l2(sysctl: Sysctl, level: int, tier: Tier) -> Cache:
    key = f"hw.perflevel{level}"
    cpus, sharers = sysctl.number(f"{key}.logicalcpu"), sysctl.number(f"{key}.cpusperl2")
    size = sysctl.number(f"{key}.l2cachesize")
    # A cluster may have cores fused off: the count of L2 caches rounds up.
    return Cache(2, "Unified", size, -(-cpus // sharers), sharers, tier.name)


def last_level(sysctl: Sysctl, levels: tuple[Tier, ...]) -> tuple[int, str]:
    """Bytes of all L2 caches: the last level that macOS tells of."""
    if not levels:
        raise Unknown("no performance levels (hw.nperflevels)")
    each = [_l2(sysctl, level, tier) for level, tier in enumerate(levels)]
    return sum(c.bytes * c.instances for c in each), (
        "sum of L2 in sysctl hw.perflevelN; the system level cache comes on top: no sysctl gives its size"
    )


def gpu_cores(run: Run) -> tuple[int, str]:
    """GPU cores: of two bins with one brand string only these tell which it is."""
    source = "system_profiler SPDisplaysDataType"
    try:
        devices = json.loads(run(["system_profiler", "SPDisplaysDataType", "-json"]))["SPDisplaysDataType"]
        counts = {str(device["sppci_cores"]) for device in devices if "sppci_cores" in device}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unknown(f"{source} gave no list of GPUs") from None
    if len(counts) != 1:
        raise Unknown(f"{source} gives {len(counts) or 'no'} core counts (sppci_cores)")
    cores = whole_number(counts.pop(), f"{source} sppci_cores")
    if cores == 0:
        raise Unknown(f"{source} sppci_cores is 0")
    return cores, f"{source} sppci_cores"


def hardware_id(run: Run) -> tuple[str, str]:
    """An anonymous id from IOPlatformUUID; the UUID itself is never shown."""
    text = run(["ioreg", "-rd1", "-c", "IOPlatformExpertDevice"])
    found = re.search(r'"IOPlatformUUID"\s*=\s*"([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})"', text)
    if not found:
        raise Unknown("ioreg gives no IOPlatformUUID")
    return anonymous_id(found[1]), "salted hash of ioreg IOPlatformUUID"


def memory_limit(memory: Fact[int], available: Callable[[], int] | None) -> tuple[int, str]:
    """What is to be had now: free and inactive memory, and never more than there is."""
    found, source = memory_available(available)
    return (found, source) if memory.value is None else (min(found, memory.value), f"{source}, within hw.memsize")


def memory_available(available: Callable[[], int] | None = None) -> tuple[int, str]:
    if available is None:
        import psutil

        available = lambda: psutil.virtual_memory().available  # noqa: E731
    try:
        return available(), "free and inactive pages (psutil)"
    except (OSError, RuntimeError) as error:
        raise Unknown(f"psutil gives no memory statistics: {type(error).__name__}") from None


def power_source(run: Run = run_command) -> tuple[str, str]:
    """ "AC", "battery" or "UPS"."""
    text = run(["pmset", "-g", "ps"])
    found = re.search(r"drawing from '(AC|Battery|UPS) Power'", text)
    if not found:
        raise Unknown(f"pmset -g ps is not understood: {shown(text.strip())}")
    return {"AC": "AC", "Battery": "battery", "UPS": "UPS"}[found[1]], "pmset -g ps"


def thermal_level(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[int, str]:
    """Thermal pressure, 0 = nominal (THERMAL_LEVELS): a pressure to slow down, not a temperature."""
    source = "notify(3) com.apple.system.thermalpressurelevel"
    try:
        lib = load("/usr/lib/libSystem.B.dylib")
        register, get_state, cancel = lib.notify_register_check, lib.notify_get_state, lib.notify_cancel
    except (OSError, AttributeError) as error:
        raise Unknown(f"{source}: {type(error).__name__} while loading libSystem") from None
    register.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)]
    get_state.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)]
    cancel.argtypes = [ctypes.c_int]
    for function in (register, get_state, cancel):
        function.restype = ctypes.c_uint32
    token, level = ctypes.c_int(), ctypes.c_uint64()
    if status := register(THERMAL_NAME, ctypes.byref(token)):
        raise Unknown(f"{source}: notify_register_check gave status {status}")
    try:
        if status := get_state(token, ctypes.byref(level)):
            raise Unknown(f"{source}: notify_get_state gave status {status}")
    finally:
        cancel(token)
    return level.value, source
