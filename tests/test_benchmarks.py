"""The benchmarks read their peers right, skip an absent one by name, and say no more than their numbers hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import likwid, quickness, ratios, report
from benchmarks.ratios import LABKIT, Reading
from labkit.errors import ChildFailed

ROOT = Path(__file__).resolve().parent.parent
RECORDED = """\
Allocate: Process running on hwthread 0 (Domain N) - Vector length 134217600/1073740800 Offset 0 Alignment 512
--------------------------------------------------------------------------------
LIKWID MICRO BENCHMARK
Test: load_avx
--------------------------------------------------------------------------------
Using 1 work groups
Using 2 threads
--------------------------------------------------------------------------------
Running without Marker API. Activate Marker API with -m on commandline.
--------------------------------------------------------------------------------
Group: 0 Thread 0 Global Thread 0 running on hwthread 0 - Vector length 67108800 Offset 0
Group: 0 Thread 1 Global Thread 1 running on hwthread 1 - Vector length 67108800 Offset 67108800
--------------------------------------------------------------------------------
Cycles:			913021650
CPU Clock:		2596051257
Cycle Clock:		2596051257
Time:			3.516953e-01 sec
Iterations:		32
Iterations per thread:	16
Inner loop executions:	4194300
Size (Byte):		1073740800
Size per thread:	536870400
Number of Flops:	0
MFlops/s:		0.00
Data volume (Byte):	17179852800
MByte/s:		48848.68
Cycles per update:	0.425159
--------------------------------------------------------------------------------
"""
"""What likwid-bench 5.2.2 of Debian 12 printed for load_avx with two threads."""


# --- likwid-bench


def test_a_recorded_run_is_read():
    printed = likwid.parse(RECORDED)
    assert printed.seconds == pytest.approx(0.3516953)
    assert printed.bytes == 16 * 1073740800
    assert printed.rate_gbs == pytest.approx(48.84868)  # its MByte are 1e6 bytes
    assert printed.cpus == (0, 1)


@pytest.mark.parametrize("label", ["Time", "Data volume", "MByte/s"])
def test_a_run_without_a_figure_is_an_error_that_names_it(label):
    cut = "\n".join(line for line in RECORDED.splitlines() if not line.startswith(label))
    with pytest.raises(ChildFailed, match=f"printed no {label}"):
        likwid.parse(cut)


def test_a_rate_that_is_not_volume_over_time_is_an_error():
    with pytest.raises(ChildFailed, match="not its volume over its time"):
        likwid.parse(RECORDED.replace("48848.68", "46586.11"))  # as it would be in units of 2**20 bytes


def test_the_command_asks_for_the_bytes_that_labkit_reads():
    assert likwid.command(2**30, 2, 7, stride=2)[-4:] == ["-W", "N:1073741kB:2:1:2", "-i", "7"]


@pytest.mark.parametrize(
    ("looks", "seconds", "threads", "share"),
    [
        # A second asleep, memory filled by one thread, then two threads free for half a second.
        ([(0.5, 0.0), (1.0, 0.0), (1.5, 0.5), (1.6, 0.7), (1.8, 1.1), (2.0, 1.5)], 0.5, 2, 1.0),
        # The same, a quarter of the time held up.
        ([(1.5, 0.5), (1.6, 0.65), (1.8, 0.95), (2.0, 1.25)], 0.5, 2, 0.75),
        # One thread free while memory was filled, but held up in the timed phase.
        ([(0.0, 0.0), (1.0, 1.0), (1.5, 1.5), (1.7, 1.6), (2.0, 1.75)], 0.5, 1, 0.5),
        ([], 0.5, 1, None),
        ([(0.1, 0.1), (0.4, 0.4)], 0.5, 1, None),  # never looked at near its end
    ],
)
def test_the_share_of_the_cores_is_that_of_the_timed_phase(looks, seconds, threads, share):
    assert likwid.cpu_share(looks, 2.05, seconds, threads) == (None if share is None else pytest.approx(share))


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a likwid-bench of its own first on the PATH."""

    def put(script):
        path = tmp_path / likwid.PROGRAM
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_an_absent_peer_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert likwid.missing() == "likwid-bench is not installed"


def test_a_peer_without_the_test_for_this_machine_is_named(fake):
    fake("echo 'load - Double-precision load, only scalar operations'")
    assert "no test load_avx" in likwid.missing()
    fake("echo 'load_avx - Double-precision load, optimized for AVX'")
    assert likwid.missing() is None


def test_a_run_gets_huge_pages_and_its_output_is_read(fake, tmp_path):
    (tmp_path / "recorded").write_text(RECORDED)
    fake(f'test "$GLIBC_TUNABLES" = glibc.malloc.hugetlb=1 && cat {tmp_path}/recorded')
    assert likwid.run(likwid.command(2**30, 2, 16), 2).printed == likwid.parse(RECORDED)


def test_a_failed_run_says_why(fake):
    fake("echo 'Unknown test case load_avx'; exit 1")
    with pytest.raises(ChildFailed, match="status 1: Unknown test case"):
        likwid.run(likwid.command(2**30, 1, 1), 1)


# --- labkit against its peers

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.003)


def outcome(starved=None, **rates):
    """Eight repeats at these rates; `starved` is {contestant: repeats that do not count}."""
    readings = {}
    for name, rate in rates.items():
        lost = (starved or {}).get(name, ())
        for repeat, factor in enumerate(STEADY):
            readings[(1, name), repeat] = Reading(rate * factor, "held up" if repeat in lost else None)
    (found,) = ratios.outcomes(readings)
    return found


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({LABKIT: 40.0, "a": 40.0, "b": 30.0}, report.HOLDS),
        ({LABKIT: 40.0, "a": 42.0, "b": 30.0}, f"{report.FALLS_SHORT} against a"),
    ],
)
def test_the_verdict_is_about_the_best_peer(rates, said):
    assert ratios.verdict(outcome(**rates)).startswith(said)


def test_a_ratio_whose_interval_holds_the_target_says_nothing():
    readings = {}
    for repeat, factor in enumerate((0.9, 1.1, 0.95, 1.05, 0.98, 1.0, 0.92, 1.04)):
        readings[(1, LABKIT), repeat] = Reading(40 * factor, None)
        readings[(1, "a"), repeat] = Reading(40, None)
    (found,) = ratios.outcomes(readings)
    assert ratios.verdict(found).startswith(f"{report.UNKNOWN} against a: the interval holds the target")


def test_a_ratio_is_taken_over_the_repeats_in_which_both_had_their_cores():
    found = outcome({LABKIT: (0,), "a": (1,), "b": (2, 3, 4)}, **{LABKIT: 40.0, "a": 20.0, "b": 10.0})
    assert (found.ratio("a").n, found.ratio("b").n) == (6, 4)
    assert found.ratio("a").median == pytest.approx(2.0)
    assert found.dropped == {"held up": 5}
    assert ratios.verdict(found).startswith(f"{report.UNKNOWN}: fewer than 6 repeats count against b")


def test_without_a_peer_there_is_no_verdict():
    assert ratios.verdict(outcome(**{LABKIT: 40.0})).startswith(report.UNKNOWN)


@pytest.mark.parametrize(
    ("share", "others", "counts"), [(1.0, 0.0, True), (None, 0.0, True), (0.96, 0.0, False), (1.0, 0.11, False)]
)
def test_a_reading_counts_by_labkits_own_limits(share, others, counts):
    assert (ratios.why_starved(share, others) is None) == counts


def test_the_report_fits_its_width():
    found = outcome({"likwid-bench load_avx": (0,)}, **{LABKIT: 140.0, "likwid-bench load_avx": 141.0, "numpy": 139.0})
    console = report.console()
    with console.capture() as capture:
        console.print(ratios.table(found))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= report.WIDTH
    assert any("likwid-bench load_avx" in line and "7/8" in line for line in lines)


# --- quickness


@pytest.mark.parametrize(
    ("taken", "busy", "says"),
    [
        ([1.0, 1.2, 9.0], True, report.HOLDS),
        ([3.0, 4.0], False, report.FALLS_SHORT),
        ([3.0, 4.0], True, "cannot tell (busy)"),
        ([], False, "cannot tell (not taken)"),
    ],
)
def test_a_missed_target_on_a_busy_machine_says_nothing(taken, busy, says):
    assert quickness.row("x", 1.5, taken, busy=busy)[-1] == says


@pytest.mark.parametrize(
    ("notebooks", "skipped"), [("5 skipped", True), ("1 done, 4 skipped", False), ("5 failed", False)]
)
def test_a_batch_that_had_something_to_do_is_not_timed_as_one_that_had_not(notebooks, skipped):
    assert quickness.all_skipped(f"Published: x.\nFigures: /f (3 folders), notebooks {notebooks}.\n") == skipped


def test_an_unknown_benchmark_is_refused_with_the_list():
    ran = subprocess.run([sys.executable, "-m", "benchmarks", "nonsense"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "choose from bus_peers, quickness" in ran.stderr
