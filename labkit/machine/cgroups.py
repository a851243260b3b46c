"""Limits that Linux control groups set, over this process's group and every ancestor in reach (v1 and v2)."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from labkit.machine.sources import Unknown, exists, read_text, shown, whole_number

NO_LIMIT_BYTES = 1 << 60  # v1 writes "no limit" as a page-aligned number near 2^63


class Group(NamedTuple):
    """One group folder, relative to the root, and how many levels it stands above the process's own."""

    version: int
    folder: str
    above: int

    def label(self, file: str) -> str:
        """Names a file of this group without its path: paths hold user and container names."""
        where = "own group" if self.above == 0 else f"{self.above} level{'s'[: self.above - 1]} above"
        return f"cgroup v{self.version} {file} ({where})"


def groups(root: Path, controller: str) -> list[Group]:
    """Groups that can limit this process through `controller`, nearest first: the v1 hierarchy, then v2.

    Empty where there are no control groups. Raises Unknown when they are there but cannot be understood.
    """
    if not exists(root, "proc/self/cgroup"):
        return []
    paths: dict[int, str] = {}
    for line in read_text(root, "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, found, path = rest.partition(":")
        if not found or not number.isdecimal() or not path.startswith("/"):
            raise Unknown(f"/proc/self/cgroup is not understood: {shown(line)}")
        if number == "0" and not names:
            paths[2] = path
        elif controller in names.split(","):
            paths[1] = path
    mounts = _mounts(root, controller) if paths else {}
    result = []
    for version, path in sorted(paths.items()):
        mount = _nearest_mount(mounts.get(version, []), path)
        if mount is None:
            continue
        mount_root, mount_point = mount
        parts = _parts_below(path, mount_root)
        for above in range(len(parts) + 1):
            result.append(Group(version, os.path.join(mount_point, *parts[: len(parts) - above]), above))
    return result


def _mounts(root: Path, controller: str) -> dict[int, list[tuple[str, str]]]:
    """(root within the hierarchy, mount point without its leading slash) of each hierarchy, by version."""
    mounts: dict[int, list[tuple[str, str]]] = {}
    for line in read_text(root, "proc/self/mountinfo").splitlines():
        left, separator, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if not separator or len(fields) < 5 or len(kind) < 3:
            continue  # other file systems may be odd; a hierarchy that is not found is simply not in reach
        version = {"cgroup": 1, "cgroup2": 2}.get(kind[0])
        if version is None or (version == 1 and controller not in kind[2].split(",")):
            continue
        mounts.setdefault(version, []).append((_unescape(fields[3]), _unescape(fields[4]).lstrip("/")))
    return mounts


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _nearest_mount(mounts: list[tuple[str, str]], path: str) -> tuple[str, str] | None:
    for mount_root, point in mounts:
        if mount_root == "/" or path == mount_root or path.startswith(mount_root + "/"):
            return mount_root, point
    return mounts[0] if mounts else None


def _parts_below(path: str, mount_root: str) -> list[str]:
    """The folders from the mount point down to the group; [] when the group lies outside the mount."""
    if mount_root != "/":
        if path != mount_root and not path.startswith(mount_root + "/"):
            return []
        path = path[len(mount_root) :]
    parts = [part for part in path.split("/") if part]
    # A process outside its cgroup namespace sees "/../..": what lies there has no folder here.
    return [] if ".." in parts else parts


def cpu_limit(root: Path) -> tuple[float, str] | None:
    """The lowest CPU quota in CPUs (quota / period) and where it stands; None when nothing limits."""
    limits = [found for group in groups(root, "cpu") if (found := _cpu_quota(root, group)) is not None]
    return min(limits) if limits else None


def _cpu_quota(root: Path, group: Group) -> tuple[float, str] | None:
    if group.version == 2:
        name = "cpu.max"
        if not exists(root, f"{group.folder}/{name}"):
            return None  # the root group has none
        fields = read_text(root, f"{group.folder}/{name}").split()
        if fields[:1] == ["max"]:
            return None
        if len(fields) != 2:
            raise Unknown(f"{group.label(name)} is not understood: {shown(' '.join(fields))}")
        quota, period = (whole_number(field, group.label(name)) for field in fields)
    else:
        name = "cpu.cfs_quota_us"
        if not exists(root, f"{group.folder}/{name}"):
            return None
        text = read_text(root, f"{group.folder}/{name}").strip()
        if text == "-1":
            return None
        quota = whole_number(text, group.label(name))
        period = whole_number(read_text(root, f"{group.folder}/cpu.cfs_period_us"), group.label("cpu.cfs_period_us"))
    if quota == 0 or period == 0:
        raise Unknown(f"{group.label(name)} gives no quota: {quota} us of {period} us")
    return quota / period, group.label(name)


def memory_limit(root: Path) -> tuple[int, str] | None:
    """The lowest memory limit in bytes and where it stands; None when nothing limits."""
    limits = [limit for group in groups(root, "memory") for limit in _memory_limits(root, group)]
    return min(limits) if limits else None


def memory_left(root: Path) -> tuple[int, str] | None:
    """The least room below a limit, in bytes: limit - use, where page cache that can be dropped is no use."""
    room = []
    for group in groups(root, "memory"):
        limits = _memory_limits(root, group)
        if limits:
            limit, label = min(limits)
            room.append((max(0, limit - _memory_use(root, group)), f"{label} minus what is in use"))
    return min(room) if room else None


def _memory_limits(root: Path, group: Group) -> list[tuple[int, str]]:
    names = ("memory.max", "memory.high") if group.version == 2 else ("memory.limit_in_bytes",)
    limits = []
    for name in names:
        if not exists(root, f"{group.folder}/{name}"):
            continue
        text = read_text(root, f"{group.folder}/{name}").strip()
        if text == "max":
            continue
        limit = whole_number(text, group.label(name))
        if limit < NO_LIMIT_BYTES:
            limits.append((limit, group.label(name)))
    return limits


def _memory_use(root: Path, group: Group) -> int:
    name, cache = (
        ("memory.current", "inactive_file") if group.version == 2 else ("memory.usage_in_bytes", "total_inactive_file")
    )
    used = whole_number(read_text(root, f"{group.folder}/{name}"), group.label(name))
    stat = key_values(read_text(root, f"{group.folder}/memory.stat"), group.label("memory.stat"))
    return max(0, used - stat.get(cache, 0))


def throttled(root: Path) -> tuple[int, int, str]:
    """(microseconds, count, source) of throttling, summed over the groups that keep count.

    The kernel adds the time up over CPUs, so it can grow faster than the clock. Raises Unknown when no group counts.
    """
    total_us = count = 0
    labels = []
    for group in groups(root, "cpu"):
        if not exists(root, f"{group.folder}/cpu.stat"):
            continue
        label = group.label("cpu.stat")
        stat = key_values(read_text(root, f"{group.folder}/cpu.stat"), label)
        if "throttled_usec" in stat:
            total_us += stat["throttled_usec"]
        elif "throttled_time" in stat:
            total_us += stat["throttled_time"] // 1000  # v1 counts nanoseconds
        else:
            continue  # a group without the cpu controller keeps no such count
        count += stat.get("nr_throttled", 0)
        labels.append(label)
    if not labels:
        raise Unknown("no cgroup cpu.stat counts throttling here")
    return total_us, count, labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} above"


def key_values(text: str, where: str) -> dict[str, int]:
    """Lines of "key number" as a dict. Raises Unknown for anything else."""
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found[key] = whole_number(value, f"{where}, {shown(key)}")
    return found
