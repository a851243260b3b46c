"""Rates are counted where everybody worked, and nobody hangs."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import windows
from labkit.errors import ChildFailed, Refused
from labkit.windows import Track, count, together


def track(*stamps, cpu_share=1.0, faults=0):
    """A track from (milliseconds, items since the last stamp)."""
    total, totals = 0, []
    for _, items in stamps:
        total += items
        totals.append(total)
    return Track([int(ms * 1e6) for ms, _ in stamps], totals, cpu_share, faults)


def steady(start, end, rate_per_ms=10, every=1):
    return track((start, 0), *((t, rate_per_ms * every) for t in range(start + every, end + 1, every)))


def test_a_straggler_s_tail_does_not_lower_the_rate():
    """Two workers of 10 items/ms; the second goes on alone for a quarter of the time. total / wall would say 18."""
    window = count({"cpu": [steady(0, 100), steady(0, 125)]})
    assert window.engines["cpu"].rate == pytest.approx(20_000)
    assert (window.start_ns, window.end_ns) == (0, 100_000_000)


def test_a_late_starter_shortens_the_window():
    window = count({"cpu": [steady(0, 100), steady(20, 100)]})
    assert window.engines["cpu"].rate == pytest.approx(20_000)
    assert window.seconds == pytest.approx(0.08)
    assert window.engines["cpu"].overlap == pytest.approx(0.8)


def test_work_under_way_at_the_border_counts_by_its_part():
    window = count({"a": [track((0, 0), (100, 1000))], "b": [track((10, 0), (90, 80))]})
    assert window.engines["a"].items == pytest.approx(800)
    assert window.engines["b"].items == pytest.approx(80)


def test_rates_of_engines_that_did_not_work_together_are_refused():
    """Unaligned windows summed above the bus peak in published work: the sum must not exist."""
    with pytest.raises(windows.NotTogether, match="shared only 40% of cpu's window"):
        count({"cpu": [steady(0, 100)], "gpu": [steady(60, 160)]})
    with pytest.raises(Refused, match="shared only 0%"):
        count({"cpu": [steady(0, 100)], "gpu": [steady(200, 300)]})


def test_an_engine_is_as_good_as_its_worst_worker():
    window = count({"cpu": [steady(0, 100), Track([0, 10**8], [0, 5], 0.6, None)]})
    assert window.engines["cpu"].cpu_share == 0.6
    assert window.engines["cpu"].page_faults is None  # one unknown makes the sum unknown, not smaller


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=20),
    st.integers(-10, 1200),
)
def test_items_done_grow_from_none_to_all(steps, when):
    stamps = [(0, 0)]
    for gap, items in steps:
        stamps.append((stamps[-1][0] + gap, items))
    one = track(*stamps)
    done = one.done_by(when * 10**6)
    assert 0 <= done <= one.totals[-1]
    assert one.done_by(one.times_ns[-1]) == one.totals[-1]
    assert one.done_by(-1) == 0


def sleeper(seconds, items=1):
    def open_here():
        def step():
            time.sleep(seconds)
            return items

        return step

    return open_here


def test_engines_run_at_once_each_in_threads_of_its_own():
    threads = set()

    def opener():
        def step():
            threads.add(threading.current_thread().name)
            time.sleep(0.002)
            return 1

        return step

    window = together({"a": [opener, opener], "b": [opener]}, 0.5)
    assert threads == {"a-0", "a-1", "b-2"}
    assert set(window.engines) == {"a", "b"}
    assert window.engines["a"].items == pytest.approx(2 * window.engines["b"].items, rel=0.5)
    assert window.engines["a"].overlap >= windows.MIN_OVERLAP


def test_a_waiting_thread_is_seen_to_have_had_little_of_its_core():
    assert together({"a": [sleeper(0.01)]}, 0.1).engines["a"].cpu_share < 0.5


def test_nobody_starts_before_all_have_opened():
    opened = []

    def slow():
        time.sleep(0.2)
        opened.append("slow")
        return lambda: time.sleep(0.001) or 1

    def quick():
        def step():
            assert opened == ["slow"]
            time.sleep(0.001)
            return 1

        return step

    together({"a": [quick], "b": [slow]}, 0.5)


def no_threads_left():
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not [t for t in threading.enumerate() if t.name.startswith(("a-", "b-"))]:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("where", ["opening", "working"])
def test_what_a_worker_raises_reaches_the_caller_and_ends_the_others(where):
    def bad():
        if where == "opening":
            raise OSError("no such engine")

        def step():
            raise OSError("no such engine")

        return step

    begun = time.monotonic()
    with pytest.raises(OSError, match="no such engine"):
        together({"a": [sleeper(0.01), sleeper(0.01)], "b": [bad]}, 30)
    assert time.monotonic() - begun < 10
    assert no_threads_left()


def test_a_worker_that_hangs_is_named(monkeypatch):
    monkeypatch.setattr(windows, "GRACE_S", 0.2)
    release = threading.Event()
    with pytest.raises(ChildFailed, match="worker b-1 was still in one unit of work"):
        together({"a": [sleeper(0.01)], "b": [lambda: lambda: release.wait(20) or 1]}, 0.1)
    release.set()
    assert no_threads_left()


def test_a_worker_that_never_opens_is_named(monkeypatch):
    monkeypatch.setattr(windows, "OPEN_S", 0.2)
    release = threading.Event()

    def never():
        release.wait(20)
        return lambda: 1

    with pytest.raises(ChildFailed, match="not all of 2 workers were ready"):
        together({"a": [sleeper(0.01)], "b": [never]}, 0.1)
    release.set()
    assert no_threads_left()


def test_a_step_too_short_for_the_clock_is_refused(monkeypatch):
    monkeypatch.setattr(windows, "now_ns", iter([0, 100, 100, 2 * 10**9, 3 * 10**9]).__next__)
    with pytest.raises(Refused, match="took no time"):
        windows._run(lambda: 1, 1, threading.Event())
