"""The peer likwid-bench (github.com/RRZE-HPC/likwid; Debian package likwid): its command, and what it prints."""

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from labkit.errors import ChildFailed

PROGRAM = "likwid-bench"
TEST = "load_avx"

# glibc 2.35 and later. Its arrays lie on plain pages otherwise, and are read a quarter slower.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
TIMEOUT_S = 120
POLL_S = 0.1
CLEANING_S = 0.25


class Printed(msgspec.Struct, frozen=True):
    """What a run prints of itself."""

    seconds: float  # of the timed phase alone, from a barrier to a barrier
    bytes: int  # read in it by all threads together
    rate_gbs: float  # its own MByte/s: 1e6 bytes/s
    cpus: tuple[int, ...]  # where its threads were pinned


class Ran(msgspec.Struct, frozen=True):
    """One run, with what is known about its share of the cores."""

    printed: Printed
    cpu_share: float | None  # CPU time / wall time of its threads in the timed phase; None: not known


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


def run(arguments: list[str], threads: int, environment: Mapping[str, str] = HUGE_PAGES) -> Ran:
    """Run it. Raises ChildFailed when it fails or does not end."""
    looks: list[tuple[float, float]] = []
    with _started(arguments, environment) as process:
        if sys.platform == "linux":
            looks = _looks(process.pid)
        text = _ended(process)
    printed = parse(text)
    return Ran(printed, cpu_share(looks, time.monotonic(), printed.seconds, threads))


def _looks(pid: int) -> list[tuple[float, float]]:
    """(when, CPU seconds so far) of another process every POLL_S until it ends, at almost no cost to it.

    Reading its threads' files in /proc took 0.7 % of a core from it, and subprocess's own waiting wakes up often.
    """
    looks = []
    clock = (~pid << 3) | 2  # what clock_getcpuclockid gives: the kernel's clock of that process's CPU time
    ended = os.pidfd_open(pid)
    try:
        while not select.select([ended], [], [], POLL_S)[0]:
            looks.append((time.monotonic(), time.clock_gettime(clock)))
    except OSError:
        pass  # it ended between the two calls
    finally:
        os.close(ended)
    return looks


def cpu_share(looks: Sequence[tuple[float, float]], end: float, seconds: float, threads: int) -> float | None:
    """CPU time / wall time of `threads` threads in the timed phase, the last `seconds` before it cleans up and ends.

    `looks`: (when, CPU seconds of the whole process so far). How long the cleaning takes is not known, so of the
    stretches that may be the phase the one with the most CPU time is taken. None when it was not looked at enough.
    """
    shares = []
    for last, (until, after) in enumerate(looks):
        earlier = [(when, used) for when, used in looks[:last] if seconds / 2 <= until - when <= seconds]
        if end - until <= CLEANING_S and earlier:
            since, before = earlier[0]
            shares.append((after - before) / (until - since) / threads)
    return min(1.0, max(shares)) if shares else None


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
