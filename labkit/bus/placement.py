"""Which core a worker runs on: affinity on Linux, QoS classes (a hint, so read back) on macOS."""

import ctypes
import os
import sys
from functools import cache

import msgspec

from labkit.errors import BadInput, NotAvailable
from labkit.machine import Machine
from labkit.machine import Tier as CoreTier

QOS_CLASSES = {"performance": 0x21, "efficiency": 0x09}
"""USER_INTERACTIVE prefers the fast cores and spills over; BACKGROUND keeps to the slow ones (sys/qos.h)."""


class Tier(msgspec.Struct, frozen=True):
    """A way to place threads: the logical CPUs to pin to, in order (Linux), or a QoS class (macOS)."""

    name: str
    cpus: tuple[int, ...] = ()
    qos: int | None = None
    most: int = 1  # threads that make sense
    cores: int = 1  # so many threads have a core each, all of the fastest kind in the tier


def tiers(machine: Machine, platform: str = sys.platform) -> list[Tier]:
    """The tiers to sweep; the first is the main one, over all cores, and further ones are core tiers by themselves.

    macOS: the class that prefers the fast cores and spills over to all, then the one that keeps to the slow ones.
    Linux: all usable CPUs, one per physical core first, then each core tier where there are several.
    """
    if platform == "darwin":
        sizes = [tier.logical_cpus or 0 for tier in machine.tiers]
        total = sum(sizes) or machine.logical_cpus.value or 1
        fast = Tier("performance", qos=QOS_CLASSES["performance"], most=total, cores=sizes[0] or 1)
        slow = sum(sizes[1:])
        return [fast, Tier("efficiency", qos=QOS_CLASSES["efficiency"], most=slow, cores=slow)] if slow else [fast]
    usable = sorted(os.sched_getaffinity(0))
    own_core, siblings = [], []
    for tier in machine.tiers:
        reach = len(tier.cpus) if tier.cores_in_reach is None else tier.cores_in_reach
        own_core += [cpu for cpu in tier.cpus[:reach] if cpu in usable]
        siblings += [cpu for cpu in tier.cpus[reach:] if cpu in usable]
    ordered = own_core + siblings or usable
    quota = machine.usable_cpus.value
    most = min(len(ordered), quota) if isinstance(quota, int) and quota > 0 else len(ordered)
    alike = _cores(machine.tiers[0], usable)
    found = [Tier("all", tuple(ordered), most=most, cores=max(1, min(alike, most)))]
    if len(machine.tiers) > 1:
        for tier in machine.tiers:
            cpus = tuple(cpu for cpu in tier.cpus if cpu in usable)
            if cpus:
                limit = min(len(cpus), most)
                found.append(Tier(tier.name, cpus, most=limit, cores=max(1, min(_cores(tier, usable), limit))))
    return found


def _cores(tier: CoreTier, usable: list[int]) -> int:
    reach = len(tier.cpus) if tier.cores_in_reach is None else tier.cores_in_reach
    return sum(cpu in usable for cpu in tier.cpus[:reach])


def thread_counts(tier: Tier, *, quick: bool = False) -> list[int]:
    """1..most: every count to 16, then every fourth, and the last. Quick: the powers of two, and the last."""
    every = range(1, tier.most + 1)
    if quick:
        return [n for n in every if n & (n - 1) == 0 or n == tier.most]
    return [n for n in every if n <= 16 or n % 4 == 0 or n == tier.most]


def check_threads(main: Tier, asked: tuple[int, ...]) -> list[int]:
    """The thread counts asked for, sorted. Raises BadInput for one that the main tier cannot run."""
    if not asked or min(asked) < 1 or max(asked) > main.most:
        raise BadInput(f"--threads {','.join(map(str, asked))}: this machine can run 1 to {main.most} threads")
    return sorted(set(asked))


def settle(tier: Tier, worker: int) -> None:
    """Put the calling thread where worker number `worker` of this tier belongs. Raises NotAvailable."""
    if tier.qos is not None:
        _set_qos(tier.qos)
    elif tier.cpus:
        # On Linux the 0 means the calling thread, not the process.
        os.sched_setaffinity(0, {tier.cpus[worker % len(tier.cpus)]})


@cache
def _system() -> ctypes.CDLL:
    library = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
    library.pthread_set_qos_class_self_np.argtypes = [ctypes.c_uint, ctypes.c_int]
    library.qos_class_self.restype = ctypes.c_uint
    return library


def _set_qos(qos: int) -> None:
    status = _system().pthread_set_qos_class_self_np(qos, 0)
    seen = _system().qos_class_self()
    if status != 0 or seen != qos:
        raise NotAvailable(f"QoS class {qos:#x} was refused (status {status}, class now {seen:#x}): no tier to measure")


def current_cpu(platform: str = sys.platform) -> int | None:
    """The CPU that the calling thread is on now; None where it cannot be told."""
    if platform != "darwin":
        return None  # pinned: the affinity mask is the answer
    number = ctypes.c_size_t()
    return number.value if _system().pthread_cpu_number_np(ctypes.byref(number)) == 0 else None
