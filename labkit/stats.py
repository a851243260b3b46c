"""What a series of repeats says: median, exact interval, spread, modes, and whether to believe it."""

from collections.abc import Sequence
from math import comb
from statistics import median

import msgspec

CONFIDENCE = 0.95
MIN_VALID = 6
"""Fewer valid repeats than this give no verdict: the 95 % interval of a median needs six values."""
MIN_SHARE = 0.8
"""With a larger part of the repeats lost, those that are left are a selection and not a sample."""
MAX_SPREAD = 0.20
MODE_GAP = 0.15
MODE_MEMBERS = 2
INTERVAL_TARGET = 0.03
"""Repeats go on until the interval's half width is within this share of the median."""


class Summary(msgspec.Struct, frozen=True):
    """A series in numbers. Values have the series' unit; shares are of the median. None: not known (published)."""

    n: int
    median: float
    low: float | None  # the exact interval of the median; None below MIN_VALID values
    high: float | None
    mad: float | None = None  # median absolute deviation, as a share of the median
    spread: float | None = None  # (max - min) / median: the only meaning of the word here
    best: float | None = None  # the largest value
    modes: tuple[float, ...] = ()  # medians of the clusters when there are two, else empty

    @property
    def half_width(self) -> float | None:
        """Half of the interval as a share of the median; None without an interval or at a median of 0."""
        if self.low is None or self.high is None or self.median == 0:
            return None
        return (self.high - self.low) / 2 / self.median


class Verdict(msgspec.Struct, frozen=True):
    """Whether a number can be stood behind: ok, unreliable (shown with its reasons) or refused (not shown)."""

    status: str
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.status if not self.reasons else f"{self.status}: {'; '.join(self.reasons)}"


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The exact, distribution-free interval of the median from order statistics.

    For sorted x and j = the largest rank with 2 * P(Binomial(n, 1/2) < j) <= 1 - confidence, the interval is
    [x_j, x_(n+1-j)] (David and Nagaraja, Order Statistics, 3rd ed., 7.1). None when n is too small for any.
    Examples at 95 %: n = 6 gives [x1, x6], n = 9 [x2, x8], n = 12 [x3, x10].
    """
    ordered = sorted(values)
    n = len(ordered)
    below = 0
    rank = 0
    while rank < n // 2:
        below += comb(n, rank)
        if 2 * below > (1 - confidence) * 2**n:
            break
        rank += 1
    return None if rank == 0 else (ordered[rank - 1], ordered[n - rank])


def modes(values: Sequence[float]) -> tuple[float, ...]:
    """Medians of the two clusters on both sides of the largest gap, when that gap is a real one; else empty.

    A gap is real when it is wider than MODE_GAP of the median with at least MODE_MEMBERS values on each side.
    Such series switch regimes (a shared memory path, a clock step): one median would describe neither.
    """
    ordered = sorted(values)
    inner = range(MODE_MEMBERS, len(ordered) - MODE_MEMBERS + 1)
    if not inner:
        return ()
    cut = max(inner, key=lambda i: ordered[i] - ordered[i - 1])
    if ordered[cut] - ordered[cut - 1] <= MODE_GAP * median(ordered):
        return ()
    return (median(ordered[:cut]), median(ordered[cut:]))


def summarise(values: Sequence[float]) -> Summary:
    """Describe a series of repeats. Raises ValueError on an empty one."""
    values = [float(value) for value in values]
    if not values:
        raise ValueError("no values to summarise")
    middle = median(values)
    interval = median_interval(values) if len(values) >= MIN_VALID else None
    scale = middle if middle else float("inf")
    return Summary(
        n=len(values),
        median=middle,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        mad=median(abs(value - middle) for value in values) / scale,
        spread=(max(values) - min(values)) / scale,
        best=max(values),
        modes=modes(values),
    )


def judge(summary: Summary | None, *, taken: int, flags: Sequence[str] = ()) -> Verdict:
    """The verdict over a series: `summary` of its valid values, `taken` repeats in all, `flags` from the gates.

    Refused without MIN_VALID valid values; unreliable for lost repeats, a wide spread, two modes, or any flag;
    else ok.
    """
    valid = summary.n if summary else 0
    if summary is None or valid < MIN_VALID:
        return Verdict("refused", (f"only {valid} of {taken} repeats valid, {MIN_VALID} needed", *flags))
    reasons = list(flags)
    if valid < MIN_SHARE * taken:
        reasons.append(f"only {valid} of {taken} repeats count")
    if summary.modes:
        low, high = summary.modes
        reasons.append(f"two modes, around {low:.1f} and {high:.1f}")
    if summary.spread is not None and summary.spread > MAX_SPREAD:
        reasons.append(f"spread {summary.spread:.0%}, over {MAX_SPREAD:.0%}")
    return Verdict("unreliable" if reasons else "ok", tuple(reasons))


def settled(values: Sequence[float], target: float = INTERVAL_TARGET) -> bool:
    """Whether the series has an interval whose half width is within `target` of its median."""
    if len(values) < MIN_VALID:
        return False
    half = summarise(values).half_width
    return half is not None and half <= target


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Summary:
    """Summary of a/b over repeats: each ratio is taken within one repeat, so that drift cancels."""
    return summarise([a / b for a, b in pairs])


def sessions(a: tuple[str | None, str | None] | None, b: tuple[str | None, str | None] | None) -> str:
    """'matched' when the two sessions (start, end; ISO 8601 UTC) overlap in time, else 'confounded'.

    One box moved by 16 standard errors within three hours in published data, as much as two boxes differ: a
    difference between sessions that do not overlap may be the hour's, not the machine's. Unknown times: confounded.
    """
    if a is None or b is None or None in (*a, *b):
        return "confounded"
    return "matched" if max(a[0], b[0]) <= min(a[1], b[1]) else "confounded"  # type: ignore[type-var]
