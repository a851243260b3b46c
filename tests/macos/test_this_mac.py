"""What only a Mac can show. Skipped elsewhere; the README lists it as not yet run until somebody has."""

import sys
import threading

import msgspec
import pytest

from labkit import machine
from labkit.bus import gpu, kernels, placement
from labkit.bus.prepare import QUICK
from labkit.bus.take import take
from labkit.windows import together

pytestmark = pytest.mark.skipif(sys.platform != "darwin", reason="needs macOS on Apple silicon")


def test_the_machine_names_itself_its_tiers_and_its_bus():
    here = machine.describe()
    assert here.chip.value.startswith("Apple M")
    assert len(here.tiers) >= 1
    assert all(tier.physical_cores for tier in here.tiers)
    assert here.machine.value
    assert here.gpu_cores.value or here.virtual.value  # a virtual Mac need not name its GPU
    assert here.bus_peak_gb_per_s.value or here.bus_peak_gb_per_s.source


def test_the_state_names_power_source_and_thermal_level():
    now = machine.state()
    assert now.power_source in ("AC", "battery", "UPS") or now.sources["power_source"]
    assert now.thermal_level is not None


@pytest.mark.parametrize("name", list(placement.QOS_CLASSES))
def test_a_qos_class_is_taken_by_the_thread_and_read_back(name):
    failures = []

    def work():
        try:
            placement.settle(placement.Tier(name, qos=placement.QOS_CLASSES[name]), 0)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []


def test_a_thread_knows_its_cpu_and_the_cpus_know_their_clusters():
    assert placement.current_cpu() is not None
    assert machine.core_types() or machine.describe().virtual.value


def test_the_kernels_compile_and_the_gpu_answers_exactly():
    assert kernels.compile_kernels()
    bench = gpu.GpuBench(2**28, seed=1)
    together({"gpu": [bench.opener("sum")]}, 0.1)
    assert bench.wrong == 0


def test_a_quick_sweep_holds_cpu_gpu_and_both(tmp_path):
    run = take(msgspec.structs.replace(QUICK, budget_s=10.0), tmp_path, lambda *_: None)
    seen = {(row.engine, row.beside) for row in run.rows}
    assert {("cpu", None), ("gpu", None), ("cpu", "gpu"), ("gpu", "cpu")} <= seen
    assert not any(row.wrong for row in run.rows)
