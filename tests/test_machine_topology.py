"""CPUs, tiers, caches and NUMA nodes from fake sysfs trees: SMT, hybrids, several last-level caches, gaps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.machine import topology
from labkit.machine.facts import Cache, Fact, NumaNode
from labkit.machine.sources import Unknown, known

CPU = "sys/devices/system/cpu"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def smt(root, cores, threads=2, capacity=None):
    """`cores` x `threads` CPUs numbered as most servers do: all first threads, then all second threads."""
    files = {f"{CPU}/online": f"0-{cores * threads - 1}"}
    for cpu in range(cores * threads):
        siblings = ",".join(str(cpu % cores + cores * t) for t in range(threads))
        files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = siblings
        if capacity:
            files[f"{CPU}/cpu{cpu}/cpu_capacity"] = str(capacity(cpu))
    return write(root, files)


def cache(root, cpu, index, level, kind, size, shared):
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    values = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared, "coherency_line_size": "64"}
    write(root, {f"{folder}/{name}": text for name, text in values.items()})


def tiers(root, reach):
    return topology.tiers(root, frozenset(reach), topology.l2_by_cpu(known(lambda: topology.caches(root))))


# The kernel's list format


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8,10-11\n", (0, 1, 2, 3, 8, 10, 11)),
        ("", ()),
        ("\n", ()),
        ("5", (5,)),
        ("2-2", (2,)),
        ("3,1-2", (1, 2, 3)),
    ],
)
def test_the_kernels_list_format_is_read(text, cpus):
    assert topology.parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "a", "1,,2", "1-", "-1", "0-3:1/2", "1 2", "0-99999999", "65536", "1,\n2"])
def test_what_is_no_list_of_cpus_is_a_reason(text):
    with pytest.raises(Unknown, match="here is not a list of CPUs"):
        topology.parse_cpu_list(text, "here")


@given(st.sets(st.integers(0, 4095), max_size=60))
def test_any_set_of_cpus_survives_the_list_format(cpus):
    parts, rest = [], sorted(cpus)
    while rest:
        last = next(i for i in range(len(rest)) if i + 1 == len(rest) or rest[i + 1] != rest[i] + 1)
        parts.append(str(rest[0]) if last == 0 else f"{rest[0]}-{rest[last]}")
        rest = rest[last + 1 :]
    assert topology.parse_cpu_list(",".join(parts)) == tuple(sorted(cpus))


@given(st.text(max_size=40))
def test_any_text_gives_cpus_in_order_or_a_reason(text):
    found = known(lambda: (topology.parse_cpu_list(text), "list"))
    if found.value is None:
        assert "not a list of CPUs" in found.source
    else:
        assert list(found.value) == sorted(set(found.value))
        assert bool(found.value) == bool(text.strip())


# Cores and tiers


def test_one_cpu_per_core_comes_first_then_the_siblings(tmp_path):
    (tier,) = tiers(smt(tmp_path, cores=4), range(8))
    assert tier.cpus == (0, 1, 2, 3, 4, 5, 6, 7)
    assert (tier.cores_in_reach, tier.physical_cores, tier.logical_cpus) == (4, 4, 8)
    assert topology.physical_cores(tmp_path)[0] == 4


def test_neighbouring_siblings_are_told_apart_too(tmp_path):
    files = {f"{CPU}/online": "0-3"}
    files |= {f"{CPU}/cpu{c}/topology/core_cpus_list": f"{c - c % 2}-{c - c % 2 + 1}" for c in range(4)}
    (tier,) = tiers(write(tmp_path, files), range(4))
    assert tier.cpus == (0, 2, 1, 3)
    assert tier.cores_in_reach == 2


def test_an_affinity_that_holds_only_second_threads_still_has_whole_cores(tmp_path):
    (tier,) = tiers(smt(tmp_path, cores=4), {1, 5, 6})
    assert tier.cpus == (1, 6, 5)
    assert (tier.cores_in_reach, tier.physical_cores, tier.logical_cpus) == (2, 4, 8)


def test_the_sibling_lists_name_before_linux_5_6_is_read(tmp_path):
    files = {f"{CPU}/online": "0-1"}
    files |= {f"{CPU}/cpu{c}/topology/thread_siblings_list": "0-1" for c in range(2)}
    assert topology.physical_cores(write(tmp_path, files))[0] == 1


@given(st.lists(st.integers(0, 7), min_size=1, max_size=24))
def test_every_cpu_comes_once_and_first_ones_have_cores_to_themselves(core_by_cpu):
    cores = {}
    for cpu, core in enumerate(core_by_cpu):
        cores.setdefault(core, []).append(cpu)
    core_of = {cpu: tuple(cores[core]) for cpu, core in enumerate(core_by_cpu)}
    ordered, first = topology.one_per_core_first(core_of, core_of)
    assert sorted(ordered) == list(range(len(core_by_cpu)))
    assert len({core_by_cpu[cpu] for cpu in ordered[:first]}) == first == len(cores)


def test_intel_hybrids_have_the_kinds_that_the_kernel_names_fast_ones_first(tmp_path):
    files = {f"{CPU}/online": "0-7", "sys/devices/cpu_atom/cpus": "4-7", "sys/devices/cpu_core/cpus": "0-3"}
    files |= {f"{CPU}/cpu{c}/topology/core_cpus_list": f"{c - c % 2}-{c - c % 2 + 1}" for c in range(4)}
    files |= {f"{CPU}/cpu{c}/topology/core_cpus_list": str(c) for c in range(4, 8)}
    files |= {f"{CPU}/cpu{c}/cpu_capacity": str(1024 - c) for c in range(8)}  # favoured cores: not tiers
    root = write(tmp_path, files)
    for cpu in range(4):
        cache(root, cpu, 2, 2, "Unified", "2048K", f"{cpu - cpu % 2}-{cpu - cpu % 2 + 1}")
    for cpu in range(4, 8):
        cache(root, cpu, 2, 2, "Unified", "4M", "4-7")
    core, atom = tiers(root, range(8))
    assert (core.name, core.cpus, core.cores_in_reach, core.l2_bytes) == ("cpu_core", (0, 2, 1, 3), 2, 2 << 20)
    assert (atom.name, atom.cpus, atom.cores_in_reach, atom.l2_bytes) == ("cpu_atom", (4, 5, 6, 7), 4, 4 << 20)
    assert core.source == "/sys/devices/cpu_*/cpus"


def test_cpus_that_no_kind_lists_are_not_lost(tmp_path):
    files = {f"{CPU}/online": "0-2", "sys/devices/cpu_core/cpus": "0", "sys/devices/cpu_atom/cpus": "1"}
    files |= {f"{CPU}/cpu{c}/topology/core_cpus_list": str(c) for c in range(3)}
    assert [tier.name for tier in tiers(write(tmp_path, files), range(3))] == ["cpu_core", "cpu_atom", "unlisted"]


def test_capacities_that_differ_are_tiers(tmp_path):
    root = smt(tmp_path, cores=6, threads=1, capacity=lambda cpu: 446 if cpu < 4 else 1024)
    big, little = tiers(root, range(6))
    assert (big.name, big.cpus) == ("capacity 1024", (4, 5))
    assert (little.name, little.cpus) == ("capacity 446", (0, 1, 2, 3))


def test_equal_capacities_are_one_tier(tmp_path):
    (tier,) = tiers(smt(tmp_path, cores=2, capacity=lambda cpu: 1024), range(4))
    assert (tier.name, tier.source) == ("cpu", f"/{CPU}/cpu*/cpu_capacity: all equal")


def test_a_garbled_capacity_is_one_tier_that_says_why(tmp_path):
    (tier,) = tiers(smt(tmp_path, cores=2, capacity=lambda cpu: "?"), range(4))
    assert tier.name == "cpu"
    assert "core tiers unknown" in tier.source
    assert "cpu_capacity is not a whole number" in tier.source


def test_a_tier_out_of_reach_is_shown_with_no_cpu_to_use(tmp_path):
    root = smt(tmp_path, cores=4, threads=1, capacity=lambda cpu: 100 if cpu < 2 else 200)
    big, little = tiers(root, {0, 1})
    assert (big.cpus, big.cores_in_reach, big.physical_cores) == ((), 0, 2)
    assert little.cpus == (0, 1)


def test_without_topology_files_the_cpus_stand_and_the_cores_are_unknown(tmp_path):
    (tier,) = tiers(write(tmp_path, {f"{CPU}/online": "0-3"}), {0, 3})
    assert tier.cpus == (0, 3)
    assert (tier.cores_in_reach, tier.physical_cores, tier.logical_cpus) == (None, None, 4)
    assert "cores unknown" in tier.source


def test_without_sysfs_the_affinity_is_the_tier(tmp_path):
    (tier,) = tiers(tmp_path, {2, 5})
    assert (tier.cpus, tier.physical_cores, tier.l2_bytes) == ((2, 5), None, None)
    assert f"/{CPU}/online: No such file" in tier.source


def test_a_sibling_list_without_its_own_cpu_is_not_believed(tmp_path):
    write(tmp_path, {f"{CPU}/online": "0-1", f"{CPU}/cpu0/topology/core_cpus_list": "1"})
    with pytest.raises(Unknown, match="does not count cpu0"):
        topology.physical_cores(tmp_path)


def test_no_online_cpu_is_garbage(tmp_path):
    with pytest.raises(Unknown, match="lists no CPU"):
        topology.online(write(tmp_path, {f"{CPU}/online": ""}))


# Caches


def two_complexes(root):
    """4 CPUs, an L3 for each pair, as on chips that are put together from complexes."""
    write(root, {f"{CPU}/online": "0-3"})
    for cpu in range(4):
        cache(root, cpu, 0, 1, "Data", "32K", str(cpu))
        cache(root, cpu, 1, 1, "Instruction", "64K", str(cpu))
        cache(root, cpu, 2, 2, "Unified", "512K", str(cpu))
        cache(root, cpu, 3, 3, "Unified", "16384K", "0-1" if cpu < 2 else "2-3")
    return root


def test_all_last_level_caches_in_reach_are_summed(tmp_path):
    found = known(lambda: topology.caches(two_complexes(tmp_path)))
    assert topology.last_level(found, frozenset(range(4))) == (32 << 20, f"sum of 2 L3 in /{CPU}/cpu*/cache")
    assert topology.last_level(found, frozenset({0, 1}))[0] == 16 << 20
    assert topology.last_level(found, frozenset({1, 2}))[0] == 32 << 20


def test_caches_alike_are_counted_with_their_sharing(tmp_path):
    found = known(lambda: topology.caches(two_complexes(tmp_path)))
    summary, _ = topology.cache_summary(found)
    assert summary == (
        Cache(1, "Data", 32 << 10, 4, 1),
        Cache(1, "Instruction", 64 << 10, 4, 1),
        Cache(2, "Unified", 512 << 10, 4, 1),
        Cache(3, "Unified", 16 << 20, 2, 2),
    )


def test_where_the_last_level_differs_each_cpu_counts_its_own(tmp_path):
    """A core without an L3 has its L2 as last level."""
    root = write(tmp_path, {f"{CPU}/online": "0-1"})
    cache(root, 0, 2, 2, "Unified", "1M", "0")
    cache(root, 0, 3, 3, "Unified", "8M", "0")
    cache(root, 1, 2, 2, "Unified", "2M", "1")
    assert topology.last_level(known(lambda: topology.caches(root)), frozenset({0, 1}))[0] == 10 << 20


@pytest.mark.parametrize("size", ["", "0K", "big", "12G", "-4K"])
def test_one_cache_of_unknown_size_makes_the_sum_unknown(tmp_path, size):
    root = two_complexes(tmp_path)
    (root / CPU / "cpu2/cache/index3/size").write_text(size)
    found = known(lambda: topology.caches(root))
    assert found.value is None
    assert "cpu2/cache/index3/size is not a size" in found.source
    assert known(lambda: topology.last_level(found, frozenset({0, 1}))) == Fact(None, found.source)
    assert known(lambda: topology.cache_summary(found)) == Fact(None, found.source)


def test_a_cpu_whose_caches_are_not_described_makes_the_sum_unknown(tmp_path):
    found = known(lambda: topology.caches(two_complexes(tmp_path)))
    with pytest.raises(Unknown, match="no cache is described for cpu7"):
        topology.last_level(found, frozenset({0, 7}))


def test_a_machine_that_describes_no_cache_says_so(tmp_path):
    write(tmp_path, {f"{CPU}/online": "0", f"{CPU}/cpu0/cache/uevent": ""})
    with pytest.raises(Unknown, match="describes no cache"):
        topology.caches(tmp_path)


def test_the_cache_line_is_read_and_zero_is_not_a_line(tmp_path):
    root = two_complexes(tmp_path)
    assert topology.cache_line(root)[0] == 64
    (root / CPU / "cpu0/cache/index0/coherency_line_size").write_text("0\n")
    with pytest.raises(Unknown, match="says 0"):
        topology.cache_line(root)


# NUMA


def test_numa_nodes_keep_their_numbers_and_memory_only_nodes_have_no_cpu(tmp_path):
    node = "sys/devices/system/node"
    root = write(
        tmp_path,
        {
            f"{node}/node0/cpulist": "0-1",
            f"{node}/node2/cpulist": "2-3",
            f"{node}/node10/cpulist": "",
            f"{node}/online": "0",
        },
    )
    assert topology.numa_nodes(root)[0] == (NumaNode(0, (0, 1)), NumaNode(2, (2, 3)), NumaNode(10, ()))


def test_without_numa_files_the_nodes_are_unknown(tmp_path):
    assert known(lambda: topology.numa_nodes(tmp_path)).value is None
    (tmp_path / "sys/devices/system/node").mkdir(parents=True)
    assert "lists no node" in known(lambda: topology.numa_nodes(tmp_path)).source
