"""The peer likwid-bench (github.com/RRZE-HPC/likwid; Debian package likwid): its command, and what it prints."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from labkit import machine
from labkit.errors import ChildFailed

PROGRAM = "likwid-bench"
TEST = "load_avx"

# glibc 2.35 and later. Its arrays lie on plain pages otherwise, and are read a quarter slower.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
TIMEOUT_S = 120


class Printed(msgspec.Struct, frozen=True):
    """What a run prints of itself."""

    seconds: float  # of the timed phase alone, from a barrier to a barrier
    bytes: int  # read in it by all threads together
    rate_gbs: float  # its own MByte/s: 1e6 bytes/s
    cpus: tuple[int, ...]  # where its threads were pinned


class Ran(msgspec.Struct, frozen=True):
    """One run, with what is known about its share of the cores."""

    printed: Printed
    waited: float | None  # at most this share of its timed phase was spent waiting for a core; None: not known


def missing() -> str | None:
    """Why this peer cannot run here; None if it can."""
    path = shutil.which(PROGRAM)
    if path is None:
        return f"{PROGRAM} is not installed"
    listed = subprocess.run([path, "-a"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout
    if not re.search(rf"^{TEST} ", listed, re.MULTILINE):
        return f"{PROGRAM} has no test {TEST} on this machine"
    return None


def command(size: int, threads: int, iterations: int, stride: int = 1) -> list[str]:
    """`threads` pinned threads read `size` bytes `iterations` times, each the part that it touched first (-W).

    `stride` is the step from one hardware thread to the next: likwid lists those of one core side by side.
    """
    kilobytes = size // 1000  # its kB are 1000 bytes
    return [PROGRAM, "-t", TEST, "-W", f"N:{kilobytes}kB:{threads}:1:{stride}", "-i", str(iterations)]


def parse(text: str) -> Printed:
    """Read what a run printed. Raises ChildFailed naming what is not there, or does not agree with itself."""

    def find(pattern: str, name: str) -> str:
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise ChildFailed(f"{PROGRAM} printed no {name}: {' / '.join(text.split())[-200:] or 'nothing at all'}")
        return found[1]

    seconds = float(find(r"^Time:\s+(\S+) sec$", "Time"))
    volume = int(find(r"^Data volume \(Byte\):\s+(\d+)$", "Data volume"))
    rate = float(find(r"^MByte/s:\s+(\S+)$", "MByte/s")) / 1e3
    cpus = tuple(int(cpu) for cpu in re.findall(r"^Group: .* running on (?:hwthread|core) (\d+) ", text, re.MULTILINE))
    if seconds <= 0 or abs(rate * seconds * 1e9 / volume - 1) > 0.001:
        raise ChildFailed(f"{PROGRAM}'s rate is not its volume over its time: {rate} GB/s, {volume} bytes, {seconds} s")
    return Printed(seconds, volume, rate, cpus)


def run(arguments: list[str], environment: Mapping[str, str] = HUGE_PAGES) -> Ran:
    """Run it, alone and unwatched: looking at it from another process would take a core from it.

    Linux's pressure counter says how long some task, anywhere, waited for a core while the process lived. None of
    its threads can have waited longer, and at worst all of that fell into the timed phase.
    Raises ChildFailed when it fails or does not end.
    """
    before = machine.counters()
    with _started(arguments, environment) as process:
        text = _ended(process)
    changed = machine.delta(before, machine.counters())
    printed = parse(text)
    waited = None if changed.pressure is None else changed.pressure * changed.seconds / printed.seconds
    return Ran(printed, waited)


def huge_page_share(arguments: list[str], environment: Mapping[str, str] = HUGE_PAGES) -> float | None:
    """Share of its memory that lay on huge pages when it held the most; None where the system does not tell.

    Looking at it slows it down, so this run's rate is thrown away.
    """
    most, share = 0, None
    with _started(arguments, environment) as process:
        while process.poll() is None:
            try:
                table = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            except OSError:
                break
            held, huge = (int(re.search(rf"^{name}: +(\d+) kB", table, re.M)[1]) for name in ("Rss", "AnonHugePages"))
            if held > most:
                most, share = held, huge / held
            time.sleep(0.05)
        _ended(process)
    return share


def _started(arguments: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _ended(process: subprocess.Popen[str]) -> str:
    try:
        text, _ = process.communicate(timeout=TIMEOUT_S)
    except BaseException as error:
        # Also on Ctrl-C: it must not go on reading behind the next contestant's back.
        process.kill()
        if isinstance(error, subprocess.TimeoutExpired):
            raise ChildFailed(f"{PROGRAM} did not end within {TIMEOUT_S} s") from None
        raise
    if process.returncode != 0:
        raise ChildFailed(f"{PROGRAM} ended with status {process.returncode}: {' '.join(text.split())[-200:]}")
    return text
