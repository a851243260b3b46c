"""Linux's state readers on fake trees: each gives its number or a reason."""

import os

import pytest

from labkit.machine import linux_state as now
from labkit.machine.sources import Unknown

PSI = "some avg10=12.34 avg60=5.00 avg300=1.00 total=987654321\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_cpu_pressure_is_the_some_line(tmp_path):
    assert now.cpu_pressure(write(tmp_path, {"proc/pressure/cpu": PSI})) == (
        (12.34, 987654321),
        "/proc/pressure/cpu some",
    )


@pytest.mark.parametrize(
    "text", ["", "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", PSI.replace("987654321", "x")]
)
def test_cpu_pressure_without_a_whole_some_line_is_unknown(tmp_path, text):
    with pytest.raises(Unknown, match="/proc/pressure/cpu is not understood"):
        now.cpu_pressure(write(tmp_path, {"proc/pressure/cpu": text}))


def test_steal_is_column_eight_in_seconds(tmp_path):
    root = write(tmp_path, {"proc/stat": "cpu  1 2 3 4 5 6 7 250 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"})
    assert now.steal_s(root) == (250 / os.sysconf("SC_CLK_TCK"), "/proc/stat steal")


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 3 4 5 6 7 x 9 10\n"])
def test_a_stat_file_without_steal_is_unknown_and_not_zero(tmp_path, text):
    with pytest.raises(Unknown, match="/proc/stat"):
        now.steal_s(write(tmp_path, {"proc/stat": text}))


def test_the_clock_is_the_mean_over_policies(tmp_path):
    folder = "sys/devices/system/cpu/cpufreq"
    root = write(
        tmp_path,
        {f"{folder}/policy0/scaling_cur_freq": "3000000\n", f"{folder}/policy4/scaling_cur_freq": "2000000\n"},
    )
    assert now.cpu_mhz(root) == (2500.0, f"mean of 2 policies in /{folder}")


def test_a_virtual_machine_without_cpufreq_has_an_unknown_clock(tmp_path):
    with pytest.raises(Unknown, match="No such file"):
        now.cpu_mhz(tmp_path)
    (tmp_path / "sys/devices/system/cpu/cpufreq").mkdir(parents=True)
    with pytest.raises(Unknown, match="no frequency driver"):
        now.cpu_mhz(tmp_path)


@pytest.mark.parametrize("text", ["0", "<unknown>", ""])
def test_a_clock_of_nothing_is_unknown(tmp_path, text):
    folder = "sys/devices/system/cpu/cpufreq"
    with pytest.raises(Unknown, match="cpufreq"):
        now.cpu_mhz(write(tmp_path, {f"{folder}/policy0/scaling_cur_freq": text}))


def supply(name, **fields):
    return {f"sys/class/power_supply/{name}/{key}": value + "\n" for key, value in fields.items()}


LAPTOP = supply("BAT0", type="Battery", status="Discharging") | supply("AC0", type="Mains", online="0")


def test_a_laptop_on_battery_says_so(tmp_path):
    assert now.power_source(write(tmp_path, LAPTOP))[0] == "battery"


@pytest.mark.parametrize("kind", ["Mains", "USB"])
def test_a_supply_that_is_plugged_in_is_ac(tmp_path, kind):
    root = write(tmp_path, LAPTOP | supply("AC0", type=kind, online="1"))
    assert now.power_source(root)[0] == "AC"


def test_the_battery_of_a_mouse_is_not_the_machines(tmp_path):
    root = write(tmp_path, supply("mouse", type="Battery", status="Discharging", scope="Device"))
    with pytest.raises(Unknown, match="no supply in use"):
        now.power_source(root)


def test_a_machine_that_lists_no_supply_does_not_claim_ac(tmp_path):
    (tmp_path / "sys/class/power_supply").mkdir(parents=True)
    with pytest.raises(Unknown, match=r"lists no supply$"):
        now.power_source(tmp_path)


def test_memory_to_be_had_is_cut_by_the_room_in_the_group(tmp_path):
    files = {
        "proc/meminfo": "MemAvailable: 1000 kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    }
    assert now.memory_available(write(tmp_path, files)) == (1024000, "/proc/meminfo MemAvailable")
    files = {"memory.max": "500000", "memory.current": "100000", "memory.stat": "inactive_file 0"}
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert now.memory_available(tmp_path)[0] == 400000


def test_uptime_is_the_first_number(tmp_path):
    assert now.uptime_s(write(tmp_path, {"proc/uptime": "1234.56 99.00\n"})) == (1234.56, "/proc/uptime")
    with pytest.raises(Unknown, match="uptime is not understood"):
        now.uptime_s(write(tmp_path, {"proc/uptime": "soon\n"}))
