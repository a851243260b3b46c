"""Real sweeps of this machine, short ones: what is recorded, and what a busy machine does to it."""

import errno
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from labkit import lock, machine, records
from labkit.atomic import CannotWrite
from labkit.bus import gates, memory, prepare, sweep
from labkit.bus.prepare import QUICK
from labkit.bus.reach import analyse
from labkit.bus.take import take
from labkit.errors import BadInput, NotAvailable, Refused

pytestmark = pytest.mark.slow

SHORT = msgspec.structs.replace(QUICK, window_s=0.02, budget_s=3.0, quiet_s=0.0, seed=11, peak_gbs=1e5)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One short sweep of this machine, recorded and read back."""
    seen = []
    folder = tmp_path_factory.mktemp("data")
    (folder / "reference").mkdir()
    taken = take(SHORT, folder, lambda what, done, planned: seen.append((what, done, planned)))
    return taken, seen


def test_the_run_is_complete_and_says_how_it_was_taken(run):
    taken, _ = run
    header = taken.header
    assert taken.end.status == "complete"
    assert (header.kind, header.primitive, header.parameters["seed"]) == ("measured", "bus", 11)
    assert header.thresholds == gates.THRESHOLDS
    assert (header.bus_peak_gb_per_s, header.bus_peak_source) == (1e5, "declared by --peak-gbs")
    assert header.chip == machine.describe().chip.value
    assert re.fullmatch("[0-9a-f]{64}", header.labkit.source)
    assert header.parameters["footprint_bytes"] >= 2**26
    assert header.state_before["at"] <= header.started_at <= taken.end.finished_at


def test_every_point_is_visited_in_every_repeat_in_an_order_of_its_own(run):
    taken, _ = run
    planned = {(p.op, p.probe, p.kernel, p.store, p.threads) for p in prepare.prepare(SHORT).points}
    orders = {}
    for row in sorted(taken.rows, key=lambda row: row.at):
        orders.setdefault(row.repeat, []).append((row.op, row.probe, row.kernel, row.store, row.threads))
    assert sorted(orders) == list(range(len(orders)))
    assert len(orders) >= 6
    assert all(len(order) == len(set(order)) and set(order) <= planned for order in orders.values())
    # A window whose workers did not start together on a loaded machine leaves no row, but is counted.
    missing = sum(len(planned) - len(order) for order in orders.values())
    assert missing <= taken.header.parameters["windows_lost"]
    assert len({tuple(order) for order in orders.values()}) > 1


def test_every_window_has_its_evidence_and_no_result_is_wrong(run):
    for row in run[0].rows:
        assert row.wrong == 0
        assert row.value > 0
        assert 0 < row.cpu_share <= 1.05
        assert row.overlap >= 0.75
        assert row.bytes_counted > 0
        if row.store == "regular":
            assert row.bytes_bus_model > row.bytes_counted
        if sys.platform == "linux":
            assert row.page_faults is not None


def test_the_rate_is_the_counted_bytes_over_the_window(run):
    for row in run[0].rows:
        assert row.value == pytest.approx(row.bytes_counted / row.window_s / 1e9, rel=1e-6)


def test_progress_tells_what_is_measured(run):
    _, seen = run
    whats = {what for what, _, _ in seen}
    assert "waiting for a quiet machine" in whats
    assert any(what.startswith("copy nontemporal llvm ") for what in whats)
    assert [done for _, done, _ in seen][1:] == list(range(len(seen) - 1))


def test_nothing_of_the_machine_s_owner_is_in_the_file(run):
    text = Path(run[0].path).read_text()
    for secret in (os.uname().nodename, str(Path.home()), str(Path.cwd()), "PATH="):
        if len(secret) > 3:
            assert secret not in text.replace('"source":"/', "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kernels": ("llvm", "avx")}, "--kernels llvm,avx: choose from llvm, numpy"),
        ({"kernels": ()}, "choose from llvm, numpy"),
        ({"threads": (0,)}, "--threads 0"),
        ({"threads": (4096,)}, "--threads 4096"),
        ({"peak_gbs": -5.0}, "peak"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(changes, said, tmp_path):
    with pytest.raises(BadInput, match=said):
        take(msgspec.structs.replace(SHORT, **changes), tmp_path, lambda *_: None)
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has a GPU")
def test_a_gpu_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(NotAvailable, match="no GPU here"):
        take(msgspec.structs.replace(SHORT, gpu=True), tmp_path, lambda *_: None)


def no_code(*_):
    raise NotAvailable("the read kernel cannot be compiled here: no executable memory")


def test_where_no_code_can_be_generated_numpy_is_left_and_the_run_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare.kernels, "compile_kernels", no_code)
    taken = take(msgspec.structs.replace(SHORT, threads=(1,)), tmp_path, lambda *_: None)
    assert {row.kernel for row in taken.rows} == {"numpy"}
    assert not any(row.wrong for row in taken.rows)
    verdict = analyse(taken).verdict
    assert verdict.status != "ok"
    assert "cannot be compiled here: no executable memory" in str(verdict)
    with pytest.raises(NotAvailable, match="cannot be compiled"):
        prepare.prepare(msgspec.structs.replace(SHORT, kernels=("llvm",)))


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(CannotWrite, match="pass --data-dir"):
        take(SHORT, tmp_path, lambda *_: pytest.fail("measured"))


def test_memory_that_cannot_be_had_is_told_and_is_no_lost_window(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(memory.mmap, "mmap", full)
    with pytest.raises(Refused, match="MiB of memory cannot be had: Cannot allocate memory"):
        take(SHORT, tmp_path, lambda *_: None)


def test_two_measurements_at_once_are_refused(tmp_path):
    with lock.measuring_lock(), pytest.raises(Refused, match="measuring already"):
        take(SHORT, tmp_path, lambda *_: None)


def test_an_interrupted_sweep_keeps_its_whole_repeats_and_says_so(tmp_path):
    def interrupt(what, done, planned):
        if done == planned // 10 * 4 + 3:  # in the third repeat, the first having warmed up
            raise KeyboardInterrupt

    taken = take(SHORT, tmp_path, interrupt)
    assert (taken.end.status, taken.end.reason) == ("partial", "interrupted")
    assert {row.repeat for row in taken.rows} == {0, 1, 2}
    points = len(prepare.prepare(SHORT).points)
    assert 3 * points - taken.header.parameters["windows_lost"] <= len(taken.rows) <= 3 * points


def test_a_sweep_interrupted_at_once_leaves_no_file(tmp_path):
    def interrupt(what, done, planned):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(Refused, match="nothing was measured"):
        take(SHORT, tmp_path, interrupt)
    assert not list(tmp_path.rglob("*.jsonl"))


def labkit(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "labkit", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_a_busy_machine_gives_no_plain_number(tmp_path):
    """Two spinning processes a CPU: the verdict must say so, whatever the numbers look like."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        time.sleep(0.5)
        cpus = str(machine.describe().usable_cpus.value)
        short = ("--quick", "--budget", "1", "--wait", "0", "--threads", cpus)
        process = labkit("bus", *short, "--data-dir", str(tmp_path))
        out, err = process.communicate(timeout=120)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert process.returncode == 1, err
    last = out[out.rindex("Verdict") :]
    assert re.match(r"Verdict (unreliable|refused): ", last)
    assert re.search(r"busy|other work|waited|valid|count", last)


INTERRUPTED = """
import os, signal, sys
import msgspec
from labkit.bus import prepare
from labkit.bus.sweep import Session
from labkit.cli import main

measure = Session.measure

def interrupted(self, point, repeat):
    value = measure(self, point, repeat)
    if repeat == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return value

Session.measure = interrupted
prepare.QUICK = msgspec.structs.replace(prepare.QUICK, quiet_s=0.0)
main()
"""


@pytest.mark.parametrize("command", [("bus", "--quick", "--threads", "1"), ("run", "--measure")])
def test_ctrl_c_leaves_a_partial_record_and_says_so(command, tmp_path):
    folders = ("--data-dir", str(tmp_path), *(("--figures-dir", str(tmp_path)) if command[0] == "run" else ()))
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *command, *folders], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "interrupted; what was measured is kept as partial" in done.stderr
    (path,) = (tmp_path / "runs").rglob("*.jsonl")
    run = records.read_run(path)
    assert run.end.status == "partial"
    assert {row.repeat for row in run.rows} == {0, 1}
    assert not list(tmp_path.glob("*/*.done.json"))


def test_json_holds_every_series(tmp_path):
    short = ("--quick", "--budget", "1", "--wait", "0", "--threads", "1", "--kernels", "llvm")
    process = labkit("bus", *short, "--json", "--data-dir", str(tmp_path))
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 1), err
    series = json.loads(out)
    assert {"read", "copy", "triad"} <= {one["op"] for one in series}
    assert {one["verdict"] for one in series} <= {"ok", "unreliable", "refused"}
    assert all(one["median"] is None for one in series if one["verdict"] == "refused")


def test_a_point_is_told_in_words():
    from labkit.bus.plan import Point

    assert sweep.describe(Point("knee", "read", "llvm", 2, "all", 1)) == "read llvm 2 threads (knee)"
    assert sweep.describe(Point("sweep", "a+b", "mlx", 0, "gpu", 1, engine="gpu")) == "a+b mlx gpu"
