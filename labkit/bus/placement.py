"""Which core a worker runs on: affinity on Linux, QoS classes (a hint, so read back) on macOS."""

import ctypes
import os
import sys
from functools import cache

import msgspec

from labkit.errors import BadInput, NotAvailable
from labkit.machine import Machine

QOS_CLASSES = {"performance": 0x21, "efficiency": 0x09}
"""USER_INTERACTIVE prefers the fast cores and spills over; BACKGROUND keeps to the slow ones (sys/qos.h)."""


class Tier(msgspec.Struct, frozen=True):
    """A way to place threads: the logical CPUs to pin to, in order (Linux), or a QoS class (macOS)."""

    name: str
    cpus: tuple[int, ...] = ()
    qos: int | None = None
    most: int = 1  # threads that make sense


def tiers(machine: Machine, platform: str = sys.platform) -> list[Tier]:
    """The tiers to sweep, fastest first. Linux: all usable CPUs, then each core tier where there are several."""
    if platform == "darwin":
        cores = sum(tier.logical_cpus or 0 for tier in machine.tiers) or machine.logical_cpus.value or 1
        return [Tier(name, qos=qos, most=cores) for name, qos in QOS_CLASSES.items()]
    usable = sorted(os.sched_getaffinity(0))
    ordered = [cpu for tier in machine.tiers for cpu in tier.cpus if cpu in usable] or usable
    quota = machine.usable_cpus.value
    most = min(len(ordered), quota) if isinstance(quota, int) and quota > 0 else len(ordered)
    found = [Tier("all", tuple(ordered), most=most)]
    if len(machine.tiers) > 1:
        for tier in machine.tiers:
            cpus = tuple(cpu for cpu in tier.cpus if cpu in usable)
            if cpus:
                found.append(Tier(tier.name, cpus, most=min(len(cpus), most)))
    return found


def thread_counts(tier: Tier, asked: tuple[int, ...] | None = None) -> list[int]:
    """1..most, thinned above 16 (1-16, then every fourth, and the last). `asked` wins, and is checked."""
    if asked is not None:
        if not asked or min(asked) < 1 or max(asked) > tier.most:
            raise BadInput(f"--threads {','.join(map(str, asked))}: this machine can run 1 to {tier.most} threads")
        return sorted(set(asked))
    return [n for n in range(1, tier.most + 1) if n <= 16 or n % 4 == 0 or n == tier.most]


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
