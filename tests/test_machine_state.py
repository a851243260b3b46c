"""The state now, quiet or not, and counters around a window; on this machine and on invented ones."""

import subprocess
import sys
from datetime import datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.machine import Counters, Delta, Fact, State, counters, delta, quiet_reasons, state
from labkit.machine.state import busy, linux_now, macos_now, own_cpu_seconds

FIELDS = [name for name in State.__struct_fields__ if name not in ("at", "sources")]


def made(**known):
    fields = dict.fromkeys(FIELDS) | {
        "logical_cpus": 8,
        "usable_cpus": 8,
        "busy_others": 0.0,
        "cpu_pressure_avg10": 0.0,
    }
    return State(at="2026-01-01T00:00:00+00:00", sources={}, **(fields | known))


# Here and now


def test_every_field_names_its_source_or_why_it_is_unknown():
    now = state(0.01)
    assert set(now.sources) == set(FIELDS)
    assert all(now.sources.values())


def test_the_state_is_stamped_in_utc_and_survives_json():
    now = state(0.01)
    assert datetime.fromisoformat(now.at).utcoffset() == timedelta(0)
    assert msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(now)), type=State) == now


def test_shares_are_shares():
    now = state(0.1)
    for share in (now.busy, now.busy_others):
        assert share is None or 0 <= share <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_linux_state_under_an_empty_root_is_unknown_with_reasons(tmp_path):
    facts = linux_now(tmp_path, reach=frozenset({0}))
    assert {name for name, fact in facts.items() if fact.value is not None} == {"usable_cpus"}
    assert all(fact.source for fact in facts.values())
    assert facts["steal_s"] == Fact(None, "/proc/stat: No such file or directory")


@pytest.mark.skipif(sys.platform != "linux", reason="compares with Linux's own fields")
def test_macos_gives_the_same_fields_as_linux():
    """On recorded output (written from pmset's documented format) and an invented libSystem: no Mac was asked."""

    def notify(token, level):
        level._obj.value = 2
        return 0

    lib = SimpleNamespace()
    lib.notify_register_check = _function(lambda name, token: 0)
    lib.notify_get_state = _function(notify)
    lib.notify_cancel = _function(lambda token: 0)
    facts = macos_now(run=lambda argv: "Now drawing from 'Battery Power'\n", load=lambda path: lib)
    assert set(facts) == set(linux_now())
    assert (facts["thermal_level"].value, facts["thermal_name"].value) == (2, "heavy")
    assert facts["power_source"].value == "battery"
    assert facts["cpu_pressure_us"].value is None


def _function(call):
    """A callable that takes attributes, as ctypes functions do."""

    def function(*arguments):
        return call(*arguments)

    return function


# How busy


def times(**seconds):
    names = ("user", "system", "idle", "iowait", "steal", "guest")
    values = {name: seconds.get(name, 0.0) for name in names}
    return SimpleNamespace(_fields=names, **values)


def sampled(before, after, own=(0.0, 0.0)):
    cpu_times, own_times, slept = iter([before, after]), iter(own), []
    facts = busy(
        0.5, cpu_times=lambda: next(cpu_times), own=lambda: next(own_times), sleep=lambda seconds: slept.append(seconds)
    )
    assert slept == [0.5]
    return facts["busy"], facts["busy_others"]


def test_busy_is_the_share_of_all_cpu_time_in_use_and_others_is_without_us():
    both, others = sampled(times(), times(user=2.0, system=1.0, idle=6.0, iowait=0.5, steal=0.5), own=(1.0, 2.0))
    assert both.value == pytest.approx(0.3)
    assert others.value == pytest.approx(0.2)


def test_guest_time_is_not_counted_twice():
    both, _ = sampled(times(), times(user=1.0, guest=1.0, idle=1.0))
    assert both.value == pytest.approx(0.5)


def test_our_own_time_beyond_what_was_counted_leaves_none_for_others():
    """Ticks are coarse: a process may have used more than the CPUs' counts show."""
    _, others = sampled(times(), times(user=0.1, idle=0.9), own=(0.0, 0.3))
    assert others.value == 0.0


def test_when_no_tick_passed_the_share_is_unknown_and_not_zero():
    both, others = sampled(times(user=5.0), times(user=5.0))
    assert both.value is others.value is None
    assert "no CPU time was counted" in both.source


def test_cpu_times_that_cannot_be_read_are_a_reason():
    def fail():
        raise PermissionError

    facts = busy(0.0, cpu_times=fail)
    assert facts["busy"] == facts["busy_others"] == Fact(None, "no CPU times: PermissionError")


def test_time_of_a_living_child_and_of_one_waited_for_is_our_own():
    spin = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"
    before = own_cpu_seconds()
    child = subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    alive = own_cpu_seconds()
    child.communicate()
    assert alive - before > 0.25
    assert own_cpu_seconds() - before > 0.25


# Quiet or not


def test_nothing_against_it_is_quiet():
    assert quiet_reasons(made()) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"busy_others": 0.11}, "other work uses 11% of the 8 usable CPUs (limit 6%)"),
        ({"cpu_pressure_avg10": 10.5}, "tasks waited for a CPU in 10 % of the last 10 s (limit 10 %)"),
        ({"thermal_level": 1, "thermal_name": "moderate"}, "thermal pressure is moderate"),
        ({"thermal_level": 9}, "thermal pressure is level 9"),
        ({"power_source": "battery"}, "the machine runs on battery"),
        ({"busy_others": None, "cpu_pressure_avg10": None}, "whether other work runs is unknown"),
    ],
)
def test_each_disturbance_is_a_reason_of_its_own(fields, reason):
    assert quiet_reasons(made(**fields)) == [reason]


@pytest.mark.parametrize(
    "fields",
    [
        {"busy_others": 0.06},
        {"cpu_pressure_avg10": 10.0},
        {"thermal_level": 0, "thermal_name": "nominal"},
        {"power_source": "AC"},
        {"load1": 50.0},  # a load alone may be tasks that wait for a disk
        {"busy_others": None, "busy": 0.05},
        {"busy_others": None},  # pressure is known, and low
    ],
)
def test_what_is_within_its_limit_or_a_weak_hint_alone_is_no_reason(fields):
    assert quiet_reasons(made(**fields)) == []


def test_load_counts_beside_other_work():
    assert "load average 9.0 on 8 usable CPUs" in quiet_reasons(made(busy_others=0.5, load1=9.0))


def test_other_work_is_measured_against_the_cpus_that_we_may_use():
    """2 of 64 CPUs are ours; 4 % of the host in use by others is 1.28 times what we have."""
    (reason,) = quiet_reasons(made(logical_cpus=64, usable_cpus=2, busy_others=0.04))
    assert reason.startswith("other work uses 128% of the 2 usable CPUs")


# Counters


def test_counters_here_grow_and_give_shares():
    first = counters()
    total = sum(i * i for i in range(100_000))
    assert total > 0
    change = delta(first, counters())
    assert change.seconds > 0
    for share in (change.pressure, change.steal):
        assert share is None or 0 <= share <= 1


def test_counters_under_an_empty_root_are_unknown(tmp_path):
    found = counters(tmp_path)
    assert (found.cpu_pressure_us, found.steal_s, found.throttled_us) == (None, None, None)


def test_shares_are_of_the_time_between():
    before = Counters(0, 1_000_000, 10.0, 500_000, 4)
    after = Counters(2_000_000_000, 1_500_000, 10.8, 1_500_000, 4)
    change = delta(before, after)
    assert change == Delta(2.0, pytest.approx(0.25), pytest.approx(0.1), pytest.approx(0.5))


def test_pressure_cannot_pass_the_whole_time():
    """The counters are read a moment after the clock."""
    assert delta(Counters(0, 0, None, None, 1), Counters(1_000_000_000, 1_000_500, None, None, 1)).pressure == 1.0


COUNTERS = st.builds(
    Counters,
    monotonic_ns=st.integers(0, 10**12),
    cpu_pressure_us=st.none() | st.integers(0, 10**12),
    steal_s=st.none() | st.floats(0, 1e9),
    throttled_us=st.none() | st.integers(0, 10**12),
    cpus=st.none() | st.integers(1, 512),
)


@given(COUNTERS, COUNTERS)
def test_an_unknown_or_backward_counter_is_unknown_and_no_share_is_negative(before, after):
    change = delta(before, after)
    pairs = [
        (change.pressure, before.cpu_pressure_us, after.cpu_pressure_us),
        (change.steal, before.steal_s, after.steal_s),
        (change.throttled, before.throttled_us, after.throttled_us),
    ]
    for share, first, last in pairs:
        if first is None or last is None or last < first or change.seconds <= 0:
            assert share is None
        else:
            assert share is None or share >= 0
