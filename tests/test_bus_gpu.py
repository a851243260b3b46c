"""The GPU's side, run for real on MLX's CPU device: the same code but for the device."""

import pytest

from labkit.bus import gpu
from labkit.errors import NotAvailable
from labkit.windows import together

mx = pytest.importorskip("mlx.core", reason="MLX is not installed on this platform")

SIZE = 2**24


def test_three_operands_are_an_eighth_of_the_memory_at_most():
    assert gpu.operand_bytes(None) == gpu.operand_bytes(128 * 2**30) == 4 * 2**30
    assert gpu.operand_bytes(24 * 2**30) == 2**30


@pytest.mark.parametrize(("op", "moved"), [("sum", 1), ("max", 1), ("a+b", 3), ("a*2", 2)])
def test_each_op_counts_what_it_reads_and_writes(op, moved):
    bench = gpu.GpuBench(SIZE, seed=1, device=mx.Device(mx.cpu))
    window = together({"gpu": [bench.opener(op)]}, 0.05)
    assert bench.wrong == 0
    assert window.engines["gpu"].items >= SIZE * moved / 2


def test_the_sum_of_random_integers_is_exact_so_a_wrong_one_shows():
    bench = gpu.GpuBench(SIZE, seed=1, device=mx.Device(mx.cpu))
    bench._a = bench._b  # other content than was announced
    for op in ("sum", "a+b", "a*2"):
        before = bench.wrong
        together({"gpu": [bench.opener(op)]}, 0.02)
        assert bench.wrong > before, op


def test_cpu_and_mlx_work_together_and_are_counted_in_one_window():
    import msgspec
    from runs import POINT

    from labkit.bus import kernels, memory
    from labkit.bus.placement import Tier
    from labkit.bus.work import Bench

    bench = gpu.GpuBench(SIZE, seed=1, device=mx.Device(mx.cpu))
    cpu = Bench(kernels.compile_kernels(), lambda worker: memory.region_bytes(2**27, worker), seed=1)
    point = msgspec.structs.replace(POINT, bytes=2**27)
    window = together({"cpu": cpu.openers(point, Tier("all")), "gpu": [bench.opener("sum")]}, 1.0)
    assert set(window.engines) == {"cpu", "gpu"}
    assert min(engine.overlap for engine in window.engines.values()) >= 0.75
    assert (cpu.wrong, bench.wrong) == (0, 0)


@pytest.mark.skipif(mx.metal.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_asking_for_it_is_a_sentence():
    assert not gpu.available()
    with pytest.raises(NotAvailable, match="leave out --gpu"):
        gpu.require()
