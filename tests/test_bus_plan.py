"""The plan of a sweep, and where its threads go."""

import os
import sys

import msgspec
import pytest

from labkit import machine
from labkit.bus import placement, plan
from labkit.bus.placement import Tier
from labkit.bus.prepare import QUICK
from labkit.errors import BadInput

ALL = Tier("all", (0, 1, 2, 3), most=4, cores=3)
SLOW = Tier("efficiency", (2, 3), most=2, cores=2)


def planned(tiers=(ALL, SLOW), counts=None, kernels=("llvm", "numpy"), quick=False):
    counts = counts or placement.thread_counts(tiers[0], quick=quick)
    return plan.points(tiers, counts, footprint=2**30, kernels=kernels, l2_bytes=2**20, quick=quick)


def threads_of(points, **fields):
    return sorted(p.threads for p in points if all(getattr(p, name) == value for name, value in fields.items()))


def test_every_tier_and_kernel_is_read_at_every_thread_count():
    points = planned()
    for kernel in ("llvm", "numpy"):
        assert threads_of(points, probe="sweep", op="read", kernel=kernel, tier="all") == [1, 2, 3, 4]
        assert threads_of(points, probe="sweep", op="read", kernel=kernel, tier="efficiency") == [1, 2]


def test_the_proofs_stand_at_the_ends_of_the_main_tier():
    points = planned()
    assert threads_of(points, probe="ceiling") == [1]
    assert threads_of(points, probe="scaling") == [1, 3]  # slower cores and SMT siblings are not expected to scale
    assert threads_of(points, probe="knee", kernel="llvm") == [4]
    for op in ("copy", "triad"):
        for store in ("regular", "nontemporal"):
            assert threads_of(points, op=op, store=store) == [1, 4]
    assert {p.bytes for p in points if p.probe == "knee"} == {2**29}


def test_a_quick_plan_keeps_the_proofs_and_leaves_out_the_other_tiers():
    quick, full = planned(quick=True), planned()
    assert {p.tier for p in quick} == {"all"}
    assert {p.probe for p in quick} == {p.probe for p in full}
    assert threads_of(quick, op="copy", store="regular") == [4]


def test_a_quick_plan_of_many_cores_stays_short():
    """Six repeats and the warm-up must fit into a minute on any machine, the GPU's longer windows too."""
    tier = Tier("all", tuple(range(128)), most=128, cores=64)
    points = planned([tier], quick=True)
    assert threads_of(points, probe="sweep", op="read", kernel="llvm") == [1, 2, 4, 8, 16, 32, 64, 128]
    assert threads_of(points, probe="sweep", op="read", kernel="numpy") == [1, 128]
    points += plan.gpu_points(tier, [1, 128], kernel="llvm", footprint=1, operand=1, ops=("sum", "max", "a+b", "a*2"))
    gpu = sum("gpu" in (p.engine, p.beside) for p in points)
    assert 7 * (len(points) + gpu) * QUICK.window_s < 36


def test_no_point_stands_twice():
    for points in (planned(), planned(counts=[1]), planned(tiers=[Tier("all", (0,), most=1)])):
        assert len(set(points)) == len(points)


def test_the_ceiling_fits_the_l2_cache_and_the_sweep_does_not():
    for point in planned():
        if point.probe == "ceiling":
            assert point.share <= 2**20 / 2
        if point.probe == "sweep":
            assert point.share * point.threads > 2**29


def test_regular_stores_are_charged_for_the_line_they_read_first():
    """STREAM's bytes to bus bytes: copy 3/2 and triad 4/3 with write-allocate, 1 without."""
    traffic = {(p.op, p.store): p.traffic for p in planned()}
    assert traffic["copy", "regular"] == 3 / 2
    assert traffic["triad", "regular"] == 4 / 3
    assert traffic["copy", "nontemporal"] == traffic["triad", "nontemporal"] == traffic["read", None] == 1


def test_many_cores_are_thinned_but_keep_their_ends():
    counts = placement.thread_counts(Tier("all", tuple(range(70)), most=70))
    assert counts[:16] == list(range(1, 17))
    assert counts[-1] == 70
    assert len(counts) < 35


@pytest.mark.parametrize("asked", [(0,), (5,), (-1, 2), ()])
def test_threads_that_the_machine_has_not_are_refused(asked):
    with pytest.raises(BadInput, match="1 to 4 threads"):
        placement.check_threads(ALL, asked)


def test_threads_asked_for_are_cut_to_what_each_further_tier_has():
    points = planned(counts=[1, 4])
    assert threads_of(points, op="read", probe="sweep", kernel="llvm", tier="all") == [1, 4]
    assert max(threads_of(points, tier="efficiency")) == 2


def a_machine(*tiers, usable=8):
    """This machine with other tiers: (name, its CPUs, how many of them are one per physical core)."""
    made = tuple(machine.Tier(name, cpus, own, own, len(cpus), 2**20, "test") for name, cpus, own in tiers)
    return msgspec.structs.replace(machine.describe(), tiers=made, usable_cpus=machine.Fact(usable, "test"))


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_threads_go_to_one_cpu_of_every_core_before_any_sibling(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    two_fast_with_siblings, two_slow = ("cpu_core", (0, 2, 1, 3), 2), ("cpu_atom", (4, 5), 2)
    every, fast, slow = placement.tiers(a_machine(two_fast_with_siblings, two_slow))
    assert (every.name, every.cpus, every.most, every.cores) == ("all", (0, 2, 4, 5, 1, 3), 6, 2)
    assert (fast.name, fast.cpus, fast.cores) == ("cpu_core", (0, 2, 1, 3), 2)
    assert (slow.name, slow.cpus, slow.cores) == ("cpu_atom", (4, 5), 2)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_only_usable_cpus_are_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})
    (tier,) = placement.tiers(a_machine(("cpu", (0, 1, 2, 3), 4)))
    assert (tier.cpus, tier.most, tier.cores) == ((0, 3), 2, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_a_cpu_quota_bounds_the_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tier,) = placement.tiers(a_machine(("cpu", (0, 1, 2, 3), 4), usable=2))
    assert placement.thread_counts(tier) == [1, 2]


def test_on_macos_the_fast_class_may_use_all_cores_and_the_slow_one_its_own():
    mac = a_machine(("Performance", (0,) * 10, 10), ("Efficiency", (0,) * 4, 4))
    fast, slow = placement.tiers(mac, platform="darwin")
    assert (fast.name, fast.qos, fast.most, fast.cores, fast.cpus) == ("performance", 0x21, 14, 10, ())
    assert (slow.name, slow.qos, slow.most, slow.cores) == ("efficiency", 0x09, 4, 4)


def test_a_mac_with_one_kind_of_core_has_one_tier():
    (only,) = placement.tiers(a_machine(("Performance", (0,) * 8, 8)), platform="darwin")
    assert only.most == only.cores == 8


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_a_worker_is_pinned_and_its_process_is_not():
    import threading

    before = os.sched_getaffinity(0)
    cpus = tuple(sorted(before))
    seen = []

    def work():
        placement.settle(Tier("all", cpus, most=len(cpus)), len(cpus))  # wraps around to the first
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [{cpus[0]}]
    assert os.sched_getaffinity(0) == before
