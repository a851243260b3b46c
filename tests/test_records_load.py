"""Measured and published values come through one door."""

import csv
import shutil

import pytest

from labkit import project, records
from labkit.records import Header, Row
from labkit.records.published import read_published


def measured(folder, **changes):
    fields = {"schema": 1, "run_id": records.new_run_id("bus"), "primitive": "bus", "kind": "measured"}
    header = Header(**{**fields, "chip": "Test Chip", "machine": "m", **changes})
    return records.write(folder, header, [Row(quantity="read_bandwidth", value=33.0, unit="GB/s", repeat=0, threads=2)])


@pytest.fixture
def data(tmp_path):
    shutil.copytree(project.reference_dir(), tmp_path / "reference")
    return tmp_path


def test_the_published_bus_figures_are_those_of_their_source(data):
    frame = records.load(data, kind="published").frame
    cpu = frame[(frame["engine"] == "cpu") & (frame["probe"] == "sweep")]
    best = cpu.groupby("chip")["value"].max()
    assert best["Apple M4 Pro"] == 249.5
    assert best["Apple M5 Max"] == 303.8
    assert set(frame["kind"]) == {"published"}
    assert frame["source"].notna().all()
    assert dict(zip(frame["chip"], frame["bus_peak_gb_per_s"], strict=True)) == {
        "Apple M4 Pro": 273.0,
        "Apple M5 Max": 614.0,
    }
    assert dict(zip(frame["chip"], frame["gpu_cores"], strict=True)) == {"Apple M4 Pro": 20, "Apple M5 Max": 40}


def test_every_line_of_the_published_files_is_there(data):
    frame = records.load(data, kind="published").frame
    lines = {
        name: len((data / "reference" / f"{name}.csv").read_text().splitlines()) - 1
        for name in ("membw_cpu", "membw_gpu")
    }
    assert (frame["run_id"].str.startswith("published-membw_cpu")).sum() == lines["membw_cpu"] == 36
    assert (frame["run_id"].str.startswith("published-membw_gpu")).sum() == lines["membw_gpu"] == 8
    contention = frame[frame["run_id"].str.startswith("published-contention")]
    assert len(contention) == 18 * 4 + 4  # four rates a line, and an aggregate on each of the four summaries


def test_missing_stays_missing_and_whole_numbers_stay_whole(data):
    measured(data)
    frame = records.load(data).frame
    assert str(frame["threads"].dtype) == "Int64"
    assert str(frame["value"].dtype) == "Float64"
    gpu = frame[frame["engine"] == "gpu"]
    assert gpu["cpu_share"].isna().all()
    assert not (frame["cpu_share"] == 0).any()


def test_runs_are_chosen_by_chip_primitive_and_kind(data):
    measured(data)
    assert set(records.load(data, chip="Test Chip").frame["kind"]) == {"measured"}
    assert records.load(data, chip="Test Chip", kind="published").frame.empty
    assert records.load(data, primitive="collective").frame.empty
    assert records.chips(data) == ["Apple M4 Pro", "Apple M5 Max", "Test Chip"]


def test_an_unfinished_file_is_ignored_and_reported(data):
    whole = measured(data)
    cut = whole.with_name("cut.jsonl")
    cut.write_bytes(whole.read_bytes()[:-40])
    loaded = records.load(data, chip="Test Chip")
    assert len(loaded.runs) == 1
    (ignored,) = loaded.ignored
    assert ignored.path == f"runs/test-chip/{cut.name}"  # names no folder of this machine
    assert "no end line" in ignored.reason


def test_what_is_not_in_a_chip_s_folder_is_reported_and_hidden_files_are_the_system_s(data):
    whole = measured(data)
    (data / "runs" / "stray.jsonl").write_bytes(whole.read_bytes())
    whole.with_name("._copy.jsonl").write_bytes(b"AppleDouble")
    loaded = records.load(data)
    assert loaded.ignored == (("runs/stray.jsonl", "not in a chip's folder"),)
    assert len([run for run in loaded.runs if run.header.kind == "measured"]) == 1


def test_a_damaged_file_is_an_error_that_names_it(data):
    whole = measured(data)
    whole.write_bytes(whole.read_bytes().replace(b"33.0", b"34.0"))
    with pytest.raises(records.BadRecord, match=rf"{whole.name}, line 3: sha256.*restore the file, or move it"):
        records.load(data)


def test_a_fingerprint_changes_with_its_chips_data_alone(data):
    before = {chip: records.fingerprint(data, chip) for chip in ("Apple M4 Pro", "Test Chip", None)}
    measured(data)
    assert records.fingerprint(data, "Apple M4 Pro") == before["Apple M4 Pro"]
    assert records.fingerprint(data, "Test Chip") != before["Test Chip"]
    assert records.fingerprint(data) != before[None]


def edit(path, change):
    lines = list(csv.reader(path.read_text().splitlines()))
    change(lines)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(lines)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("membw_cpu", lambda lines: lines[0].__setitem__(5, "GB_s"), r"membw_cpu.csv, line 1: the columns are"),
        ("membw_cpu", lambda lines: lines[4].__setitem__(5, "fast"), r"membw_cpu.csv, line 5: .*gb_per_s"),
        ("membw_cpu", lambda lines: lines[4].__setitem__(5, ""), r"membw_cpu.csv, line 5: .*gb_per_s"),
        ("membw_cpu", lambda lines: lines[4].__setitem__(5, "-3"), r"membw_cpu.csv, line 5: .*gb_per_s"),
        ("membw_cpu", lambda lines: lines[2].pop(), r"membw_cpu.csv, line 3: 8 cells for 9 columns"),
        ("membw_gpu", lambda lines: lines[1].__setitem__(3, "two"), r"membw_gpu.csv, line 2: .*reads"),
        ("contention", lambda lines: lines[1].__setitem__(3, "total"), r"contention.csv, line 2: .*row"),
        ("chips", lambda lines: lines[3].__setitem__(4, "many"), r"chips.csv, line 4: .*gpu_cores"),
    ],
)
def test_a_wrong_published_file_is_named_with_line_and_column(data, name, change, said):
    edit(data / "reference" / f"{name}.csv", change)
    with pytest.raises(records.BadRecord, match=said):
        read_published(data / "reference")


def test_bins_of_one_chip_are_told_apart_by_their_gpu_cores():
    bins = {(chip.chip, chip.gpu_cores): chip.bus_peak_gb_per_s for chip in records.read_chips()}
    assert bins["Apple M4 Max", 32] == 410
    assert bins["Apple M4 Max", 40] == 546
    assert bins["Apple M5 Max", 32] is None  # not found in any source: unknown, not guessed
