"""What notebooks show: one subject a machine, and known answers about CPU and GPU together."""

from pathlib import Path

import msgspec
import pytest
from runs import STEADY, good, run, series

from labkit import project, records
from labkit.bus import views

DATA = Path(project.PACKAGE.parent / "data")


@pytest.fixture(scope="module")
def published():
    return views.subjects([r for r in records.read_all(DATA)[0] if r.header.kind == "published"])


def test_a_published_machine_is_one_subject_of_several_files(published):
    assert [(s.chip, s.kind, len(s.gpu), len(s.contention)) for s in published] == [
        ("Apple M4 Pro", "published", 4, 2),
        ("Apple M5 Max", "published", 4, 2),
    ]


def test_cpu_and_gpu_together_are_0_99_to_1_05_of_the_gpu_alone(published):
    frame = views.contention(published)
    assert frame["over_gpu_alone"].round(2).tolist() == [1.05, 1.03, 1.04, 0.99]


def test_every_line_carries_its_kind_and_run(published):
    for frame in (views.curve(published), views.engines(published), views.contention(published)):
        assert set(frame["kind"]) == {"published"}
        assert frame["run_id"].str.startswith("published-").all()
    assert views.contention(published)["run_id"].str.contains("contention").all()


def test_runs_of_one_machine_are_not_pooled_the_newest_complete_one_is_shown():
    def at(hour, status="complete"):
        return run(
            good(rates=(30 + hour, 60.0)), status=status, reason=None if status == "complete" else "interrupted",
            run_id=f"r{hour}", started_at=f"2026-11-30T{hour:02d}:00:00.000+00:00",
        )  # fmt: skip

    (subject,) = views.subjects([at(1), at(3), at(2), at(4, "partial")])
    assert subject.reach.run.header.run_id == "r3"
    assert subject.earlier == 3
    (partial,) = views.subjects([at(4, "partial")])
    assert partial.reach.run.header.run_id == "r4"


def test_two_machines_of_one_chip_stay_two_subjects():
    found = views.subjects([run(good()), run(good(), machine="other", run_id="r2")])
    assert len(found) == 2
    assert len(views.verdicts(found)) == 2


def test_a_refused_series_has_no_point_on_the_curve():
    rows = good(two=series(60, STEADY[:3], threads=2), two_numpy=[])
    frame = views.curve(views.subjects([run(rows)]))
    assert frame["threads"].tolist() == [1]


def test_verdicts_are_told_with_their_reasons_before_any_figure():
    busy = run(good(), before={"unquiet": ["other work uses 90% of the 2 usable CPUs"]}, started_at="2026-11-30T22")
    text = views.told(
        views.subjects([busy, run(good(), run_id="r0")]), [records.Ignored("runs/x/cut.jsonl", "no end line")]
    )
    said = " ".join(text.split())
    assert "0123456789ab: Test Chip (measured): the CPU reads 60.0 GB/s" in said
    assert "Verdict unreliable: before: other work uses 90%" in said
    assert "Earlier runs of it, not shown: 1." in said
    assert "not read: runs/x/cut.jsonl: no end line" in said


def test_stores_show_the_program_s_bytes_and_the_bus_s():
    copies = series(40, quantity="stream_bandwidth", op="copy", store="regular", threads=2)
    line = views.stores(views.subjects([run([*good(), *copies])])).iloc[0]
    assert (line["gb_per_s"], line["bus_model_gb_per_s"]) == (40, 60)


def beside_gpu(together=95.0, wobble=STEADY):
    gpu = {"engine": "gpu", "kernel": "mlx", "op": "sum", "threads": 0, "tier": "gpu", "cpu_share": 0.1}
    both = {"probe": "contention", "threads": 2}
    return [
        *good(),
        *series(90, **gpu),
        *series(50, beside="gpu", **both),
        *series(45, wobble, **{**gpu, **both, "beside": "cpu", "tier": "all"}),
        *series(together, quantity="aggregate_bandwidth", engine=None, op=None, kernel=None, bytes=None, **both),
    ]  # fmt: skip


def test_a_measured_run_finds_its_solo_rates_in_the_sweep():
    (case,) = views.subjects([run(beside_gpu())])[0].contention
    assert case.cpu_alone.median == 60
    assert case.over_gpu_alone == pytest.approx(95 / 90)
    assert case.verdict.status == "ok"


def test_a_sum_above_the_bus_peak_is_refused():
    (case,) = views.subjects([run(beside_gpu(together=130))])[0].contention
    assert case.verdict.status == "refused"
    assert case.over_gpu_alone is None
    assert views.contention(views.subjects([run(beside_gpu(together=130))])).empty


def test_a_wide_spread_beside_the_gpu_is_unreliable():
    wide = (0.7, 1, 1.05, 1, 0.98, 1, 0.9, 1, 1.1)
    (case,) = views.subjects([run(beside_gpu(wobble=wide))])[0].contention
    assert case.verdict.status == "unreliable"
    assert "gpu beside cpu: spread 40%" in str(case.verdict)


def test_what_speaks_against_a_part_speaks_against_the_whole():
    rows = [
        msgspec.structs.replace(row, pressure=0.5) if (row.engine, row.beside) == ("cpu", "gpu") else row
        for row in beside_gpu()
    ]
    (case,) = views.subjects([run(rows)])[0].contention
    assert case.verdict.status == "unreliable"
    assert "cpu beside gpu: tasks waited for a CPU" in str(case.verdict)


def test_a_starved_window_is_in_no_sum_either():
    rows = [
        msgspec.structs.replace(row, cpu_share=0.5) if row.beside != "cpu" and row.repeat < 4 else row
        for row in beside_gpu()
    ]
    (case,) = views.subjects([run(rows)])[0].contention
    assert len(case.together.values) == len(case.cpu_beside.values) == 5
    assert case.verdict.status == "refused"


def test_contention_is_found_for_whichever_kernel_took_it():
    rows = [msgspec.structs.replace(row, kernel="numpy") if row.kernel == "llvm" else row for row in beside_gpu()]
    rows = [row for row in rows if row not in good()]
    assert views.subjects([run([*series(60, threads=2, kernel="numpy"), *rows])])[0].contention


def test_an_impossible_headline_is_in_no_figure():
    found = views.subjects([run(beside_gpu(), bus_peak_gb_per_s=50.0)])
    assert 60.0 not in views.curve(found)["gb_per_s"].tolist()
    assert "CPU, 2 threads" not in views.engines(found).get("engine", [])


def test_machines_measured_hours_apart_are_not_compared_silently(published):
    assert views.comparability(published).startswith("Confounded")
    assert views.comparability(views.subjects([run(good()), run(good(), machine="other", run_id="r2")])).startswith(
        "All"
    )
