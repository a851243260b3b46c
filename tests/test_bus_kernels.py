"""The kernels do what they say, on every byte, and are built for the bus and not for themselves."""

import re

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.bus import kernels
from labkit.bus.kernels import GOLDEN, MIX_1, MIX_2, PER_ROUND, ROUND


@pytest.fixture(scope="module")
def built():
    return kernels.compile_kernels()


def aligned(words):
    """Words of memory at an address that is a multiple of ROUND."""
    whole = numpy.zeros(words + PER_ROUND, numpy.uint64)
    skip = -whole.ctypes.data % ROUND // 8
    return whole[skip : skip + words]


def splitmix(counters):
    """The reference generator, in numpy."""
    with numpy.errstate(over="ignore"):
        z = (counters + numpy.uint64(1)) * numpy.uint64(GOLDEN)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(MIX_1)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(MIX_2)
        return z ^ (z >> numpy.uint64(31))


@given(st.integers(0, 2**64 - 1), st.integers(1, 6))
@settings(max_examples=40)
def test_filling_gives_the_reference_random_numbers(first, rounds):
    target = aligned(rounds * PER_ROUND)
    kernels.compile_kernels().fill(target.ctypes.data, len(target), first)
    counters = (numpy.arange(len(target)).astype(object) + first) % 2**64
    assert (target == splitmix(counters.astype(numpy.uint64))).all()


def test_the_first_numbers_are_the_published_ones(built):
    """splitmix64 from seed 1234567: the values given with Vigna's reference code and by Rosetta Code."""
    target = aligned(PER_ROUND)
    # Our counter is multiplied by GOLDEN; the reference adds GOLDEN to its seed. They meet where seed = k * GOLDEN.
    first = 1234567 * pow(GOLDEN, -1, 2**64) % 2**64
    built.fill(target.ctypes.data, len(target), first)
    assert target[:3].tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=40)
def test_reading_gives_the_exact_sum_of_every_pass(first, rounds, passes):
    built = kernels.compile_kernels()
    source = aligned(rounds * PER_ROUND)
    built.fill(source.ctypes.data, len(source), first)
    exact = int(source.astype(object).sum()) * passes % 2**64
    assert built.read(source.ctypes.data, len(source), passes) == exact


def test_a_change_of_any_single_byte_is_seen(built):
    """Every byte is loaded: flip each in turn, and the sum moves by just that much."""
    source = aligned(8 * PER_ROUND)
    built.fill(source.ctypes.data, len(source), 3)
    before = built.read(source.ctypes.data, len(source), 1)
    raw = source.view(numpy.uint8)
    for place in range(len(raw)):
        raw[place] ^= 0x5A
        change = (int(raw[place]) - int(raw[place] ^ 0x5A)) << 8 * (place % 8)
        assert built.read(source.ctypes.data, len(source), 1) == (before + change) % 2**64, place
        raw[place] ^= 0x5A


@pytest.mark.parametrize("store", ["regular", "nontemporal"])
def test_copy_and_triad_write_every_word_and_nothing_else(built, store):
    words = 16 * PER_ROUND
    b, c = aligned(words), aligned(words)
    built.fill(b.ctypes.data, words, 1)
    built.fill(c.ctypes.data, words, 2)
    for kernel, sources, expected in (
        (built.copy[store], (b,), b),
        (built.triad[store], (b, c), b + numpy.uint64(3) * c),
    ):
        target = aligned(words + 2 * PER_ROUND)
        target[:] = 7
        inner = target[PER_ROUND:-PER_ROUND]
        kernel(inner.ctypes.data, *(source.ctypes.data for source in sources), words)
        assert (inner == expected).all()
        assert (target[:PER_ROUND] == 7).all()
        assert (target[-PER_ROUND:] == 7).all()


def function(assembly, name):
    """One function's instructions."""
    found = re.search(rf"^_?{name}:\n(.*?)^\s+\.cfi_endproc", assembly, re.MULTILINE | re.DOTALL)
    return found[1]


def test_on_apple_silicon_reads_use_pairs_of_vectors_and_16_accumulators():
    """Cross-compiled, not run: a vector add takes 2 cycles there, so four accumulators would be the limit."""
    text = kernels.assembly("arm64-apple-macosx14.0", "apple-m1")
    read = function(text, "read_sum")
    assert len(re.findall(r"ldp\s+q", read)) == 8  # 256 bytes a round
    assert len(set(re.findall(r"add\.2d\s+(v\d+), \1,", read))) >= 16
    for name in ("copy_nontemporal", "triad_nontemporal"):
        assert re.search(r"stnp\s+q", function(text, name))
    for name in ("copy_regular", "triad_regular"):
        assert "stnp" not in function(text, name)


def test_on_x86_reads_use_8_accumulators_and_streaming_stores_bypass_the_cache():
    text = kernels.assembly("x86_64-unknown-linux-gnu", "x86-64-v3")
    read = function(text, "read_sum")
    assert len(set(re.findall(r"vpaddq\s+\d*\(%rdi,%rcx,8\), (%ymm\d+)", read))) == 8
    assert len(re.findall(r"prefetcht0", read)) == 4  # one a cache line of a round
    for name in ("copy_nontemporal", "triad_nontemporal"):
        assert re.search(r"vmovnt", function(text, name))
    for name in ("copy_regular", "triad_regular"):
        assert "vmovnt" not in function(text, name)


def test_a_linux_arm_core_gets_the_same_kernel():
    read = function(kernels.assembly("aarch64-unknown-linux-gnu", "neoverse-n1"), "read_sum")
    assert len(re.findall(r"ldp\s+q", read)) == 8


def test_the_read_loop_is_not_hoisted_out_of_its_passes():
    """Repeated passes over one slice must load it again: the inner loop holds the loads."""
    text = kernels.assembly("x86_64-unknown-linux-gnu", "x86-64-v3")
    loop = function(text, "read_sum")
    inner = re.search(r"(\.LBB\d+_2):.*?jb\s+\1", loop, re.DOTALL)[0]
    assert inner.count("vpaddq") == 8
