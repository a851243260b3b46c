"""The plan of a sweep, and where its threads go."""

import os
import sys

import pytest

from labkit import machine
from labkit.bus import placement, plan
from labkit.bus.placement import Tier
from labkit.errors import BadInput

ALL = Tier("all", (0, 1, 2, 3), most=4)
SLOW = Tier("efficiency", (2, 3), most=2)


def planned(tiers=(ALL, SLOW), kernels=("llvm", "numpy"), **more):
    return plan.points(list(tiers), footprint=2**30, kernels=kernels, l2_bytes=2**20, **more)


def threads_of(points, **fields):
    return sorted(p.threads for p in points if all(getattr(p, name) == value for name, value in fields.items()))


def test_every_tier_and_kernel_is_read_at_every_thread_count():
    points = planned()
    for kernel in ("llvm", "numpy"):
        assert threads_of(points, probe="sweep", op="read", kernel=kernel, tier="all") == [1, 2, 3, 4]
        assert threads_of(points, probe="sweep", op="read", kernel=kernel, tier="efficiency") == [1, 2]


def test_the_proofs_stand_at_the_ends_of_the_main_tier():
    points = planned()
    assert threads_of(points, probe="ceiling") == [1, 4]
    assert threads_of(points, probe="scaling") == [1, 4]
    assert threads_of(points, probe="knee", kernel="llvm") == [4]
    for op in ("copy", "triad"):
        for store in ("regular", "nontemporal"):
            assert threads_of(points, op=op, store=store) == [1, 4]
    assert {p.bytes for p in points if p.probe == "knee"} == {2**29}


def test_a_quick_plan_keeps_the_proofs_and_leaves_out_the_other_tiers():
    quick, full = planned(quick=True), planned()
    assert {p.tier for p in quick} == {"all"}
    assert {p.probe for p in quick} == {p.probe for p in full}


def test_no_point_stands_twice():
    for points in (planned(), planned(threads=(1,)), planned(tiers=[Tier("all", (0,), most=1)])):
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
        placement.thread_counts(ALL, asked)


def a_machine(*tiers, usable=8):
    import msgspec

    here = machine.describe()
    made = tuple(machine.Tier(name, cpus, len(cpus), len(cpus), len(cpus), 2**20, "test") for name, cpus in tiers)
    return msgspec.structs.replace(here, tiers=made, usable_cpus=machine.Fact(usable, "test"))


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_threads_go_to_the_usable_cpus_in_the_machines_order(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tier,) = placement.tiers(a_machine(("cpu", (0, 2, 1, 3))))
    assert (tier.name, tier.cpus, tier.most) == ("all", (0, 2, 1, 3), 4)


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_core_tiers_are_swept_after_all_cores_together(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4})
    tiers = placement.tiers(a_machine(("cpu_core", (0, 1)), ("cpu_atom", (2, 3, 4, 5))))
    assert [(t.name, t.cpus) for t in tiers] == [
        ("all", (0, 1, 2, 3, 4)),
        ("cpu_core", (0, 1)),
        ("cpu_atom", (2, 3, 4)),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_a_cpu_quota_bounds_the_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tier,) = placement.tiers(a_machine(("cpu", (0, 1, 2, 3)), usable=2))
    assert placement.thread_counts(tier) == [1, 2]


def test_on_macos_the_tiers_are_qos_classes_over_all_cores():
    found = placement.tiers(a_machine(("Performance", (0,) * 10), ("Efficiency", (0,) * 4)), platform="darwin")
    assert [(t.name, t.qos, t.most, t.cpus) for t in found] == [
        ("performance", 0x21, 14, ()),
        ("efficiency", 0x09, 14, ()),
    ]


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
