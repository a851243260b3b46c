"""CPU numbers are mapped to clusters. The device tree's text is written from its public format; no Mac was asked."""

import pytest

from labkit.machine.clusters import core_types, types_seen
from labkit.machine.sources import Unknown

TREE = """\
+-o cpus  <class IOPlatformDevice, id 0x100000112>
  | {
  |   "name" = <"cpus">
  |   "max_cpus" = <08000000>
  | }
  +-o cpu0@0  <class IOPlatformDevice, id 0x100000113>
  | | {
  | |   "cluster-type" = <"E">
  | |   "cpu-id" = <00000000>
  | | }
  | +-o AppleARMCPU  <class AppleARMCPU>
  +-o cpu4@10100  <class IOPlatformDevice, id 0x100000117>
    | {
    |   "state" = <"running">
    |   "cluster-type" = <"P">
    | }
"""


def test_each_cpu_has_its_clusters_type():
    assert core_types(lambda argv: TREE) == {0: "E", 4: "P"}


def fails(argv):
    raise Unknown("ioreg is not installed")


@pytest.mark.parametrize("run", [fails, lambda argv: "", lambda argv: '"cluster-type" = <"P">'])
def test_a_tree_that_does_not_say_gives_no_types(run):
    assert core_types(run) == {}


def test_a_tier_is_verified_only_when_every_cpu_seen_is_known():
    types = {0: "E", 1: "E", 4: "P"}
    assert types_seen({0, 1}, types) == "E"
    assert types_seen({1, 4}, types) == "E+P"
    assert types_seen({1, 7}, types) is None
    assert types_seen(set(), types) is None
    assert types_seen({0}, {}) is None
