"""The batch with real kernels: each failure by itself, nothing believed that is not proved, nothing left behind."""

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import tiny

from labkit import batch, figures, project
from labkit.batch.scratch import place as scratch_place
from labkit.batch.scratch import scratch

pytestmark = pytest.mark.slow

# One notebook, a different end for every chip.
FAULTS = f"""\
import os, signal, sys
if chip == "{tiny.M4}":
    from labkit.errors import Refused
    raise Refused("not on this chip")
if chip == "{tiny.M5}":
    os.kill(os.getpid(), signal.SIGKILL)
if chip == "{tiny.BENCH}":
    sys.exit(0)
"""
# Notes the kernel that runs it, then waits for a file called `go`.
HANGS = """\
import os, time
from pathlib import Path
Path(f"pid-{os.getpid()}").touch()
while not Path("go").exists():
    time.sleep(0.05)
"""
# Somebody saves the notebook while it runs.
EDITS = """\
from pathlib import Path
path = Path("notebooks/43_edited.ipynb")
path.write_text(path.read_text().replace("lab.finish()", "lab.finish()  # edited"))
"""
COUNTS = """\
with open("count.txt", "a") as file:
    file.write(f"{chip}\\n")
"""
RUN = """\
import sys
from labkit import batch
report = batch.run(chips=sys.argv[1:], jobs=1)
print(report)
sys.exit(report.exit_code)
"""
LIGHT = """\
import sys
from labkit import batch
report = batch.run(["10_good"], progress=False)
heavy = {"pandas", "numpy", "matplotlib", "papermill", "nbformat", "IPython", "rich", "psutil"} & set(sys.modules)
print(report.count("done"), sorted(heavy))
"""


def start(folder, *chips, **options):
    """A batch of all notebooks for `chips` in a process of its own, one run at a time."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *chips], cwd=folder, text=True, stdout=subprocess.PIPE, **options
    )


def wait_for(condition, what, seconds=60):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def relatives():
    return {process.pid for process in psutil.Process().children(recursive=True)}


def scratch_folders():
    return set(scratch_place().glob("labkit-*/.labkit-batch"))


def place(folder, chip):
    return folder / "figures" / project.slug(chip)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """One batch of good and bad notebooks: the folder, the report by pair, and what was alive before."""
    folder = tiny.make_project(tmp_path_factory.mktemp("mixed"))
    tiny.good_notebook(folder, "10_good")
    tiny.notebook(folder, "30_faults", tiny.entering("30_faults"), FAULTS, tiny.FINISHING)
    tiny.notebook(folder, "40_unmarked", tiny.entering("40_unmarked"), "1 + 1", scope="once")
    tiny.notebook(folder, "41_misnamed", tiny.entering("40_unmarked"), tiny.FINISHING, scope="once")
    tiny.notebook(folder, "42_kills_worker", "import os\nos.kill(os.getppid(), 9)\nos.sched_yield()", scope="once")
    tiny.notebook(folder, "43_edited", EDITS, tiny.entering("43_edited"), tiny.FINISHING, scope="once")
    before = relatives()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = batch.run(progress=False, jobs=2)
    return folder, {(result.notebook, result.chip): result for result in report.results}, report, before


def test_good_runs_complete_among_failing_ones(mixed):
    folder, results, report, _ = mixed
    for chip in (tiny.M4, tiny.M5, tiny.BENCH):
        assert results["10_good", chip].status == "done"
        assert figures.provenance_of(place(folder, chip) / "table_10_good.json").parameters["chip"] == chip
        assert (place(folder, chip) / "10_good.ipynb").is_file()
    assert report.exit_code == 1
    assert {result.notebook for result in report.failed} == {
        "30_faults", "40_unmarked", "41_misnamed", "42_kills_worker", "43_edited"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("chip", "reason"),
    [
        (tiny.M4, "Refused: not on this chip"),
        (tiny.M5, "the kernel died (killed, or out of memory)"),
        (tiny.BENCH, "SystemExit: 0"),
    ],
)
def test_a_failing_cell_is_named_with_its_line_and_reason(mixed, chip, reason):
    folder, results, _, _ = mixed
    failed = results["30_faults", chip]
    # Title, parameters, entry, faults: the cell that papermill injects is not the reader's.
    assert (failed.status, failed.cell, failed.line) == ("failed", 4, "import os, signal, sys")
    assert failed.reason == reason
    assert not (place(folder, chip) / "30_faults.done.json").exists()
    assert not (place(folder, chip) / "30_faults.ipynb").exists()


def test_the_copy_of_a_failed_run_holds_the_error(mixed):
    folder, _, _, _ = mixed
    copy = json.loads((place(folder, tiny.M4) / "30_faults.failed.ipynb").read_text())
    [error] = [o for cell in copy["cells"] for o in cell.get("outputs", ()) if o["output_type"] == "error"]
    assert error["traceback"] == ["Refused: not on this chip"]


def test_a_run_without_its_own_end_mark_is_no_success(mixed):
    _, results, _, _ = mixed
    assert "without its end mark: let lab.finish() be its last line" in results["40_unmarked", "all"].reason
    assert results["41_misnamed", "all"].status == "failed"


def test_code_that_changed_under_a_run_is_no_success(mixed):
    _, results, _, _ = mixed
    assert "its kernel saw other code than the batch" in results["43_edited", "all"].reason


def test_a_killed_worker_fails_its_own_run_only_and_takes_its_kernel_with_it(mixed):
    _, results, _, before = mixed
    lost = results["42_kills_worker", "all"]
    assert (lost.status, lost.cell) == ("failed", 3)
    assert "killed (SIGKILL)" in lost.reason
    assert relatives() <= before


def test_nothing_is_left_behind(mixed):
    folder, _, _, _ = mixed
    assert not list((folder / "figures").glob("*/.10_good.run"))
    kernels = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]
    assert not [c for c in kernels if "ipykernel_launcher" in c and str(folder) in " ".join(c)]
    assert not list(folder.rglob("*.tmp"))


def test_the_executed_copy_names_no_folder_of_this_machine_and_no_time(mixed):
    folder, _, _, _ = mixed
    copy = (place(folder, tiny.M4) / "10_good.ipynb").read_text()
    assert str(folder) not in copy
    assert '"figures_dir = \\"figures\\"\\n"' in copy
    assert "papermill" not in json.loads(copy)["metadata"]
    assert "start_time" not in copy
    assert ".run" not in copy


def test_what_is_done_is_skipped_and_new_data_rerun_only_their_chip(mixed, monkeypatch):
    folder, _, _, _ = mixed
    monkeypatch.chdir(folder)
    again = batch.run(["10_good"], progress=False)
    assert [(r.status, r.reason) for r in again.results] == [("skipped", "unchanged")] * 3
    said = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True).stdout
    assert said == "0 []\n", "what is heavy is not loaded only to find that nothing changed"
    tiny.measure(folder, 103.0)
    untouched = {chip: tiny.digests(place(folder, chip)) for chip in (tiny.M4, tiny.M5)}
    again = batch.run(["10_good"], progress=False)
    assert [(r.chip, r.status, r.reason) for r in again.results] == [
        (tiny.M4, "skipped", "unchanged"),
        (tiny.M5, "skipped", "unchanged"),
        (tiny.BENCH, "done", "changed: data"),
    ]
    assert {chip: tiny.digests(place(folder, chip)) for chip in untouched} == untouched


def test_a_notebook_that_breaks_keeps_the_figures_of_its_last_good_run_but_is_not_done(mixed, monkeypatch):
    folder, _, _, _ = mixed
    monkeypatch.chdir(folder)
    tiny.good_notebook(folder, "11_later")
    assert batch.run(["11_later"], [tiny.M4], progress=False).exit_code == 0
    before = tiny.digests(place(folder, tiny.M4))
    # It saves its table, another one, and then fails.
    tiny.notebook(
        folder, "11_later", tiny.entering("11_later"), tiny.SAVING.format(table="table_11_later"),
        tiny.SAVING.format(table="half"), "1 / 0", tiny.FINISHING,
    )  # fmt: skip
    [failed] = batch.run(["11_later"], [tiny.M4], progress=False).results
    assert (failed.cell, failed.reason) == (6, "ZeroDivisionError: division by zero")
    after = tiny.digests(place(folder, tiny.M4))
    assert set(after) - set(before) == {"11_later.failed.ipynb"}
    assert set(before) - set(after) == {"11_later.done.json"}
    assert all(after[name] == before[name] for name in set(before) & set(after))
    # Mended, and without its old table: that goes, and so does the copy of the failure.
    tiny.notebook(folder, "11_later", tiny.entering("11_later"), tiny.SAVING.format(table="whole"), tiny.FINISHING)
    assert batch.run(["11_later"], [tiny.M4], progress=False).exit_code == 0
    names = set(tiny.digests(place(folder, tiny.M4)))
    assert "whole.csv" in names
    assert not names & {"half.csv", "11_later.failed.ipynb"}


def test_two_notebooks_that_save_one_name_are_both_failed(mixed, monkeypatch):
    folder, _, _, _ = mixed
    monkeypatch.chdir(folder)
    for name in ("50_one", "51_two"):
        tiny.notebook(folder, name, tiny.entering(name), tiny.SAVING.format(table="same"), tiny.FINISHING)
    report = batch.run(["50_one", "51_two"], [tiny.M4], progress=False)
    assert [result.status for result in report.results] == ["failed", "failed"]
    assert "saves same.csv, and so does 51_two" in report.results[0].reason


def test_a_cell_that_never_ends_is_ended_and_named(mixed, monkeypatch):
    folder, _, _, _ = mixed
    monkeypatch.chdir(folder)
    tiny.notebook(folder, "60_endless", "import time\ntime.sleep(600)", scope="once")
    [failed] = batch.run(["60_endless"], progress=False, cell_timeout_s=1).results
    assert (failed.cell, failed.reason) == (3, "no end after 1 s")


def test_a_killed_batch_leaves_no_process_and_the_next_one_does_only_what_is_missing(tmp_path, monkeypatch):
    folder = tiny.make_project(tmp_path)
    tiny.good_notebook(folder, "10_quick")
    tiny.good_notebook(folder, "20_hangs", HANGS, scope="once")
    killed = start(folder, tiny.M4, "all")
    wait_for(lambda: list(folder.glob("pid-*")), "the hanging notebook")
    offspring = psutil.Process(killed.pid).children(recursive=True)
    kernel = int(next(folder.glob("pid-*")).name.removeprefix("pid-"))
    assert kernel in {process.pid for process in offspring}
    held = scratch_folders()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    _, alive = psutil.wait_procs(offspring, timeout=10)
    assert alive == []

    (folder / "go").touch()
    monkeypatch.chdir(folder)
    report = batch.run(chips=[tiny.M4, "all"], progress=False)
    assert [(r.notebook, r.status, r.reason) for r in report.results] == [
        ("10_quick", "skipped", "unchanged"),
        ("20_hangs", "done", "not done yet"),
    ]
    assert not held & scratch_folders(), "the folder of the killed batch is still there"
    assert not list((folder / "figures").glob("*/.*.run"))


def test_two_batches_at_once_share_the_work(tmp_path):
    folder = tiny.make_project(tmp_path)
    tiny.good_notebook(folder, "10_counts", COUNTS)
    batches = [start(folder, tiny.M4, tiny.M5) for _ in range(2)]
    said = [process.communicate()[0] for process in batches]
    assert [process.returncode for process in batches] == [0, 0], said
    assert sorted((folder / "count.txt").read_text().splitlines()) == [tiny.M4, tiny.M5]
    results = [line.split()[0] for text in said for line in text.splitlines() if line.startswith(("done", "skipped"))]
    assert sorted(results) == ["done", "done", "skipped", "skipped"]


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_full_disk_fails_the_run_with_one_sentence_and_leaves_what_was_there(tmp_path, monkeypatch):
    folder = tiny.make_project(tmp_path)
    large = 'big = frame.head(1)[["kind"]].loc[[0] * 30000]\nlab.save_table(big, "big", of=frame)'
    tiny.notebook(folder, "10_big", tiny.entering("10_big"), "frame = lab.records.frame", large, "lab.finish()")
    place(folder, tiny.M4).mkdir(parents=True)
    (place(folder, tiny.M4) / "big.csv").write_text("earlier")
    done = start(folder, tiny.M4, preexec_fn=small_files)
    said, _ = done.communicate()
    assert done.returncode == 1
    assert "failed  10_big, Apple M4 Pro, cell 5 (`big = " in said
    assert "no space left" in said
    assert (place(folder, tiny.M4) / "big.csv").read_text() == "earlier"


def test_a_scratch_folder_in_use_is_not_swept_and_an_abandoned_one_is():
    abandoned = Path(tempfile.mkdtemp(prefix="labkit-", dir=scratch_place()))
    (abandoned / ".labkit-batch").touch()
    with scratch() as mine:
        assert not abandoned.exists()
        assert len(str(mine)) < 70, "sockets inside would have too long a path"
        with scratch():
            assert mine.is_dir()
    assert not mine.exists()
