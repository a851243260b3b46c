"""How numbers are taken."""

import random
import time
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import machine, protocol, stats


@given(st.lists(st.integers(), min_size=1, max_size=12, unique=True), st.integers(0, 2**32))
def test_every_repeat_visits_every_point_once(points, seed):
    visits = []
    protocol.interleave(points, lambda point, repeat: visits.append((repeat, point)) or 1.0, seed=seed)
    rounds = {repeat for repeat, _ in visits}
    assert rounds == set(range(-1, protocol.REPEATS))
    for repeat in rounds:
        assert sorted(point for when, point in visits if when == repeat) == sorted(points)


def test_the_order_is_random_recorded_by_its_seed_and_new_in_each_repeat():
    def orders(seed):
        visits = {}
        protocol.interleave(range(8), lambda p, r: visits.setdefault(r, []).append(p) or 1.0, seed=seed)
        return visits

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)
    assert len({tuple(order) for order in orders(1).values()}) > 5


def test_the_first_round_warms_up_and_does_not_count():
    values = protocol.interleave(["a"], lambda _, repeat: 1000.0 if repeat < 0 else 1.0, seed=0)
    assert values == {"a": [1.0] * protocol.REPEATS}


def test_repeats_go_on_until_the_interval_is_narrow():
    def narrow_after(_, repeat):
        return 100.0 if repeat >= 3 else 50.0 + 20 * repeat

    values = protocol.interleave(["a"], narrow_after, seed=0)["a"]
    assert protocol.REPEATS < len(values) < protocol.MOST_REPEATS
    assert stats.settled(values)
    assert not stats.settled(values[:-1])


def test_all_points_go_on_while_one_is_not_settled():
    noise = random.Random(3)
    values = protocol.interleave(
        ["calm", "noisy"], lambda p, _: 100.0 if p == "calm" else noise.uniform(1, 100), seed=0
    )
    assert {len(series) for series in values.values()} == {protocol.MOST_REPEATS}


def test_a_repeat_that_does_not_count_is_left_out():
    values = protocol.interleave(["a"], lambda _, repeat: None if repeat % 2 else 7.0, seed=0)["a"]
    assert set(values) == {7.0}
    assert len(values) < protocol.MOST_REPEATS


def test_no_round_begins_that_would_not_fit_the_budget():
    now = SimpleNamespace(t=0.0)
    noise = random.Random(3)

    def measure(point, repeat):
        now.t += 1.0
        return noise.uniform(1, 100)

    values = protocol.interleave(["a", "b"], measure, seed=0, budget_s=31, clock=lambda: now.t)
    assert now.t <= 31
    assert len(values["a"]) == 14  # 15 rounds of 2 s, the first for warming up


def test_a_budget_too_small_still_takes_the_six_that_a_verdict_needs():
    now = SimpleNamespace(t=0.0)

    def measure(point, repeat):
        now.t += 10.0
        return 1.0

    values = protocol.interleave(["a"], measure, seed=0, budget_s=5, clock=lambda: now.t)
    assert len(values["a"]) == stats.MIN_VALID


def test_the_same_point_twice_is_a_mistake():
    with pytest.raises(ValueError, match="twice"):
        protocol.interleave(["a", "a"], lambda p, r: 1.0, seed=0)


def a_state(**changes):
    """This machine's state, but quiet, and with changes."""
    quiet = {"busy": 0.0, "busy_others": 0.0, "cpu_pressure_avg10": 0.0, "thermal_level": None, "power_source": "AC"}
    cpus = {"logical_cpus": 2, "usable_cpus": 2}
    return msgspec.structs.replace(machine.state(0.01), **{**quiet, **cpus, **changes})


def test_a_quiet_machine_is_not_waited_for():
    begun = time.monotonic()
    _, reasons = protocol.wait_until_quiet(30, lambda: a_state())
    assert reasons == []
    assert time.monotonic() - begun < 5


def test_waiting_ends_when_the_machine_falls_quiet():
    looks = iter([a_state(busy_others=0.9), a_state(busy_others=0.0)])
    state, reasons = protocol.wait_until_quiet(30, lambda: next(looks))
    assert reasons == []
    assert state.busy_others == 0.0


def test_a_machine_that_stays_busy_is_reported_at_the_limit():
    _, reasons = protocol.wait_until_quiet(0.05, lambda: a_state(busy_others=0.9))
    assert reasons[0].startswith("other work uses")


def sleeping(seconds, items=4):
    def step():
        time.sleep(seconds)
        return items

    return step


def test_a_burst_counts_items_and_stamps_each_call():
    burst = protocol.burst(sleeping(0.003), calls=5)
    assert burst.items == 20
    assert len(burst.latencies_s) == 5
    assert min(burst.latencies_s) >= 0.003
    assert sum(burst.latencies_s) == pytest.approx(burst.seconds)
    assert burst.rate == pytest.approx(20 / burst.seconds)


def test_warm_up_calls_are_not_in_the_burst():
    calls = []
    burst = protocol.burst(lambda: calls.append(1) or 1, calls=3, warm_up=2)
    assert len(calls) == 5
    assert burst.items == 3


class Clock:
    """A clock that only work moves."""

    def __init__(self):
        self.ns = 10**9

    def __call__(self):
        return self.ns

    def step(self, pace):
        """A step of one item that takes `pace(seconds since the start)` seconds."""

        def work():
            self.ns += round(pace((self.ns - 10**9) / 1e9) * 1e9)
            return 1

        return work


def test_a_soak_tells_peak_last_trough_and_plateau():
    """A step down and a recovery: last / peak alone would hide the trough."""
    clock = Clock()
    pace = [0.002, 0.002, 0.008, 0.008, 0.004, 0.004, 0.004, 0.004]
    soak = protocol.soak(clock.step(lambda t: pace[min(int(t / 0.1), 7)]), seconds=0.8, window=0.1, clock_ns=clock)
    assert [round(rate) for rate in soak.rates] == [500, 500, 125, 125, 250, 250, 250, 250]
    assert (round(soak.peak), round(soak.last), round(soak.minimum), round(soak.plateau)) == (500, 250, 125, 250)
    assert soak.last_over_peak == pytest.approx(0.5, rel=0.05)
    assert soak.minimum_at_s == pytest.approx(0.2, abs=0.11)
    assert soak.start.at


def test_no_time_and_no_item_is_lost_between_the_windows_of_a_soak():
    clock, done = Clock(), []
    work = clock.step(lambda t: 0.007)
    soak = protocol.soak(lambda: done.append(1) or work(), seconds=0.5, window=0.1, clock_ns=clock)
    ends = [*soak.starts_s[1:], (clock.ns - 10**9) / 1e9]
    counted = sum(rate * (end - start) for rate, start, end in zip(soak.rates, soak.starts_s, ends, strict=True))
    assert counted == pytest.approx(len(done))


def test_a_soak_of_one_window_says_nothing():
    with pytest.raises(ValueError, match="fewer than two windows"):
        protocol.soak(lambda: 1, seconds=1, window=0.6)
