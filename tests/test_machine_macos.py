"""A Mac's facts and state from recorded output, so that they are tested where there is no Mac.

The outputs are written from the documented formats of sysctl(8), system_profiler(8), ioreg(8) and pmset(1) and from
public outputs of such machines, with invented identities. No Mac was asked.
"""

import ctypes
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.machine import Cache, Fact, macos
from labkit.machine.facts import anonymous_id
from labkit.machine.sources import Unknown, known

UUID = "0A1B2C3D-1111-2222-3333-444455556666"

SYSCTL = """\
hw.ncpu: 14
hw.byteorder: 1234
hw.memsize: 25769803776
hw.activecpu: 14
hw.perflevel0.physicalcpu: 10
hw.perflevel0.physicalcpu_max: 10
hw.perflevel0.logicalcpu: 10
hw.perflevel0.logicalcpu_max: 10
hw.perflevel0.l1icachesize: 196608
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 16777216
hw.perflevel0.cpusperl2: 5
hw.perflevel0.name: Performance
hw.perflevel1.physicalcpu: 4
hw.perflevel1.logicalcpu: 4
hw.perflevel1.l1icachesize: 131072
hw.perflevel1.l1dcachesize: 65536
hw.perflevel1.l2cachesize: 4194304
hw.perflevel1.cpusperl2: 4
hw.perflevel1.name: Efficiency
hw.physicalcpu: 14
hw.logicalcpu: 14
hw.cachelinesize: 128
hw.l2cachesize: 4194304
hw.nperflevels: 2
machdep.cpu.cores_per_package: 14
machdep.cpu.brand_string: Apple M4 Pro
"""

GPU = {
    "SPDisplaysDataType": [
        {
            "_name": "Apple M4 Pro",
            "spdisplays_mtlgpufamilysupport": "spdisplays_metal4",
            "spdisplays_ndrvs": [{"_name": "Display", "_spdisplays_display-serial-number": "secret-serial"}],
            "sppci_bus": "spdisplays_builtin",
            "sppci_cores": "20",
            "sppci_device_type": "spdisplays_gpu",
            "sppci_model": "Apple M4 Pro",
        }
    ]
}

IOREG = f"""\
+-o J773s  <class IOPlatformExpertDevice, id 0x100000110, registered, matched, active, busy 0 (12 ms), retain 40>
    {{
      "manufacturer" = <"Apple Inc.">
      "IOPlatformUUID" = "{UUID}"
      "IOPlatformSerialNumber" = "SERIAL0001"
      "model" = <"Mac16,11">
    }}
"""


class Mac:
    """A `Run` that answers from recorded output and refuses what it has not."""

    def __init__(self, sysctl=SYSCTL, gpu=GPU, **more):
        names = {"kern.osversion": "24F74", "kern.hv_vmm_present": "0"} | more.pop("names", {})
        self.calls = []
        self.answers = {
            ("sysctl", "hw", "machdep.cpu"): sysctl,
            ("system_profiler", "SPDisplaysDataType", "-json"): gpu if isinstance(gpu, str) else json.dumps(gpu),
            ("ioreg", "-rd1", "-c", "IOPlatformExpertDevice"): IOREG,
            ("pmset", "-g", "ps"): "Now drawing from 'AC Power'\n",
        } | {("sysctl", "-n", name): f"{value}\n" for name, value in names.items()}

    def without(self, *command):
        del self.answers[command]
        return self

    def __call__(self, argv):
        self.calls.append(tuple(argv))
        try:
            return self.answers[tuple(argv)]
        except KeyError:
            raise Unknown(f"{argv[0]} failed with status 1: unknown {argv[-1]}") from None


def describe(run, **options):
    return macos.machine(run=run, version="15.5", available=lambda: 9_000_000_000, **options)


def facts(machine):
    return {n: f for n in machine.__struct_fields__ if isinstance(f := getattr(machine, n), Fact)}


# The whole


def test_a_mac_is_described_with_a_source_for_every_fact():
    found = describe(Mac())
    assert found.chip == Fact("Apple M4 Pro", "sysctl machdep.cpu.brand_string")
    assert found.machine == Fact(anonymous_id(UUID), "salted hash of ioreg IOPlatformUUID")
    assert found.virtual.value is False
    assert (found.os.value, found.os_build.value) == ("macOS 15.5", "24F74")
    assert (found.logical_cpus.value, found.physical_cores.value, found.usable_cpus.value) == (14, 14, 14)
    assert found.gpu_cores == Fact(20, "system_profiler SPDisplaysDataType sppci_cores")
    assert found.memory_bytes.value == 24 << 30
    assert found.memory_limit_bytes.value == 9_000_000_000
    assert found.cache_line_bytes.value == 128
    assert found.huge_pages.value == "none for user memory"
    assert found.bus_peak_gb_per_s.value == 273.0
    assert all(fact.source for fact in facts(found).values())


def test_only_what_macos_does_not_tell_is_unknown():
    assert {name for name, fact in facts(describe(Mac())).items() if fact.value is None} == {"numa_nodes"}


def test_tiers_have_the_systems_names_and_no_cpu_numbers():
    fast, slow = describe(Mac()).tiers
    assert (fast.name, fast.physical_cores, fast.logical_cpus, fast.l2_bytes) == ("Performance", 10, 10, 16 << 20)
    assert (slow.name, slow.physical_cores, slow.l2_bytes) == ("Efficiency", 4, 4 << 20)
    assert fast.cpus == slow.cpus == ()
    assert fast.cores_in_reach == 10


def test_caches_are_counted_by_tier_and_the_l2_are_summed():
    found = describe(Mac())
    assert Cache(2, "Unified", 16 << 20, 2, 5, "Performance") in found.caches.value
    assert Cache(2, "Unified", 4 << 20, 1, 4, "Efficiency") in found.caches.value
    assert Cache(1, "Data", 128 << 10, 10, 1, "Performance") in found.caches.value
    assert found.last_level_bytes.value == 36 << 20
    assert "no sysctl gives its size" in found.last_level_bytes.source


def test_no_identity_of_machine_or_display_is_in_a_description():
    text = repr(describe(Mac()))
    for secret in (UUID, UUID.lower(), "SERIAL0001", "secret-serial"):
        assert secret not in text


def test_one_call_answers_most_names(monkeypatch):
    monkeypatch.setattr("os.uname", lambda: type("U", (), {"machine": "arm64"}))
    run = Mac()
    describe(run)
    assert [call for call in run.calls if call[0] == "sysctl"] == [
        ("sysctl", "hw", "machdep.cpu"),
        ("sysctl", "-n", "kern.hv_vmm_present"),
        ("sysctl", "-n", "kern.osversion"),
    ]


def test_names_that_the_subtree_does_not_show_are_asked_for_one_by_one():
    names = dict(line.split(": ") for line in SYSCTL.splitlines())
    alone = describe(Mac(names=names).without("sysctl", "hw", "machdep.cpu"))
    assert alone == describe(Mac())


# Other Macs


def test_three_levels_with_new_names_are_three_tiers():
    levels = {"Super": 2, "Performance": 4, "Efficiency": 6}
    lines = ["hw.nperflevels: 3"]
    for level, (name, cores) in enumerate(levels.items()):
        key = f"hw.perflevel{level}"
        lines += [f"{key}.name: {name}", f"{key}.physicalcpu: {cores}", f"{key}.logicalcpu: {cores}"]
    found = describe(Mac(sysctl="\n".join(lines)))
    assert [(tier.name, tier.physical_cores) for tier in found.tiers] == list(levels.items())


def test_a_level_without_a_name_or_a_cache_says_what_is_missing():
    sysctl = "\n".join(
        line for line in SYSCTL.splitlines() if not line.startswith(("hw.perflevel1.name", "hw.perflevel1.l2cachesize"))
    )
    slow = describe(Mac(sysctl=sysctl)).tiers[1]
    assert (slow.name, slow.l2_bytes, slow.physical_cores) == ("perflevel1", None, 4)
    assert "hw.perflevel1.name" in slow.source
    assert "hw.perflevel1.l2cachesize" in slow.source


def test_an_unknown_l2_makes_the_sum_unknown():
    found = describe(Mac(sysctl=SYSCTL.replace("hw.perflevel1.cpusperl2: 4\n", "")))
    assert found.last_level_bytes.value is None
    assert found.caches.value is None
    assert "hw.perflevel1.cpusperl2" in found.last_level_bytes.source


def test_a_cluster_with_fused_off_cores_still_has_its_l2():
    found = describe(Mac(sysctl=SYSCTL.replace("hw.perflevel0.logicalcpu: 10", "hw.perflevel0.logicalcpu: 9")))
    assert found.last_level_bytes.value == 36 << 20


def test_a_mac_without_levels_is_one_tier():
    sysctl = "hw.physicalcpu: 6\nhw.logicalcpu: 12\nmachdep.cpu.brand_string: Intel(R) Core(TM) i7-9750H\n"
    found = describe(Mac(sysctl=sysctl))
    (tier,) = found.tiers
    assert (tier.name, tier.physical_cores, tier.logical_cpus) == ("cpu", 6, 12)
    assert found.last_level_bytes == Fact(None, "no performance levels (hw.nperflevels)")


def test_a_virtual_mac_has_an_unlisted_name_and_no_peak():
    sysctl = SYSCTL.replace("Apple M4 Pro", "Apple M1 (Virtual)")
    run = Mac(sysctl=sysctl, gpu={"SPDisplaysDataType": []}, names={"kern.hv_vmm_present": "1"})
    found = describe(run)
    assert found.virtual.value is True
    assert found.gpu_cores.value is None
    assert found.bus_peak_gb_per_s.value is None
    assert "Apple M1 (Virtual) is not listed" in found.bus_peak_gb_per_s.source


@pytest.mark.parametrize(("cores", "peak"), [("32", 410.0), ("40", 546.0)])
def test_gpu_cores_choose_between_two_buses_of_one_name(cores, peak):
    gpu = json.dumps(GPU).replace('"20"', f'"{cores}"')
    assert describe(Mac(sysctl=SYSCTL.replace("M4 Pro", "M4 Max"), gpu=gpu)).bus_peak_gb_per_s.value == peak


def test_a_translated_python_is_told(monkeypatch):
    monkeypatch.setattr("os.uname", lambda: type("U", (), {"machine": "x86_64"}))
    assert "Rosetta" in describe(Mac(names={"sysctl.proc_translated": "1"})).arch.source
    assert describe(Mac(names={"sysctl.proc_translated": "0"})).arch.source == "uname"
    assert describe(Mac()).arch.source == "uname"  # an Intel Mac has no such name


# What is missing


def test_where_no_command_runs_every_fact_says_why():
    def missing(argv):
        raise Unknown(f"{argv[0]} is not installed")

    found = macos.machine(run=missing, version="", available=lambda: 5)
    known_facts = {name for name, fact in facts(found).items() if fact.value is not None}
    assert known_facts == {"arch", "huge_pages", "memory_limit_bytes"}
    assert found.chip == Fact(None, "sysctl is not installed")
    assert found.gpu_cores == Fact(None, "system_profiler is not installed")
    assert found.machine == Fact(None, "ioreg is not installed")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "not json",
        "[]",
        "null",
        "{}",
        '{"SPDisplaysDataType": null}',
        '{"SPDisplaysDataType": [null]}',
        "[" * 100000,
    ],
)
def test_gpu_output_in_another_form_is_unknown(output):
    fact = known(lambda: macos.gpu_cores(Mac(gpu=output)))
    assert fact.value is None
    assert "system_profiler SPDisplaysDataType" in fact.source


@pytest.mark.parametrize("cores", ["", "many", "0", "-8", "20.5"])
def test_a_gpu_core_count_that_is_none_is_unknown(cores):
    fact = known(lambda: macos.gpu_cores(Mac(gpu={"SPDisplaysDataType": [{"sppci_cores": cores}]})))
    assert fact.value is None


def test_two_gpus_that_differ_are_not_one_count():
    gpu = {"SPDisplaysDataType": [{"sppci_cores": "20"}, {"sppci_cores": "8"}]}
    assert "2 core counts" in known(lambda: macos.gpu_cores(Mac(gpu=gpu))).source


@given(st.text(max_size=80))
def test_garbage_from_every_command_gives_reasons(text):
    found = macos.machine(run=lambda argv: text, version="15.5", available=lambda: 5)
    for fact in facts(found).values():
        assert fact.source
        assert fact.value is False or fact.value not in (0, "", ())


def test_memory_that_cannot_be_counted_is_unknown():
    def fail():
        raise RuntimeError("host_statistics64")

    found = macos.machine(run=Mac(), version="15.5", available=fail)
    assert found.memory_limit_bytes == Fact(None, "psutil gives no memory statistics: RuntimeError")


# Power and heat


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t99%; charged; 0:00 remaining present: true\n", "AC"),
        ("Now drawing from 'Battery Power'\n", "battery"),
        ("Now drawing from 'UPS Power'\n", "UPS"),
    ],
)
def test_the_power_source_is_what_pmset_draws_from(text, source):
    assert macos.power_source(lambda argv: text) == (source, "pmset -g ps")


def test_power_in_other_words_is_unknown():
    with pytest.raises(Unknown, match="pmset -g ps is not understood"):
        macos.power_source(lambda argv: "Currently using 'Solar'\n")


class Notify:
    """libSystem's notify(3) with one level, or with a status that is not 0."""

    def __init__(self, level=0, register_status=0, state_status=0):
        self.cancelled = []

        def notify_register_check(name, token):
            assert name == b"com.apple.system.thermalpressurelevel"
            ctypes.cast(token, ctypes.POINTER(ctypes.c_int))[0] = 77
            return register_status

        def notify_get_state(token, state):
            assert token.value == 77
            ctypes.cast(state, ctypes.POINTER(ctypes.c_uint64))[0] = level
            return state_status

        def notify_cancel(token):
            self.cancelled.append(token.value)
            return 0

        self.notify_register_check = notify_register_check
        self.notify_get_state = notify_get_state
        self.notify_cancel = notify_cancel


@pytest.mark.parametrize("level", [0, 1, 4, 2**40])
def test_the_thermal_level_is_read_and_the_registration_given_back(level):
    lib = Notify(level)
    assert macos.thermal_level(lambda path: lib)[0] == level
    assert lib.cancelled == [77]


def test_a_thermal_name_that_cannot_be_registered_is_unknown():
    with pytest.raises(Unknown, match="notify_register_check gave status 2"):
        macos.thermal_level(lambda path: Notify(register_status=2))


def test_a_thermal_state_that_cannot_be_read_is_unknown_and_given_back():
    lib = Notify(state_status=5)
    with pytest.raises(Unknown, match="notify_get_state gave status 5"):
        macos.thermal_level(lambda path: lib)
    assert lib.cancelled == [77]


@pytest.mark.parametrize("error", [OSError("no such library"), AttributeError("notify_cancel")])
def test_without_libsystem_the_thermal_level_is_unknown(error):
    def load(path):
        raise error

    with pytest.raises(Unknown, match="while loading libSystem"):
        macos.thermal_level(load)
