"""What the batch will run is decided, and every argument checked, before anything runs."""

import shutil
from pathlib import Path

import pytest
import tiny

from labkit import batch
from labkit.batch import matrix
from labkit.errors import BadInput


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project with three chips, two notebooks per chip and one over all."""
    folder = tiny.make_project(tmp_path)
    tiny.good_notebook(folder, "10_a")
    tiny.notebook(folder, "20_b", parameters=tiny.PARAMETERS + "threads: int = 4  # how many\n")
    tiny.good_notebook(folder, "90_all", scope="once")
    monkeypatch.chdir(folder)
    return folder


def plan(folder, notebooks=None, chips=None, given=None):
    return matrix.plan(folder, folder / "data", folder / "figures", notebooks, chips, given or {}, False, 60)


def pairs(jobs):
    return [(job.notebook, job.chip) for job in jobs]


def keys(folder):
    return {(job.notebook, job.chip): matrix.key_of(job) for job in plan(folder)}


def changed(before, after):
    return {pair for pair in after if before[pair] != after[pair]}


def test_every_notebook_meets_every_chip_and_some_all_chips_once(here):
    chips = [tiny.M4, tiny.M5, tiny.BENCH]
    assert pairs(plan(here)) == [(name, c) for name in ("10_a", "20_b") for c in chips] + [("90_all", "all")]


def test_chosen_chips_leave_out_the_notebooks_over_all_unless_all_is_chosen(here):
    assert pairs(plan(here, chips=[tiny.M5])) == [("10_a", tiny.M5), ("20_b", tiny.M5)]
    assert pairs(plan(here, chips=["all"])) == [("90_all", "all")]
    assert pairs(plan(here, ["notebooks/90_all.ipynb"])) == [("90_all", "all")]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"chips": ["Apple M5 Mex"]}, "no data for chip 'Apple M5 Mex'; did you mean 'Apple M5 Max'.* Test Bench 9"),
        ({"notebooks": ["10_aa"]}, "no notebook '10_aa' in .*; did you mean '10_a'.* Known: 10_a, 20_b, 90_all"),
        ({"notebooks": ["90_all"], "chips": [tiny.M4]}, "nothing to run: 90_all .* need chip 'all'"),
        ({"parameters": {"quik": "true"}}, "10_a has no parameter 'quik'; did you mean 'quick'"),
        ({"parameters": {"threads": "2"}}, "10_a has no parameter 'threads'"),
        ({"parameters": {"quick": "no"}}, "10_a: parameter quick must be true or false .* not 'no'"),
        ({"notebooks": ["20_b"], "parameters": {"threads": "2.5"}}, "20_b: parameter threads must be a whole number"),
        ({"parameters": {"chip": tiny.M4}}, "chip is no parameter to pass here"),
        ({"data_dir": "dato"}, "there is no folder"),
        ({"jobs": 0}, "jobs must be at least 1"),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_is_run(here, arguments, complaint):
    with pytest.raises(BadInput, match=complaint):
        batch.run(**arguments, progress=False)
    assert not (here / "figures").exists()


def test_one_bad_notebook_stops_the_batch_before_it_starts(here):
    tiny.notebook(here, "30_bad", parameters="chip = 1")
    with pytest.raises(BadInput, match=r"30_bad\.ipynb, parameters cell, line 1"):
        batch.run(progress=False)
    assert not (here / "figures").exists()


def test_parameters_arrive_with_their_declared_types(here):
    [job] = plan(here, ["20_b"], [tiny.M4], {"threads": "2", "quick": "True"})
    assert job.parameters == {"threads": 2, "quick": True}


def test_the_key_does_not_depend_on_a_default_passed_by_hand_but_on_any_other_value(here):
    default, same, other = (
        plan(here, ["20_b"], [tiny.M4], given)[0] for given in ({}, {"threads": "4"}, {"threads": 5})
    )
    assert matrix.key_of(default) == matrix.key_of(same) != matrix.key_of(other)


def test_new_data_of_a_chip_concern_its_notebooks_and_those_over_all(here):
    before = keys(here)
    tiny.measure(here, 101.0)
    assert changed(before, keys(here)) == {("10_a", tiny.BENCH), ("20_b", tiny.BENCH), ("90_all", "all")}


def test_a_changed_notebook_concerns_only_itself(here):
    before = keys(here)
    tiny.good_notebook(here, "10_a", "1 + 1")
    assert {name for name, _ in changed(before, keys(here))} == {"10_a"}


def test_a_changed_chips_table_concerns_all(here):
    before = keys(here)
    table = here / "data" / "reference" / "chips.csv"
    table.write_text(table.read_text().replace("M1 family table", "M1 family"))
    assert changed(before, keys(here)) == set(before)


def test_the_same_project_elsewhere_has_the_same_keys(here, tmp_path_factory):
    before = keys(here)
    elsewhere = shutil.copytree(here, tmp_path_factory.mktemp("copied") / "project")
    assert keys(elsewhere) == before


def done(job, **files):
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    matrix.done_path(job).write_bytes(matrix.done_record(job, files))


def test_a_run_is_stale_until_its_record_its_key_and_all_its_outputs_hold(here):
    [job] = plan(here, ["10_a"], [tiny.BENCH])
    assert matrix.why_stale(job) == "not done yet"
    done(job, reach_pdf="figure")
    assert matrix.why_stale(job) is None
    output = Path(job.folder, "reach_pdf")
    output.write_text("edited")
    assert matrix.why_stale(job) == "changed: reach_pdf"
    output.unlink()
    assert matrix.why_stale(job) == "missing: reach_pdf"
    output.write_text("figure")
    tiny.measure(here, 102.0)
    [job] = plan(here, ["10_a"], [tiny.BENCH])
    assert matrix.why_stale(job) == "changed: data"
    matrix.done_path(job).write_bytes(b'{"key": ')
    assert matrix.why_stale(job) == "not done yet"


def test_the_report_says_by_its_exit_code_whether_all_went_well():
    good = batch.Result("10_a", tiny.M4, "done", 1.0, "not done yet")
    bad = batch.Result("10_a", tiny.M5, "failed", 2.0, "ZeroDivisionError: division by zero", 4, "1 / 0")
    assert str(bad) == ("failed  10_a, Apple M5 Max, cell 4 (`1 / 0`): ZeroDivisionError: division by zero [2.0 s]")
    assert batch.Report((good,), 1.0).exit_code == 0
    assert batch.Report((good, bad), 3.0).exit_code == 1
    assert str(batch.Report((good, bad), 3.0)) == "2 notebook runs: 1 done, 0 skipped, 1 failed [3.0 s]"
