"""How many bytes are read, and on which pages they lie."""

import itertools
import mmap
import re

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.bus import memory
from labkit.bus.kernels import ROUND, compile_kernels
from labkit.bus.memory import CHUNK, Region, footprint, held, page_mode, region_bytes, share_bytes
from labkit.errors import Refused

GIB = 2**30
THP = memory.Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize(
    ("caches", "limit", "threads", "size"),
    [
        (32 * 2**20, 24 * GIB, 2, GIB),  # the least
        (1 * GIB, 64 * GIB, 2, 4 * GIB),  # four times the caches
        (None, 256 * GIB, 64, 4 * GIB),  # 64 MiB a thread
        (None, None, 1, GIB),
        (32 * 2**20, 4 * GIB, 2, GIB // 4),  # a quarter of a small memory, still past the caches
    ],
)
def test_the_footprint_is_past_the_caches_and_within_the_memory(caches, limit, threads, size):
    assert footprint(caches, limit, threads) == size


def test_memory_too_small_to_leave_the_caches_is_refused():
    with pytest.raises(Refused, match=r"1.0 GiB of usable memory are too little"):
        footprint(256 * 2**20, GIB, 4)


@given(st.integers(0, 2**33), st.integers(2**28, 2**40), st.integers(1, 200))
def test_no_footprint_breaks_its_rules(caches, limit, threads):
    try:
        size = footprint(caches, limit, threads)
    except Refused:
        return
    assert size >= 4 * caches
    assert held(size, threads) <= limit / 4


@given(st.integers(CHUNK, 2**36), st.integers(1, 128))
def test_every_thread_count_fits_the_workers_private_regions(total, threads):
    share = share_bytes(total, threads)
    assert share % ROUND == 0
    assert share * threads <= max(total, threads * ROUND)
    for worker in range(threads):
        assert region_bytes(total, worker) >= share


@pytest.mark.skipif(not THP.exists(), reason="no transparent huge pages here (macOS, or no /sys)")
def test_a_region_is_eligible_for_huge_pages_where_the_system_grants_them():
    """Python's default mapping is a shared one, which is not. (Whether any are free just now is another matter.)"""
    region = Region(64 * 2**20)
    region.fill(compile_kernels(), 1)
    setting = THP.read_text()
    eligible, inside = None, False
    for line in memory.Path("/proc/self/smaps").read_text(errors="replace").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= region.address < int(found[2], 16)
        elif inside and line.startswith("THPeligible:"):
            eligible = line.split()[1]
    assert eligible == ("0" if "[never]" in setting else "1")
    kind, share = page_mode([region])
    assert 0 <= share <= 1
    assert (kind == "huge") == (share > 0.9)


def test_a_footprint_that_may_lie_in_a_cache_is_doubted():
    assert memory.doubts(2**30, 2**25) == []
    assert "caches is unknown" in memory.doubts(2**30, None)[0]
    assert "only 256 MiB are read" in memory.doubts(2**28, 2**25)[0]


def test_pages_are_counted_from_the_kernels_table(tmp_path):
    region = Region(2**21)
    low, high = region.address, region.address + region.size
    table = tmp_path / "smaps"
    for kilobytes, kind in ((0, "base"), (1024, "base"), (2048, "huge")):
        table.write_text(
            f"{low:x}-{high:x} rw-p 00000000 00:00 0\nAnonHugePages:    {kilobytes} kB\n"
            "7fff0000-7fff1000 rw-p 00000000 00:00 0\nAnonHugePages:    999999 kB\n"
        )
        found, share = page_mode([region], table)
        assert found.startswith(kind)
        assert share == kilobytes / 2048


def test_a_region_without_a_table_is_on_base_pages_of_unknown_share(tmp_path):
    kind, share = page_mode([Region(2**21)], tmp_path / "absent")
    assert kind == f"base {mmap.PAGESIZE // 1024} KiB"
    assert share is None


def test_content_is_random_distinct_and_its_sums_exact():
    a, b = Region(2**21), Region(2**21)
    a.fill(compile_kernels(), 1)
    b.fill(compile_kernels(), 2**40)
    assert not (a.words == b.words).any()
    assert len(numpy.unique(a.words)) == len(a.words)
    assert a.sum(32, 96) == int(a.words[32:128].astype(object).sum()) % 2**64
    assert a.maximum(0, 512) == int(a.words[:512].view(numpy.int32).max())


def test_sums_follow_the_content():
    region = Region(2**21)
    region.fill(compile_kernels(), 1)
    first = region.sum(0, 64)
    region.fill(compile_kernels(), 2)
    assert region.sum(0, 64) != first


@pytest.mark.parametrize("size", [ROUND, 4096, CHUNK, 3 * CHUNK])
def test_chunks_cover_a_share_once(size):
    chunks = Region(4 * CHUNK).chunks(size)
    assert chunks[0][0] == 0
    assert sum(count for _, count in chunks) * 8 == size
    assert all(a[0] + a[1] == b[0] for a, b in itertools.pairwise(chunks))
