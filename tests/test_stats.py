"""Statistics against known values, and against simulation."""

from itertools import permutations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import stats

values = st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=60)


@pytest.mark.parametrize(("n", "ranks"), [(6, (1, 6)), (7, (1, 7)), (9, (2, 8)), (12, (3, 10)), (25, (8, 18))])
def test_the_interval_of_the_median_has_the_tabulated_ranks(n, ranks):
    assert stats.median_interval(list(range(1, n + 1))) == ranks


@pytest.mark.parametrize("n", range(1, 6))
def test_five_values_or_fewer_have_no_95_percent_interval(n):
    assert stats.median_interval(list(range(n))) is None


@given(st.integers(6, 200))
def test_the_interval_covers_95_percent_and_a_tighter_one_would_not(n):
    low, high = stats.median_interval(list(range(1, n + 1)))

    def coverage(rank):  # of [x_rank, x_(n+1-rank)], exactly
        return 1 - 2 * sum(comb(n, k) for k in range(rank)) / 2**n

    assert high == n + 1 - low
    assert coverage(low) >= 0.95
    assert coverage(low + 1) < 0.95


@given(values)
def test_a_summary_is_consistent_whatever_the_order(series):
    summary = stats.summarise(series)
    assert summary == stats.summarise(sorted(series))
    assert min(series) <= summary.median <= max(series)
    assert summary.best == max(series)
    assert summary.spread == pytest.approx((max(series) - min(series)) / summary.median)
    if summary.low is not None:
        assert min(series) <= summary.low <= summary.median <= summary.high <= max(series)


def test_a_known_series():
    summary = stats.summarise([10, 11, 12, 13, 14, 15, 16, 17, 18])
    assert (summary.median, summary.low, summary.high) == (14, 11, 17)
    assert summary.mad == pytest.approx(2 / 14)
    assert summary.spread == pytest.approx(8 / 14)
    assert summary.half_width == pytest.approx(3 / 14)


def test_nothing_has_no_summary():
    with pytest.raises(ValueError, match="no values"):
        stats.summarise([])


def test_a_median_of_zero_divides_nothing():
    summary = stats.summarise([0.0] * 8)
    assert (summary.mad, summary.spread, summary.half_width) == (0, 0, None)


def test_two_regimes_are_two_modes():
    """The published example: a shared memory path that flips between about 35 and 62 GB/s."""
    assert stats.modes([35, 36, 35.5, 62, 61, 62.5, 35.2]) == (pytest.approx(35.35), 62)


@pytest.mark.parametrize(
    "series",
    [
        [33, 33.5, 32.8, 33.1, 34, 32],  # one regime
        [33, 33.5, 32.8, 33.1, 34, 20],  # an outlier is no mode
        [33, 62],
        [],
    ],
)
def test_one_regime_has_no_modes(series):
    assert stats.modes(series) == ()


def test_modes_do_not_depend_on_order():
    found = {stats.modes(list(order)) for order in permutations([35, 36, 61, 62])}
    assert found == {(35.5, 61.5)}


def judged(series, flags=(), taken=None):
    summary = stats.summarise(series) if series else None
    return stats.judge(summary, taken=taken or len(series), flags=flags)


def test_a_tight_series_is_ok():
    assert judged([33, 33.5, 32.8, 33.1, 34, 32.5]) == stats.Verdict("ok")


@pytest.mark.parametrize(
    ("series", "flags", "reason"),
    [
        ([30, 31, 32, 33, 34, 35, 37], (), "spread 21%, over 20%"),
        ([35, 36, 35.5, 62, 61, 62.5, 35.2], (), "two modes, around 35.4 and 62.0"),
        ([33, 33.5, 32.8, 33.1, 34, 32.5], ("CPU pressure 30% of the time",), "CPU pressure 30% of the time"),
    ],
)
def test_what_cannot_be_relied_on_says_why(series, flags, reason):
    verdict = judged(series, flags)
    assert verdict.status == "unreliable"
    assert reason in verdict.reasons


def test_repeats_that_were_lost_make_a_series_unreliable():
    assert judged([33] * 9, taken=11).status == "ok"
    assert judged([33] * 8, taken=11).reasons == ("only 8 of 11 repeats count",)


def test_fewer_than_six_valid_repeats_are_refused():
    assert judged([33, 33, 33, 33, 33], taken=9) == stats.Verdict("refused", ("only 5 of 9 repeats valid, 6 needed",))
    assert judged([], taken=9).status == "refused"


def test_a_series_is_settled_when_its_interval_is_narrow():
    assert stats.settled([100, 101, 99, 100, 100.5, 99.5])
    assert not stats.settled([100, 101, 99, 100])  # too few for any interval
    assert not stats.settled([100, 120, 80, 100, 110, 90])


def test_ratios_are_paired_within_a_repeat():
    """Both halve in the third repeat: the ratio of medians would move, the median of ratios does not."""
    assert stats.paired_ratio([(60, 30), (62, 31), (30, 15)]).median == 2


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (("2026-01-01T10", "2026-01-01T11"), ("2026-01-01T10", "2026-01-01T12"), "matched"),
        (("2026-01-01T10", "2026-01-01T11"), ("2026-01-01T13", "2026-01-01T14"), "confounded"),
        (("2026-01-01T10", None), ("2026-01-01T10", "2026-01-01T11"), "confounded"),
        (None, ("2026-01-01T10", "2026-01-01T11"), "confounded"),
    ],
)
def test_sessions_are_matched_only_when_they_overlap(a, b, said):
    assert stats.sessions(a, b) == stats.sessions(b, a) == said
