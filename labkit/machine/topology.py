"""CPUs, core tiers, caches and NUMA nodes of a Linux machine, from sysfs."""

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from labkit.machine.facts import Cache, Fact, NumaNode, Tier
from labkit.machine.sources import Unknown, exists, listing, read_text, shown, whole_number

CPU = "sys/devices/system/cpu"
MOST_CPUS = 1 << 16  # no kernel is built for more; a list that says so is garbage
INTEL_KINDS = ("cpu_core", "cpu_atom", "cpu_lowpower")  # fastest first


def parse_cpu_list(text: str, where: str = "CPU list") -> tuple[int, ...]:
    """The kernel's list format: "0-3,8,10-11" -> (0, 1, 2, 3, 8, 10, 11); "" -> (). Unknown for anything else."""
    cpus: set[int] = set()
    text = text.strip()
    for part in text.split(",") if text else []:
        found = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first or last >= MOST_CPUS:
            raise Unknown(f"{where} is not a list of CPUs: {shown(text)}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def read_cpu_list(root: Path, name: str) -> tuple[int, ...]:
    return parse_cpu_list(read_text(root, name), f"/{name}")


def online(root: Path) -> tuple[int, ...]:
    """Online CPUs. Raises Unknown when the list is missing, garbled or empty."""
    cpus = read_cpu_list(root, f"{CPU}/online")
    if not cpus:
        raise Unknown(f"/{CPU}/online lists no CPU")
    return cpus


def siblings(root: Path, cpu: int) -> tuple[int, ...]:
    """The CPUs of one physical core, this one among them."""
    folder = f"{CPU}/cpu{cpu}/topology"
    try:
        found = read_cpu_list(root, f"{folder}/core_cpus_list")
    except Unknown:
        found = read_cpu_list(root, f"{folder}/thread_siblings_list")  # its name before Linux 5.6
    if cpu not in found:
        raise Unknown(f"/{folder} does not count cpu{cpu} as its own sibling")
    return found


def physical_cores(root: Path) -> tuple[int, str]:
    """Physical cores that have an online CPU."""
    return len({siblings(root, cpu) for cpu in online(root)}), f"/{CPU}/cpu*/topology"


def one_per_core_first(cpus: Iterable[int], core_of: dict[int, tuple[int, ...]]) -> tuple[tuple[int, ...], int]:
    """(CPUs in the order in which to load them, how many come first with a core each to themselves)."""
    chosen = set(cpus)
    rank = {cpu: sum(other in chosen for other in core_of[cpu] if other < cpu) for cpu in chosen}
    return tuple(sorted(chosen, key=lambda cpu: (rank[cpu], cpu))), sum(r == 0 for r in rank.values())


def tiers(root: Path, reach: frozenset[int], l2: dict[int, int]) -> tuple[Tier, ...]:
    """Core tiers, fastest first; one tier "cpu" where the system tells no cores apart.

    `reach`: CPUs that this process may use. `l2`: bytes of the L2 cache of each CPU, where known.
    """
    try:
        cpus = online(root)
    except Unknown as why:
        source = f"affinity alone: {why}"
        return (Tier("cpu", tuple(sorted(reach)), None, None, None, None, source),)
    groups, source = _tier_groups(root, cpus)
    return tuple(_tier(root, name, group, reach, l2, source) for name, group in groups)


def _tier_groups(root: Path, cpus: tuple[int, ...]) -> tuple[list[tuple[str, tuple[int, ...]]], str]:
    """(name, CPUs) of each tier, and the source. Intel hybrids list their kinds; others differ in capacity."""
    try:
        kinds = {
            name: read_cpu_list(root, f"sys/devices/{name}/cpus")
            for name in sorted(INTEL_KINDS)
            if exists(root, f"sys/devices/{name}/cpus")
        }
        capacity = {cpu: _capacity(root, cpu) for cpu in cpus if exists(root, f"{CPU}/cpu{cpu}/cpu_capacity")}
    except Unknown as why:
        return [("cpu", cpus)], f"core tiers unknown: {why}"
    if len(kinds) > 1:
        # Before capacities: the favoured cores of one kind may differ in capacity from its others.
        listed = {cpu for group in kinds.values() for cpu in group}
        groups = [(name, tuple(cpu for cpu in kinds[name] if cpu in cpus)) for name in INTEL_KINDS if name in kinds]
        groups.append(("unlisted", tuple(cpu for cpu in cpus if cpu not in listed)))
        return [group for group in groups if group[1]], "/sys/devices/cpu_*/cpus"
    source = f"/{CPU}/cpu*/cpu_capacity"
    if len(capacity) < len(cpus):
        return [("cpu", cpus)], "the system tells no cores apart"
    values = sorted(set(capacity.values()), reverse=True)
    if len(values) == 1:
        return [("cpu", cpus)], f"{source}: all equal"
    return [(f"capacity {v}", tuple(cpu for cpu in cpus if capacity[cpu] == v)) for v in values], source


def _capacity(root: Path, cpu: int) -> int:
    name = f"{CPU}/cpu{cpu}/cpu_capacity"
    return whole_number(read_text(root, name), f"/{name}")


def _tier(root: Path, name: str, cpus: tuple[int, ...], reach: frozenset[int], l2: dict[int, int], source: str) -> Tier:
    usable = [cpu for cpu in cpus if cpu in reach]
    sizes = {l2.get(cpu) for cpu in cpus}
    l2_bytes = sizes.pop() if len(sizes) == 1 else None
    try:
        core_of = {cpu: siblings(root, cpu) for cpu in cpus}
    except Unknown as why:
        return Tier(name, tuple(usable), None, None, len(cpus), l2_bytes, f"{source}; cores unknown: {why}")
    ordered, cores_in_reach = one_per_core_first(usable, core_of)
    return Tier(name, ordered, cores_in_reach, len(set(core_of.values())), len(cpus), l2_bytes, source)


class CacheInstance(NamedTuple):
    """One physical cache."""

    level: int
    type: str
    bytes: int
    cpus: tuple[int, ...]  # that share it


def caches(root: Path) -> tuple[tuple[CacheInstance, ...], str]:
    """Every cache of the online CPUs, each once."""
    cpus = online(root)
    found: dict[tuple[int, str, tuple[int, ...]], CacheInstance] = {}
    covered: set[tuple[str, int]] = set()  # reading one sharer's copy of a description is enough
    for cpu in cpus:
        folder = f"{CPU}/cpu{cpu}/cache"
        for index in listing(root, folder):
            if not re.fullmatch(r"index[0-9]+", index) or (index, cpu) in covered:
                continue
            instance = _cache(root, f"{folder}/{index}")
            if cpu not in instance.cpus:
                raise Unknown(f"/{folder}/{index} does not count cpu{cpu} among its CPUs")
            covered.update((index, sharer) for sharer in instance.cpus)
            found[instance.level, instance.type, instance.cpus] = instance
    if not found:
        raise Unknown(f"/{CPU}/cpu*/cache describes no cache")
    return tuple(found.values()), f"/{CPU}/cpu*/cache"


def _cache(root: Path, folder: str) -> CacheInstance:
    text = read_text(root, f"{folder}/size").strip()
    size = re.fullmatch(r"([0-9]{1,12})([KM]?)", text)
    if not size or int(size[1]) == 0:
        raise Unknown(f"/{folder}/size is not a size: {shown(text)}")
    return CacheInstance(
        level=whole_number(read_text(root, f"{folder}/level"), f"/{folder}/level"),
        type=read_text(root, f"{folder}/type").strip(),
        bytes=int(size[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[size[2]],
        cpus=read_cpu_list(root, f"{folder}/shared_cpu_list"),
    )


Caches = Fact[tuple[CacheInstance, ...]]


def cache_summary(found: Caches) -> tuple[tuple[Cache, ...], str]:
    """Caches alike in level, type, size and sharing, counted."""
    count = Counter((c.level, c.type, c.bytes, len(c.cpus)) for c in _need(found))
    return tuple(
        Cache(level, kind, size, instances, shared_by)
        for (level, kind, size, shared_by), instances in sorted(count.items())
    ), found.source


def last_level(found: Caches, reach: frozenset[int]) -> tuple[int, str]:
    """Bytes of all last-level caches that a CPU in `reach` uses: a sum, as one array fits into all of them."""
    last: dict[int, CacheInstance] = {}
    for cache in _need(found):
        if cache.type != "Instruction":
            for cpu in reach.intersection(cache.cpus):
                if cpu not in last or cache.level > last[cpu].level:
                    last[cpu] = cache
    missing = sorted(reach - set(last))
    if missing or not last:
        raise Unknown(f"no cache is described for cpu{missing[0]}" if missing else "no CPU in reach")
    instances = set(last.values())
    levels = "/".join(f"L{level}" for level in sorted({c.level for c in instances}))
    return sum(c.bytes for c in instances), f"sum of {len(instances)} {levels} in {found.source}"


def l2_by_cpu(found: Caches) -> dict[int, int]:
    """Bytes of each CPU's L2 data cache; {} where caches are unknown."""
    data = [c for c in found.value or () if c.level == 2 and c.type != "Instruction"]
    return {cpu: cache.bytes for cache in data for cpu in cache.cpus}


def _need(found: Caches) -> tuple[CacheInstance, ...]:
    if found.value is None:
        raise Unknown(found.source)
    return found.value


def cache_line(root: Path) -> tuple[int, str]:
    """Bytes of a cache line, of the first cache of the first online CPU."""
    name = f"{CPU}/cpu{online(root)[0]}/cache/index0/coherency_line_size"
    size = whole_number(read_text(root, name), f"/{name}")
    if size == 0:
        raise Unknown(f"/{name} says 0")
    return size, f"/{name}"


def numa_nodes(root: Path) -> tuple[tuple[NumaNode, ...], str]:
    """NUMA nodes with their CPUs."""
    folder = "sys/devices/system/node"
    numbers = sorted(int(name[4:]) for name in listing(root, folder) if re.fullmatch(r"node[0-9]+", name))
    if not numbers:
        raise Unknown(f"/{folder} lists no node")
    return tuple(
        NumaNode(number, read_cpu_list(root, os.path.join(folder, f"node{number}", "cpulist"))) for number in numbers
    ), f"/{folder}/node*/cpulist"
