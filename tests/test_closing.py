"""The last lines of a batch say what was found, with its trust."""

from pathlib import Path

from runs import good, run, series

from labkit import project
from labkit.batch.messages import Report, Result
from labkit.closing import closing_lines
from labkit.errors import Refused

DATA = project.PACKAGE.parent / "data"
REPORT = Report(
    (
        Result("20_bus_reach", "Apple M4 Pro", "skipped", 0.0, "unchanged"),
        Result("90_compare_chips", "all", "failed", 1.0, "its kernel died"),
    ),
    1.0,
)


def lines(measured):
    return closing_lines(DATA, Path("figures"), REPORT, measured)


def test_a_measurement_is_told_with_its_share_and_verdict():
    assert lines(run(good()))[0] == (
        "Measured: Test Chip (measured): the CPU reads 60.0 GB/s with 2 threads, 33.0 GB/s with one; "
        "that is 60% of the bus peak of 100 GB/s. Verdict ok."
    )


def test_of_two_modes_both_are_told():
    """The median of a series that flips between two regimes describes neither."""
    flips = (0.8, 1.2, 0.81, 1.2, 0.8, 1.21, 0.8, 1.2, 0.8)
    said = lines(run(good(two=series(50, flips, threads=2), two_numpy=series(49, flips, kernel="numpy", threads=2))))[0]
    assert "the CPU reads 40.0 or 60.0 GB/s with 2 threads" in said
    assert "two modes, around 40.0 and 60.0" in said


def test_an_unknown_peak_is_told_with_its_reason():
    said = lines(run(good(), bus_peak_gb_per_s=None, bus_peak_source="dmidecode is not installed"))[0]
    assert "its share of the bus is unknown, as the peak is (dmidecode is not installed)" in said


def test_a_refused_measurement_shows_no_number():
    said = lines(run(good(), bus_peak_gb_per_s=50.0))[0]
    assert "no read bandwidth to report. Verdict refused: 60.6 GB/s, above the bus peak of 50 GB/s" in said


def test_a_measurement_that_could_not_be_taken_says_why():
    assert (
        lines(Refused("this machine is measuring already"))[0] == "Measured: nothing, this machine is measuring already"
    )


def test_the_published_answers_and_the_batch_s_outcome_follow():
    published, figures = lines(None)
    assert published == "Published: Apple M4 Pro reaches 91% of 273 GB/s; Apple M5 Max reaches 49% of 614 GB/s."
    assert figures == "Figures: figures (2 folders), notebooks 1 skipped, 1 failed."
