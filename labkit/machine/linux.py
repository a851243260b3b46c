"""What a Linux machine is, from sysfs, procfs and control groups. Every reader takes the root they stand under."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from labkit.machine import cgroups, topology
from labkit.machine.facts import Fact, Machine, anonymous_id, versions
from labkit.machine.peak import bus_peak, dmidecode_peak
from labkit.machine.sources import Run, Unknown, exists, known, read_text, run_command, shown, whole_number


def machine(
    peak_gbs: float | None = None,
    *,
    root: Path = Path("/"),
    run: Run = run_command,
    allowed: Iterable[int] | None = None,
) -> Machine:
    """Describe the Linux machine under `root`. `allowed`: the CPUs of this process's affinity (default: ask)."""
    reach = frozenset(os.sched_getaffinity(0) if allowed is None else allowed)
    chip_name = known(lambda: chip(root))
    caches = known(lambda: topology.caches(root))
    return Machine(
        chip=chip_name,
        machine=known(lambda: hardware_id(root)),
        arch=Fact(os.uname().machine, "uname"),
        virtual=known(lambda: virtual(root)),
        os=known(lambda: distribution(root)),
        os_build=known(lambda: kernel_release(root)),
        logical_cpus=known(lambda: (len(topology.online(root)), "/sys/devices/system/cpu/online")),
        physical_cores=known(lambda: topology.physical_cores(root)),
        usable_cpus=known(lambda: usable_cpus(root, reach)),
        tiers=topology.tiers(root, reach, topology.l2_by_cpu(caches)),
        gpu_cores=Fact(None, "no common source of GPU core counts on Linux"),
        memory_bytes=known(lambda: memory_field(root, "MemTotal")),
        memory_limit_bytes=known(lambda: memory_limit(root)),
        cache_line_bytes=known(lambda: topology.cache_line(root)),
        caches=known(lambda: topology.cache_summary(caches)),
        last_level_bytes=known(lambda: topology.last_level(caches, reach)),
        numa_nodes=known(lambda: topology.numa_nodes(root)),
        huge_pages=known(lambda: huge_pages(root)),
        bus_peak_gb_per_s=(
            known(lambda: dmidecode_peak(run)) if peak_gbs is None else bus_peak(chip_name.value, None, None, peak_gbs)
        ),
        versions=versions(),
    )


def chip(root: Path) -> tuple[str, str]:
    """The CPU's name. 64-bit ARM has none in /proc/cpuinfo: its implementer and part numbers stand in for it."""
    text = read_text(root, "proc/cpuinfo")
    source = "/proc/cpuinfo"
    for key in ("model name", "cpu", "uarch"):
        found = re.search(rf"^{key}[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
        if found:
            return " ".join(found[1].split()), f"{source} {key}"
    cores = re.findall(r"^CPU implementer\s*:\s*(0x[0-9a-f]+)$.*?^CPU part\s*:\s*(0x[0-9a-f]+)$", text, re.M | re.S)
    if not cores:
        raise Unknown(f"{source} names no CPU model")
    kinds = sorted({f"{implementer}/{part}" for implementer, part in cores})
    return "ARM " + " + ".join(kinds), f"{source} CPU implementer/part"


def virtual(root: Path) -> tuple[bool, str]:
    """Whether the CPU tells of a hypervisor (an x86 flag; other CPUs have no such sign)."""
    flags = re.search(r"^flags\s*:(.*)$", read_text(root, "proc/cpuinfo"), re.MULTILINE)
    if not flags:
        raise Unknown("/proc/cpuinfo has no flags line that would tell")
    return "hypervisor" in flags[1].split(), "/proc/cpuinfo flag hypervisor"


def distribution(root: Path) -> tuple[str, str]:
    """The distribution's own name for itself."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        if exists(root, name):
            found = re.search(r"^PRETTY_NAME=[\"']?([^\"'\s][^\"'\n]*)", read_text(root, name), re.MULTILINE)
            if found:
                return found[1].strip(), f"/{name}"
    raise Unknown("no os-release file gives a name")


def kernel_release(root: Path) -> tuple[str, str]:
    """The kernel's release, as uname -r prints it."""
    name = "proc/sys/kernel/osrelease"
    release = read_text(root, name).strip()
    if not release.isprintable() or not release:
        raise Unknown(f"/{name} is not understood: {shown(release)}")
    return release, f"/{name}"


def hardware_id(root: Path) -> tuple[str, str]:
    """An anonymous id from the first source that is there: machine-id, DMI product UUID.

    The source is named, its content never shown. No network address: there are so few that a hash of one can be
    undone by trying all.
    """
    for name, pattern in (
        ("etc/machine-id", r"[0-9a-f]{32}"),
        ("sys/class/dmi/id/product_uuid", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ):
        try:
            text = read_text(root, name).strip().lower()
        except Unknown:
            continue  # the usual case in a container, or without root: the next source decides
        if re.fullmatch(pattern, text) and len(set(text.replace("-", ""))) > 1:  # all 0 or f: never set
            return anonymous_id(text), f"salted hash of /{name}"
    raise Unknown("no /etc/machine-id and no readable DMI product UUID")


def usable_cpus(root: Path, reach: frozenset[int]) -> tuple[int, str]:
    """Whole CPUs that this process may keep busy: its affinity, cut by the lowest cgroup quota, at least 1."""
    if not reach:
        raise Unknown("the affinity of this process is not known")
    limit = cgroups.cpu_limit(root)
    if limit is None or limit[0] >= len(reach):
        return len(reach), "affinity; no lower cgroup CPU quota"
    quota, where = limit
    return max(1, int(quota)), f"{where} = {quota:g} CPUs, in whole CPUs"


def memory_field(root: Path, key: str) -> tuple[int, str]:
    """A field of /proc/meminfo in bytes."""
    found = re.search(rf"^{key}:(.*)$", read_text(root, "proc/meminfo"), re.MULTILINE)
    if not found:
        raise Unknown(f"/proc/meminfo has no {key}")
    number, _, unit = found[1].strip().partition(" ")
    if unit != "kB":
        raise Unknown(f"/proc/meminfo {key} is not in kB: {shown(found[1].strip())}")
    size = whole_number(number, f"/proc/meminfo {key}") * 1024
    if size == 0:
        raise Unknown(f"/proc/meminfo {key} says 0")
    return size, f"/proc/meminfo {key}"


def memory_limit(root: Path) -> tuple[int, str]:
    """The most memory that could be had now: what is available, or the lowest cgroup limit."""
    available = memory_field(root, "MemAvailable")
    limit = cgroups.memory_limit(root)
    return available if limit is None else min(available, limit)


def huge_pages(root: Path) -> tuple[str, str]:
    """The mode of transparent huge pages: always, madvise or never."""
    name = "sys/kernel/mm/transparent_hugepage/enabled"
    found = re.search(r"\[(always|madvise|never)\]", text := read_text(root, name))
    if not found:
        raise Unknown(f"/{name} is not understood: {shown(text.strip())}")
    return found[1], f"/{name}"
