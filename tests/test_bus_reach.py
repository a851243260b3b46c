"""What a run is taken to say: the headline, its share of the bus, and every reason not to believe it."""

from pathlib import Path

import msgspec
import pytest
from runs import STEADY, good, run, series

from labkit import project, records
from labkit.bus.points import gather
from labkit.bus.reach import analyse, table

TWO_MODES = (0.6, 1.0, 0.61, 1.01, 0.6, 1.0, 0.6, 1.02, 0.99)


def verdict(**changes):
    return analyse(run(good(**changes))).verdict


def test_a_sound_run_is_ok_and_its_best_median_is_the_headline():
    reach = analyse(run(good()))
    assert str(reach.verdict) == "ok"
    assert (reach.best.key.threads, reach.best.median) == (2, 60.0)
    assert reach.single.median == 33.0
    assert reach.share == pytest.approx(0.60)
    assert reach.threads_for_most == 2


def test_the_larger_kernel_s_median_leads_at_each_thread_count():
    reach = analyse(run(good(one_numpy=series(34.0, kernel="numpy"))))
    assert [(s.key.threads, s.key.kernel) for s in reach.curve] == [(1, "numpy"), (2, "llvm")]


def test_the_knee_counts_wherever_the_best_is():
    slow = {"two": series(30, threads=2), "two_numpy": series(30, threads=2, kernel="numpy")}
    half = {"knee": series(60, probe="knee", threads=2, bytes=2**29)}
    found = analyse(run(good(**slow, **half)))
    assert found.best.key.threads == 1
    assert "half the bytes at 2.00 x the rate" in str(found.verdict)


def test_another_tier_neither_spoils_nor_hides_the_main_one():
    """A slow tier whose threads were starved is its own affair; its low rate is no measure of the ceiling."""
    slow = series(10, tier="efficiency", cpu_share=0.4, threads=3) + series(10, tier="efficiency")
    assert str(analyse(run([*good(), *slow])).verdict) == "ok"
    bound = good(ceiling=series(40, probe="ceiling", bytes=2**19))
    assert "only 1.2 x faster" in str(analyse(run([*bound, *slow])).verdict)


def test_a_series_of_few_windows_of_many_is_not_relied_on():
    """What is left when a busy machine spoilt the rest is a selection."""
    rows = series(33, STEADY * 2)
    rows = [msgspec.structs.replace(row, cpu_share=0.5) if row.repeat % 3 else row for row in rows]
    (found,) = gather(run(rows))
    assert found.verdict.status == "unreliable"
    assert "only 6 of 18 repeats count" in str(found.verdict)


def test_fewer_threads_may_be_the_best():
    slow = {"two": series(30, threads=2), "two_numpy": series(30, threads=2, kernel="numpy")}
    half = {"knee": series(30, probe="knee", threads=2, bytes=2**29)}
    reach = analyse(run(good(**slow, **half)))
    assert reach.best.key.threads == 1
    assert reach.threads_for_most == 1


def test_an_unknown_peak_leaves_the_share_unknown_and_not_zero():
    reach = analyse(run(good(), bus_peak_gb_per_s=None))
    assert reach.share is None
    assert reach.share_of(reach.best) is None
    assert reach.verdict.status == "ok"


def test_a_rate_above_the_peak_is_an_error_and_no_result():
    reach = analyse(run(good(), bus_peak_gb_per_s=50.0))
    assert reach.verdict.status == "refused"
    assert "60.6 GB/s, above the bus peak of 50 GB/s" in str(reach.verdict)
    assert reach.share is None
    assert 60.0 not in [s.median for s in reach.series]  # and nobody is shown it either


@pytest.mark.parametrize(
    "more",
    [
        {"quantity": "stream_bandwidth", "op": "copy", "store": "nontemporal", "threads": 2},
        {"engine": "gpu", "op": "sum", "kernel": "mlx", "threads": 0, "tier": "gpu"},
        {"quantity": "aggregate_bandwidth", "engine": None, "op": None, "kernel": None, "probe": "contention"},
    ],
)
def test_any_rate_above_the_peak_throws_doubt_on_all(more):
    found = analyse(run([*good(), *series(130, **more)])).verdict
    assert found.status == "refused"
    assert "130.1 GB/s, above the bus peak" in str(found) or "130.0 GB/s, above the bus peak" in str(found)


def test_a_cache_may_be_faster_than_the_bus():
    assert analyse(run(good(), bus_peak_gb_per_s=61.0)).verdict.status == "ok"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ceiling": series(50, probe="ceiling", bytes=2**19)}, "the kernel may be the limit: only 1.5 x"),
        ({"ceiling": []}, "the kernel's ceiling is unknown"),
        ({"knee": series(70, probe="knee", threads=2, bytes=2**29)}, "llvm reads half the bytes at 1.17 x the rate"),
        ({"knee": [], "knee_numpy": []}, "the size knee is unknown"),
        ({"one_numpy": [], "two_numpy": []}, "no second kernel to check the first against"),
        ({"two": [], "two_numpy": []}, "no rate with 2 threads (no window of theirs counted): the best may lie there"),
        ({"two_numpy": series(50, kernel="numpy", threads=2)}, "kernels disagree: numpy reads 50.0 GB/s"),
        ({"scaling_two": series(250, probe="scaling", bytes=2**15, threads=2)}, "cores are shared: 2 threads do 62%"),
        ({"two": series(60, TWO_MODES, threads=2), "two_numpy": []}, "two modes, around 36.0 and 60.0"),
        (
            {"two": series(60, threads=2, pressure=0.3)},
            "tasks waited for a CPU in 9 of 9 windows (up to 30%, limit 10%)",
        ),
        ({"two": series(60, threads=2, steal=0.2)}, "the hypervisor took CPU time in 9 of 9 windows"),
        (
            {
                "two": series(60, threads=2, cpu_share=0.5),
                "two_numpy": series(60, threads=2, kernel="numpy", cpu_share=0.5),
            },
            "no rate with 2 threads (its threads got 50% of their cores, 97% needed: the machine is busy)",
        ),
    ],
)
def test_a_proof_that_fails_or_is_missing_makes_the_headline_unreliable(changes, said):
    found = verdict(**changes)
    assert found.status == "unreliable"
    assert said in str(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"before": {"unquiet": ["other work uses 90% of the 2 usable CPUs"]}}, "before: other work uses 90%"),
        ({"after": {"power_source": "battery"}}, "power source changed from AC to battery"),
        ({"after": {"thermal_level": 2}}, "thermal level changed from 0 to 2"),
        ({"status": "partial", "reason": "interrupted"}, "partial: interrupted"),
        ({"parameters": {"huge_page_share": 0.4}}, "only 40% of the buffer lies on huge pages"),
        ({"parameters": {"doubts": ["the caches are unknown"]}}, "the caches are unknown"),
        ({"after": {"unquiet": ["other work uses 50% of the 2 usable CPUs"]}}, "after: other work uses 50%"),
    ],
)
def test_the_machine_s_state_can_make_the_headline_unreliable(changes, said):
    found = analyse(run(good(), **changes)).verdict
    assert found.status == "unreliable"
    assert said in str(found)


@pytest.mark.parametrize(
    "bad",
    [{"cpu_share": 0.9}, {"page_faults": 512}, {"wrong": 1}],
)
def test_a_window_without_its_core_with_page_faults_or_a_wrong_result_does_not_count(bad):
    rows = series(33)
    rows[4] = series(20, **bad)[4]
    (found,) = gather(run(rows))
    assert (len(found.values), found.taken) == (8, 9)


def test_unknown_evidence_does_not_speak_against_a_window():
    (found,) = gather(run(series(33, cpu_share=None, page_faults=None, pressure=None, steal=None)))
    assert len(found.values) == 9
    assert found.verdict.status == "ok"


def test_slow_core_figures_taken_on_fast_cores_are_not_relied_on():
    (strayed,) = gather(run(series(33, tier="efficiency", tier_seen="E+P")))
    (kept,) = gather(run(series(33, tier="efficiency", tier_seen="E")))
    (spilt,) = gather(run(series(33, tier="performance", tier_seen="E+P")))
    assert "meant for one tier of cores, ran on E+P" in str(strayed.verdict)
    assert kept.verdict.status == spilt.verdict.status == "ok"


def test_a_wrong_result_refuses_its_series():
    (found,) = gather(run(series(33)[:-1] + series(33, wrong=2)[-1:]))
    assert found.verdict.status == "refused"
    assert "2 wrong results" in str(found.verdict)
    assert found.median is None


def test_without_six_valid_windows_there_is_no_number():
    (found,) = gather(run(series(33, STEADY[:5])))
    assert found.median is None
    assert "only 5 of 5" in str(found.verdict)
    reach = analyse(run(series(33, STEADY[:5])))
    assert reach.verdict.status == "refused"
    assert reach.best is None


def test_stores_never_make_the_headline():
    faster = series(500, quantity="stream_bandwidth", op="copy", store="nontemporal", threads=2)
    assert analyse(run([*good(), *faster])).best.median == 60.0


def published(chip):
    runs, _ = records.read_all(Path(project.PACKAGE.parent / "data"))
    return next(analyse(r) for r in runs if r.header.chip == chip and r.header.run_id.startswith("published-membw_cpu"))


@pytest.mark.parametrize(
    ("chip", "share", "threads", "rate", "one"),
    [("Apple M4 Pro", "91%", 14, 249.5, 89.8), ("Apple M5 Max", "49%", 8, 303.8, 87.8)],
)
def test_the_published_answers_come_out(chip, share, threads, rate, one):
    reach = published(chip)
    assert f"{reach.share:.0%}" == share
    assert (reach.best.key.threads, reach.best.median, reach.single.median) == (threads, rate, one)
    assert reach.verdict.status == "published"


def test_the_table_shows_no_refused_number():
    rows = [*good(), *series(99, STEADY[:3], kernel="third")]
    frame = table(analyse(run(rows))).set_index("kernel")
    assert frame.loc["third", "verdict"] == "refused"
    assert frame.loc["third"][["median", "low", "high", "best", "share"]].isna().all()
