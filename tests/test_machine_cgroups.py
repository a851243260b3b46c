"""CPU and memory limits: the lowest over all ancestors counts, in both versions; garbage is a reason."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.machine.cgroups import cpu_limit, groups, memory_left, memory_limit, throttled
from labkit.machine.sources import Unknown

V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(root, path, files):
    """A cgroup v2 tree whose process is in `path`; `files` by their path below the mount point."""
    base = {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": V2_MOUNT}
    return write(root, base | {f"sys/fs/cgroup/{name}": text for name, text in files.items()})


def v1(root, path, files):
    base = {
        "proc/self/cgroup": f"4:memory:{path}\n2:cpu,cpuacct:{path}\n1:name=systemd:/\n",
        "proc/self/mountinfo": V1_MOUNTS,
    }
    return write(root, base | {f"sys/fs/cgroup/{name}": text for name, text in files.items()})


def test_without_control_groups_nothing_limits(tmp_path):
    assert groups(tmp_path, "cpu") == []
    assert cpu_limit(tmp_path) is None
    assert memory_limit(tmp_path) is None
    assert memory_left(tmp_path) is None


def test_a_quota_of_an_ancestor_limits_below_a_wider_one_of_its_own(tmp_path):
    root = v2(
        tmp_path,
        "/a/b/c",
        {
            "a/b/c/cpu.max": "800000 100000\n",
            "a/b/cpu.max": "max 100000\n",
            "a/cpu.max": "150000 100000\n",
        },
    )
    assert cpu_limit(root) == (1.5, "cgroup v2 cpu.max (2 levels above)")


def test_labels_hold_no_group_names(tmp_path):
    root = v2(tmp_path, "/user.slice/alice", {"user.slice/cpu.max": "100000 100000\n"})
    assert cpu_limit(root) == (1.0, "cgroup v2 cpu.max (1 level above)")


def test_a_v1_quota_is_read_with_its_period_and_minus_one_is_none(tmp_path):
    root = v1(
        tmp_path,
        "/docker/x",
        {
            "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n",
            "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        },
    )
    assert cpu_limit(root) == (2.5, "cgroup v1 cpu.cfs_quota_us (own group)")


def test_a_mount_of_a_subtree_starts_at_its_own_root(tmp_path):
    """A container without its own cgroup namespace: the mount point is the container's group."""
    mount = V2_MOUNT.replace(" / /sys", " /docker/x /sys")
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/x/inner\n",
            "proc/self/mountinfo": mount,
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/inner/cpu.max": "max 100000\n",
        },
    )
    assert cpu_limit(root) == (2.0, "cgroup v2 cpu.max (1 level above)")


@pytest.mark.parametrize("path", ["/../../other", "/elsewhere"])
def test_a_group_outside_the_mount_is_read_at_the_mount_point_only(tmp_path, path):
    mount = V2_MOUNT if ".." in path else V2_MOUNT.replace(" / /sys", " /docker/x /sys")
    root = v2(tmp_path, path, {"cpu.max": "100000 100000\n"})
    (root / "proc/self/mountinfo").write_text(mount)
    (root / "sys/fs/cgroup/elsewhere").mkdir()
    assert cpu_limit(root) == (1.0, "cgroup v2 cpu.max (own group)")


def test_a_hybrid_system_is_read_in_both_versions(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "2:cpu,cpuacct:/x\n0::/\n",
            "proc/self/mountinfo": V1_MOUNTS + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
        },
    )
    assert [group.version for group in groups(root, "cpu")] == [1, 1, 2]
    assert cpu_limit(root) == (3.0, "cgroup v1 cpu.cfs_quota_us (own group)")


def test_a_mount_point_with_a_space_is_found(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT.replace("/sys/fs/cgroup", "/mnt/c\\040g"),
            "mnt/c g/cpu.max": "100000 50000\n",
        },
    )
    assert cpu_limit(root) == (2.0, "cgroup v2 cpu.max (own group)")


@pytest.mark.parametrize("text", ["", "lots 100000", "100000", "100000 0", "0 100000", "-5 100000", "1 2 3"])
def test_a_garbled_quota_is_a_reason_and_never_no_limit(tmp_path, text):
    root = v2(tmp_path, "/a", {"a/cpu.max": text, "cpu.max": "100000 100000"})
    with pytest.raises(Unknown, match=r"cgroup v2 cpu.max \(own group\)"):
        cpu_limit(root)


def test_a_garbled_membership_file_is_a_reason(tmp_path):
    root = write(tmp_path, {"proc/self/cgroup": "nonsense\n", "proc/self/mountinfo": V2_MOUNT})
    with pytest.raises(Unknown, match="/proc/self/cgroup is not understood: 'nonsense'"):
        cpu_limit(root)


def test_the_lowest_memory_limit_counts_and_high_counts_as_a_limit(tmp_path):
    root = v2(
        tmp_path,
        "/a/b",
        {"a/b/memory.max": "max\n", "a/memory.max": "4096000\n", "a/memory.high": "2048000\n"},
    )
    assert memory_limit(root) == (2048000, "cgroup v2 memory.high (1 level above)")


def test_v1_writes_no_limit_as_a_huge_number(tmp_path):
    root = v1(tmp_path, "/", {"memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert memory_limit(root) is None


def test_room_is_the_limit_minus_use_without_cache_that_can_be_dropped(tmp_path):
    root = v2(
        tmp_path,
        "/a",
        {
            "a/memory.max": "1000",
            "a/memory.current": "700",
            "a/memory.stat": "anon 400\ninactive_file 200\n",
        },
    )
    assert memory_left(root) == (500, "cgroup v2 memory.max (own group) minus what is in use")


def test_a_group_over_its_limit_has_no_room_and_not_less(tmp_path):
    root = v1(
        tmp_path,
        "/",
        {
            "memory/memory.limit_in_bytes": "1000",
            "memory/memory.usage_in_bytes": "1200",
            "memory/memory.stat": "total_inactive_file 0\n",
        },
    )
    assert memory_left(root)[0] == 0


def test_throttling_is_summed_over_the_groups_that_count_it(tmp_path):
    root = v2(
        tmp_path,
        "/a/b",
        {
            "a/b/cpu.stat": "usage_usec 9\nnr_throttled 2\nthrottled_usec 50\n",
            "a/cpu.stat": "usage_usec 9\nnr_throttled 1\nthrottled_usec 7\n",
            "cpu.stat": "usage_usec 9\n",
        },
    )
    assert throttled(root) == (57, 3, "cgroup v2 cpu.stat (own group) and 1 above")


def test_v1_counts_throttling_in_nanoseconds(tmp_path):
    root = v1(tmp_path, "/", {"cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 5000000\n"})
    assert throttled(root) == (5000, 4, "cgroup v1 cpu.stat (own group)")


def test_where_nothing_counts_throttling_it_is_unknown_and_not_zero(tmp_path):
    root = v2(tmp_path, "/", {"cpu.stat": "usage_usec 9\n"})
    with pytest.raises(Unknown, match="counts throttling"):
        throttled(root)


ANY_TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), max_size=60)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    membership=ANY_TEXT | st.just("0::/a\n"),
    mounts=ANY_TEXT | st.just(V2_MOUNT),
    quota=ANY_TEXT | st.just("max"),
    memory=ANY_TEXT | st.just("max"),
    stat=ANY_TEXT,
)
def test_garbage_gives_a_reason_or_a_sane_limit(tmp_path, membership, mounts, quota, memory, stat):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": membership,
            "proc/self/mountinfo": mounts,
            "sys/fs/cgroup/a/cpu.max": quota,
            "sys/fs/cgroup/a/memory.max": memory,
            "sys/fs/cgroup/a/memory.current": memory,
            "sys/fs/cgroup/a/memory.stat": stat,
            "sys/fs/cgroup/a/cpu.stat": stat,
        },
    )
    for read in (cpu_limit, memory_limit, memory_left, throttled):
        try:
            found = read(root)
        except Unknown:
            continue
        assert found is None or found[0] >= 0
        if read is cpu_limit and found is not None:
            assert found[0] > 0


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(quotas=st.lists(st.none() | st.integers(1000, 10**7), min_size=1, max_size=5), period=st.integers(1000, 10**6))
def test_the_limit_is_the_minimum_over_the_whole_chain(tmp_path_factory, quotas, period):
    names = [f"g{i}" for i in range(len(quotas))]
    files = {
        f"{'/'.join(names[: i + 1])}/cpu.max": f"{'max' if quota is None else quota} {period}\n"
        for i, quota in enumerate(quotas)
    }
    root = v2(tmp_path_factory.mktemp("chain"), "/" + "/".join(names), files)
    limits = [quota / period for quota in quotas if quota is not None]
    found = cpu_limit(root)
    assert (found and found[0]) == (min(limits) if limits else None)
