"""How numbers are taken: interleaved, after a warm-up, on a quiet machine; in bursts, and over minutes."""

import itertools
import random
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from labkit import stats
from labkit.windows import Step, now_ns

if TYPE_CHECKING:
    from labkit.machine import State

REPEATS = 9
MOST_REPEATS = 25

Point = TypeVar("Point", bound=Hashable)


def interleave(
    points: Sequence[Point],
    measure: Callable[[Point, int], float | None],
    *,
    seed: int,
    repeats: int = REPEATS,
    most: int = MOST_REPEATS,
    budget_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Point, list[float]]:
    """Visit every point once per repeat, each repeat in an order of its own, and return the values by point.

    `measure(point, repeat)` takes one value; None marks a repeat that does not count (the caller keeps why). The
    first round, repeat -1, warms up and is thrown away. After `repeats` rounds, rounds go on until every point's
    interval is within stats.INTERVAL_TARGET of its median, up to `most` rounds or until another round would not
    fit in `budget_s`. All points get the same number of rounds: never all of A, then all of B.
    """
    order = random.Random(seed)
    values: dict[Point, list[float]] = {point: [] for point in points}
    if len(values) != len(points):
        raise ValueError("the same point stands twice in the plan")
    start = clock()
    for repeat in range(-1, most):
        began = clock()
        for point in order.sample(list(points), len(points)):
            value = measure(point, repeat)
            if repeat >= 0 and value is not None:
                values[point].append(value)
        taken = repeat + 1
        if taken >= repeats and all(stats.settled(series) for series in values.values()):
            break
        # The next round takes about as long as this one: stop before the budget, not after it.
        over = budget_s is not None and (clock() - start) + (clock() - began) > budget_s
        if over and taken >= stats.MIN_VALID:
            break
    return values


def wait_until_quiet(limit_s: float, look: "Callable[[], State] | None" = None) -> "tuple[State, list[str]]":
    """Look at the machine until nothing speaks against measuring, at most for `limit_s` seconds.

    Returns the last state seen and what still speaks against it (empty: quiet).
    """
    from labkit import machine

    look = look or machine.state
    deadline = time.monotonic() + limit_s
    while True:
        state = look()
        reasons = machine.quiet_reasons(state)
        if not reasons or time.monotonic() >= deadline:
            return state, reasons
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


class Burst(msgspec.Struct, frozen=True):
    """Back-to-back calls of one step."""

    items: int
    seconds: float
    latencies_s: list[float]  # one per call

    @property
    def rate(self) -> float:
        """items/s over the whole burst, the driver's overhead included."""
        return self.items / self.seconds


def burst(step: Step, *, calls: int, warm_up: int = 1) -> Burst:
    """Call `step` `warm_up` times unseen, then `calls` times, each one stamped."""
    if calls < 1:
        raise ValueError("a burst needs at least one call")
    for _ in range(warm_up):
        step()
    stamps = [now_ns()]
    items = 0
    for _ in range(calls):
        items += step()
        stamps.append(now_ns())
    return Burst(
        items=items,
        seconds=(stamps[-1] - stamps[0]) / 1e9,
        latencies_s=[(b - a) / 1e9 for a, b in itertools.pairwise(stamps)],
    )


class Soak(msgspec.Struct, frozen=True):
    """Rates over consecutive full windows. last/peak alone misleads: the plateau and the trough stand beside it."""

    rates: list[float]  # items/s per window
    starts_s: list[float]  # start of each window since the first
    peak: float
    last: float
    last_over_peak: float
    minimum: float
    minimum_at_s: float
    plateau: float  # mean of the last quarter of the windows, at least two
    start: "State"  # the machine when it began: a warm start hides the step down that a cold one shows


def soak(step: Step, *, seconds: float, window: float, clock_ns: Callable[[], int] = now_ns) -> Soak:
    """Call `step` for `seconds` and count its items in consecutive windows of `window` seconds.

    A window ends with the call that crosses its border and is divided by its true length, so no time is lost
    between windows. Raises ValueError unless at least two windows fit.
    """
    count = int(seconds / window + 1e-9)
    if count < 2:
        raise ValueError(f"{seconds} s hold fewer than two windows of {window} s")
    from labkit import machine

    start = machine.state()
    rates, starts = [], []
    origin = begin = clock_ns()
    for number in range(1, count + 1):
        border = origin + int(number * window * 1e9)
        items = 0
        while True:
            items += step()
            end = clock_ns()
            if end >= border:
                break
        rates.append(items / ((end - begin) / 1e9))
        starts.append((begin - origin) / 1e9)
        begin = end
    lowest = min(range(count), key=rates.__getitem__)
    tail = rates[-max(2, count // 4) :]
    return Soak(
        rates=rates,
        starts_s=starts,
        peak=max(rates),
        last=rates[-1],
        last_over_peak=rates[-1] / max(rates),
        minimum=rates[lowest],
        minimum_at_s=starts[lowest],
        plateau=sum(tail) / len(tail),
        start=start,
    )
