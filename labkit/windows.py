"""Several threads at work at once, each unit of work stamped on one clock, and what was done in their common window.

A rate taken as total / (last end - first start) counts the stragglers' tail, and rates of two engines over
different windows do not add up. Here every rate is counted between the moment the last worker had started and the
moment the first one stopped.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec

from labkit.errors import ChildFailed, Refused

Step = Callable[[], int]
"""One unit of work: blocks until it is done, releases the GIL meanwhile, and returns how many items it did."""

Opener = Callable[[], Step]
"""Called in the thread that will do the work, before anybody starts: pins it, opens its engine, warms it up."""

MIN_OVERLAP = 0.75
"""Two engines' rates are only called simultaneous when this share of each one's time is common."""

OPEN_S = 300.0
"""How long all workers together may take to open their engines."""

GRACE_S = 30.0
"""How long after the deadline a worker may take to finish the unit that it is in."""


class NotTogether(Refused):
    """The workers did not work at the same time, so there are no rates of theirs to compare or add."""


class Track(msgspec.Struct, frozen=True):
    """What one worker did: `totals[i]` items done at `times_ns[i]`; the first entry is its start, with 0 items."""

    times_ns: list[int]
    totals: list[int]
    cpu_share: float  # its thread's CPU time / wall time
    page_faults: int | None  # minor faults in its thread; None where the system does not count per thread

    def done_by(self, when_ns: int) -> float:
        """Items done by `when_ns`, linear inside the unit that was under way."""
        i = bisect_right(self.times_ns, when_ns)
        if i == 0:
            return 0.0
        if i == len(self.times_ns):
            return float(self.totals[-1])
        t0, t1 = self.times_ns[i - 1], self.times_ns[i]
        return self.totals[i - 1] + (self.totals[i] - self.totals[i - 1]) * (when_ns - t0) / (t1 - t0)


class Engine(msgspec.Struct, frozen=True):
    """One engine in a window: all its workers together."""

    rate: float  # items/s inside the common window
    items: float  # counted inside the common window
    overlap: float  # length of the common window / of the engine's own
    cpu_share: float  # the least of its workers'
    page_faults: int | None


class Window(msgspec.Struct, frozen=True):
    """One window in which all engines worked."""

    start_ns: int  # CLOCK_MONOTONIC, as are all stamps
    end_ns: int
    engines: dict[str, Engine]

    @property
    def seconds(self) -> float:
        """Length of the common window."""
        return (self.end_ns - self.start_ns) / 1e9


def now_ns() -> int:
    """The one clock of every stamp. macOS's perf_counter stops in sleep and this does not: never mix them."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def together(engines: Mapping[str, Sequence[Opener]], seconds: float) -> Window:
    """Run every engine's workers at once for `seconds` and count what each engine did in the common window.

    One thread per opener. Raises what a worker raised, ChildFailed when one does not finish its unit of work
    GRACE_S after the deadline, NotTogether when the workers did not work at the same time (see `count`).
    """
    openers = [(name, opener) for name, group in engines.items() for opener in group]
    if not openers or seconds <= 0:
        raise ValueError("together needs at least one worker and a positive duration")
    started = threading.Event()
    stop = threading.Event()
    barrier = threading.Barrier(len(openers), action=started.set)
    tracks: dict[int, Track] = {}
    failures: list[BaseException] = []

    def work(index: int, opener: Opener) -> None:
        try:
            step = opener()
            barrier.wait()
            tracks[index] = _run(step, seconds, stop)
        except threading.BrokenBarrierError:
            pass  # another worker failed to open and has reported it
        except BaseException as error:
            failures.append(error)
            stop.set()
            barrier.abort()

    threads = [
        threading.Thread(target=work, args=(index, opener), name=f"{name}-{index}", daemon=True)
        for index, (name, opener) in enumerate(openers)
    ]
    for thread in threads:
        thread.start()
    try:
        opened = now_ns() + int(OPEN_S * 1e9)
        while not started.wait(0.02) and not failures:
            if now_ns() > opened:
                raise ChildFailed(f"not all of {len(threads)} workers were ready after {OPEN_S:.0f} s")
        deadline = now_ns() + int((seconds + GRACE_S) * 1e9)
        for thread in threads:
            thread.join(max(0.0, (deadline - now_ns()) / 1e9))
            if thread.is_alive() and not failures:
                raise ChildFailed(f"worker {thread.name} was still in one unit of work {GRACE_S:.0f} s after its time")
    finally:
        # Also on Ctrl-C: nobody goes on working behind the caller's back.
        stop.set()
        barrier.abort()
    if failures:
        raise failures[0]
    named = [(openers[index][0], tracks[index]) for index in range(len(openers))]
    return count({name: [track for owner, track in named if owner == name] for name in engines})


def count(engines: Mapping[str, Sequence[Track]]) -> Window:
    """What each engine did between the last start and the first end of all tracks.

    Raises NotTogether when there is no such window, or when it is less than MIN_OVERLAP of some engine's own time:
    the rates would then not be simultaneous.
    """
    every = [track for group in engines.values() for track in group]
    start = max(track.times_ns[0] for track in every)
    end = min(track.times_ns[-1] for track in every)
    counted = {}
    for name, group in engines.items():
        own = max(track.times_ns[-1] for track in group) - min(track.times_ns[0] for track in group)
        overlap = max(0, end - start) / own if own > 0 else 0.0
        if overlap < MIN_OVERLAP:
            raise NotTogether(
                f"the workers shared only {overlap:.0%} of {name}'s window, {MIN_OVERLAP:.0%} needed: "
                "use a longer window or a quieter machine"
            )
        items = sum(track.done_by(end) - track.done_by(start) for track in group)
        faults = [track.page_faults for track in group]
        counted[name] = Engine(
            rate=items / ((end - start) / 1e9),
            items=items,
            overlap=overlap,
            cpu_share=min(track.cpu_share for track in group),
            page_faults=None if None in faults else sum(faults),  # type: ignore[arg-type]
        )
    return Window(start_ns=start, end_ns=end, engines=counted)


def _run(step: Step, seconds: float, stop: threading.Event) -> Track:
    faults = _thread_faults()
    cpu = time.thread_time_ns()
    start = now_ns()
    deadline = start + int(seconds * 1e9)
    times, done = [start], [0]
    while times[-1] < deadline and not stop.is_set():
        done.append(step())
        times.append(now_ns())
    cpu = time.thread_time_ns() - cpu
    after = _thread_faults()
    totals = [0]
    for items in done[1:]:
        totals.append(totals[-1] + items)
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise Refused("a unit of work took no time on this clock: make the step larger")
    return Track(
        times_ns=times,
        totals=totals,
        cpu_share=cpu / (times[-1] - times[0]),
        page_faults=None if faults is None or after is None else after - faults,
    )


def _thread_faults() -> int | None:
    import resource

    # RUSAGE_THREAD is Linux only; a process-wide count would blame a worker for its neighbours' faults.
    who = getattr(resource, "RUSAGE_THREAD", None)
    return None if who is None else resource.getrusage(who).ru_minflt
