"""What a worker does at a point is the work that the point names, and a wrong result is noticed."""

import sys

import msgspec
import pytest
from runs import POINT

from labkit.bus import gates, kernels, memory
from labkit.bus.placement import Tier
from labkit.bus.work import Bench
from labkit.windows import together

TIER = Tier("all", (0,) if sys.platform == "linux" else (), most=1)
SIZE = 2**28


def bench(**broken):
    """A bench for one worker, with the compiled kernels, some of them replaced."""
    built = msgspec.structs.replace(kernels.compile_kernels(), **broken)
    return Bench(built, lambda worker: memory.region_bytes(SIZE, worker), seed=5)


def point(**changes):
    return msgspec.structs.replace(POINT, **changes)


def work(bench, point, seconds=0.05):
    window = together({"cpu": bench.openers(point, TIER)}, seconds)
    bench.check_written()
    return window.engines["cpu"]


@pytest.mark.parametrize("kernel", ["llvm", "numpy"])
def test_reads_are_right_and_touch_no_new_page(kernel):
    one = bench()
    work(one, point(kernel=kernel))  # fills
    engine = work(one, point(kernel=kernel))
    assert one.wrong == 0
    assert engine.items >= SIZE / 4
    assert engine.page_faults is None or engine.page_faults <= gates.PAGE_FAULTS


@pytest.mark.parametrize("op", ["copy", "triad"])
@pytest.mark.parametrize("store", ["regular", "nontemporal"])
def test_stores_are_right_and_count_loads_and_stores(op, store):
    one = bench()
    openers = one.openers(point(op=op, store=store), TIER)
    step = openers[0]()
    assert step() == {"copy": 2, "triad": 3}[op] * 2**26  # a chunk of 64 MiB
    one.check_written()
    assert one.wrong == 0


@pytest.mark.parametrize("probe", ["ceiling", "scaling"])
def test_a_slice_in_the_cache_is_read_for_as_long_as_a_chunk(probe):
    one = bench()
    step = one.openers(point(probe=probe, bytes=2**14), TIER)[0]()
    assert step() == memory.CHUNK
    assert one.wrong == 0


def test_memory_that_changed_is_a_wrong_result():
    one = bench()
    step = one.openers(point(), TIER)[0]()
    step()
    assert one.wrong == 0
    for region in one.regions:
        region.words[::4096] += 1
    for _ in range(4):
        step()
    assert one.wrong == 4


def test_a_kernel_that_skips_a_part_is_a_wrong_result():
    read = kernels.compile_kernels().read
    one = bench(read=lambda address, words, passes: read(address, words - kernels.PER_ROUND, passes))
    one.openers(point(), TIER)[0]()()
    assert one.wrong == 1


@pytest.mark.parametrize("op", ["copy", "triad"])
def test_a_store_that_writes_nothing_is_a_wrong_result_even_where_an_earlier_one_was_right(op):
    built = kernels.compile_kernels()
    one = bench()
    where = point(op=op, store="regular")
    one.openers(where, TIER)[0]()()
    one.check_written()
    assert one.wrong == 0
    lazy = msgspec.structs.replace(built, copy={"regular": lambda *_: None}, triad={"regular": lambda *_: None})
    one._kernels = lazy
    one.openers(where, TIER)[0]()()
    one.check_written()
    assert one.wrong == 1


def test_a_window_that_was_given_up_does_not_make_the_next_one_wrong():
    one = bench()
    step = one.openers(point(op="copy", store="regular"), TIER)[0]()
    step()
    step()  # two chunks written, and never checked
    one.openers(point(op="triad", store="regular"), TIER)[0]()()  # spoils both, writes one
    one.check_written()
    assert one.wrong == 0
