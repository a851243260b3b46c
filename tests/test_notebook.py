"""A notebook checks what it is given before it reads anything, saves with provenance, and marks its end."""

import json
import subprocess
import sys

import matplotlib
import pandas
import pytest
import tiny

from labkit import figures, notebook, notebook_file, project, records, source
from labkit.errors import BadInput

ENTRY = {"chip": tiny.M4, "data_dir": "data", "figures_dir": "figures", "quick": False}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project with one notebook per scope; the working folder is where JupyterLab puts it."""
    folder = tiny.make_project(tmp_path)
    tiny.good_notebook(folder, "20_reach")
    tiny.good_notebook(folder, "90_all", scope="once")
    monkeypatch.chdir(folder / "notebooks")
    with matplotlib.rc_context():
        yield folder


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"quick": "no"}, "20_reach: parameter quick must be true or false .* not 'no'"),
        ({"quick": 1}, "parameter quick must be true or false"),
        ({"chip": 4}, "parameter chip must be text, not 4"),
        ({"data_dir": None}, "parameter data_dir must be text"),
        ({"chip": "Apple M4 Pr"}, "no data for chip 'Apple M4 Pr'; did you mean 'Apple M4 Pro'"),
        ({"chip": "PDP-11"}, "Known: Apple M4 Pro, Apple M5 Max, Test Bench 9"),
        ({"chip": "all"}, "no data for chip 'all'"),
        ({"data_dir": "dato"}, "data_dir: there is no folder"),
        ({"figures_dir": "data/reference/chips.csv"}, "figures_dir: cannot create"),
        ({"quik": True}, "does not declare 'quik'; did you mean 'quick'"),
    ],
)
def test_a_wrong_parameter_is_refused_on_entry(here, change, complaint):
    with pytest.raises(BadInput, match=complaint):
        notebook.enter("20_reach", **{**ENTRY, **change})


def test_a_notebook_over_all_chips_takes_no_single_one(here):
    assert notebook.enter("90_all", **{**ENTRY, "chip": "all"}).chip == "all"
    with pytest.raises(BadInput, match="90_all runs once over all chips: chip must be 'all'"):
        notebook.enter("90_all", **ENTRY)


def test_more_parameters_are_checked_against_the_notebooks_own_cell(here):
    tiny.notebook(here, "30_more", parameters=tiny.PARAMETERS + "threads: int = 1  # how many\n")
    assert notebook.enter("30_more", **ENTRY, threads=2).parameters["threads"] == 2
    with pytest.raises(BadInput, match="parameter threads must be a whole number, not '2'"):
        notebook.enter("30_more", **ENTRY, threads="2")
    with pytest.raises(BadInput, match="'threads' is declared but unchecked"):
        notebook.enter("30_more", **ENTRY)


def test_folders_are_meant_from_the_project_and_the_chips_folder_is_made(here):
    lab = notebook.enter("20_reach", **ENTRY)
    assert lab.figures_dir == here / "figures" / "apple-m4-pro"
    assert lab.figures_dir.is_dir()
    assert lab.data_dir == here / "data"


def test_records_are_those_of_the_chip_or_of_all(here):
    one = notebook.enter("20_reach", **{**ENTRY, "chip": tiny.BENCH}).records
    assert set(one.frame["chip"]) == {tiny.BENCH}
    every = notebook.enter("90_all", **{**ENTRY, "chip": "all"}).records
    assert set(every.frame["chip"]) == {tiny.M4, tiny.M5, tiny.BENCH}


def test_a_saved_table_carries_runs_kinds_data_code_and_parameters_but_no_paths(here):
    lab = notebook.enter("20_reach", **{**ENTRY, "chip": tiny.BENCH})
    frame = lab.records.frame
    lab.save_table(frame[["quantity", "value"]], "reach", of=frame)
    assert {path.name for path in lab.saved} == {"reach.csv", "reach.tex", "reach.json"}
    said = figures.provenance_of(lab.figures_dir / "reach.json")
    assert said.notebook == "20_reach"
    assert said.kinds == ("measured",)
    assert said.run_ids == tuple(frame["run_id"].unique())
    assert said.data == records.fingerprint(here / "data", tiny.BENCH)
    assert said.code == notebook_file.read(here / "notebooks" / "20_reach.ipynb").code_hash(source.Tree())
    assert said.parameters == {"chip": tiny.BENCH, "quick": False}


def test_runs_and_kinds_can_be_said_and_must_be_known(here):
    lab = notebook.enter("20_reach", **ENTRY)
    table = pandas.DataFrame({"threads": [1], "value": [2.0]})
    with pytest.raises(BadInput, match="reach: its data have no column 'kind'"):
        lab.save_table(table, "reach")
    lab.save_table(table, "reach", kinds=("model",), run_ids=("r1",))
    said = figures.provenance_of(lab.figures_dir / "reach.json")
    assert (said.kinds, said.run_ids) == (("model",), ("r1",))


def test_a_figure_is_saved_in_the_papers_style(here):
    from matplotlib.figure import Figure

    lab = notebook.enter("20_reach", **ENTRY)
    assert matplotlib.rcParams["pdf.fonttype"] == 42
    data = lab.records.frame[["run_id", "kind", "value"]].head(4)
    fig = Figure(layout="constrained")
    fig.subplots().plot(data["value"].astype(float))
    figures.label_kind(fig, ["published"])
    lab.save(fig, "reach", data=data, caption="Reach")
    assert figures.provenance_of(lab.figures_dir / "reach.pdf").kinds == ("published",)


def test_a_figure_without_data_is_not_drawn_and_that_is_said(here, capsys):
    lab = notebook.enter("20_reach", **ENTRY)
    lab.figure("reach", pytest.fail, lab.records.frame.head(0), caption="Reach")
    assert capsys.readouterr().out == "reach: no figure, because no data of Apple M4 Pro belong in it\n"
    assert lab.saved == []


def test_where_no_notebook_file_is_the_code_is_unknown_and_the_checks_still_hold(here):
    with pytest.raises(BadInput, match="scratch: parameter quick must be true or false"):
        notebook.enter("scratch", **{**ENTRY, "quick": "no"})
    lab = notebook.enter("scratch", **ENTRY)
    lab.save_table(lab.records.frame[["run_id", "kind", "value"]].head(1), "reach")
    assert figures.provenance_of(lab.figures_dir / "reach.json").code is None


def test_finish_lists_what_was_saved(here, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    lab = notebook.enter("20_reach", **ENTRY)
    lab.finish()
    assert capsys.readouterr().out == "20_reach, Apple M4 Pro: saved nothing\n"
    lab.save_table(lab.records.frame[["run_id", "kind", "value"]].head(1), "reach")
    lab.finish()
    assert capsys.readouterr().out == "20_reach, Apple M4 Pro: saved reach.csv, reach.tex, reach.json\n"


PLAIN_PAPERMILL = """
import json, sys
import papermill
for number, parameters in enumerate(json.loads(sys.argv[1])):
    try:
        papermill.execute_notebook("notebooks/20_reach.ipynb", f"out{number}.ipynb", parameters, progress_bar=False)
        print("ran")
    except papermill.PapermillExecutionError as error:
        print(error.ename, error.evalue)
"""


@pytest.mark.slow
def test_plain_papermill_runs_it_and_shows_one_sentence_for_a_wrong_parameter(here):
    runs = [{"chip": tiny.BENCH}, {"quick": "no"}, {"chip": "PDP-11"}]
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_PAPERMILL, json.dumps(runs)], cwd=here, capture_output=True, text=True, check=True
    )
    ran, wrong_type, unknown_chip = done.stdout.splitlines()
    assert ran == "ran", done.stderr
    assert (here / "figures" / project.slug(tiny.BENCH) / "table_20_reach.csv").is_file()
    assert wrong_type.startswith("BadInput 20_reach: parameter quick must be true or false")
    assert unknown_chip.startswith("BadInput 20_reach: there are no data for chip 'PDP-11'. Known: Apple M4 Pro,")
    [trace] = [
        output["traceback"]
        for cell in json.loads((here / "out1.ipynb").read_text())["cells"]
        for output in cell.get("outputs", ())
        if output["output_type"] == "error"
    ]
    assert len(trace) == 1, "a user's mistake shows a sentence, no traceback"
