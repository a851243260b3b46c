"""Linux facts from fake trees: a whole server, a bare container, ids and their fallbacks, garbage in every file."""

import pytest

from labkit.errors import BadInput
from labkit.machine import Fact, linux
from labkit.machine.facts import anonymous_id
from labkit.machine.sources import Unknown, known

CPU = "sys/devices/system/cpu"
MACHINE_ID = "0123456789abcdef0123456789abcdef"
UUID = "4c4c4544-0042-3510-8052-b4c04f4a4d32"

SERVER = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Example  CPU @ 3.00GHz\nflags\t\t: fpu vme hypervisor avx2\n",
    "proc/meminfo": "MemTotal:  16000000 kB\nMemAvailable:   12000000 kB\nHugePages_Total:       0\n",
    "proc/sys/kernel/osrelease": "6.12.0-1-amd64\n",
    "proc/self/cgroup": "0::/job/step\n",
    "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
    "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
    "sys/fs/cgroup/job/memory.max": "8000000000\n",
    "etc/machine-id": MACHINE_ID + "\n",
    "etc/os-release": 'NAME="Example"\nPRETTY_NAME="Example Linux 13 (sid)"\nID=example\n',
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    f"{CPU}/online": "0-3\n",
}
for _cpu in range(4):
    _pair = f"{_cpu % 2},{_cpu % 2 + 2}\n"
    SERVER[f"{CPU}/cpu{_cpu}/topology/core_cpus_list"] = _pair
    for _index, _level, _kind, _size, _shared in (
        (0, 1, "Data", "32K", _pair),
        (1, 2, "Unified", "1024K", _pair),
        (2, 3, "Unified", "16M", "0-3\n"),
    ):
        for _name, _value in (
            ("level", f"{_level}\n"),
            ("type", f"{_kind}\n"),
            ("size", f"{_size}\n"),
            ("shared_cpu_list", _shared),
            ("coherency_line_size", "64\n"),
        ):
            SERVER[f"{CPU}/cpu{_cpu}/cache/index{_index}/{_name}"] = _value


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def no_command(argv):
    raise Unknown(f"{argv[0]} is not installed")


def describe(root, reach=range(4), **options):
    return linux.machine(root=root, run=no_command, allowed=reach, **options)


def facts(machine):
    return {n: f for n in machine.__struct_fields__ if isinstance(f := getattr(machine, n), Fact)}


def test_a_server_is_described_with_a_source_for_every_fact(tmp_path):
    found = describe(write(tmp_path, SERVER))
    assert found.chip == Fact("Example CPU @ 3.00GHz", "/proc/cpuinfo model name")
    assert found.machine == Fact(anonymous_id(MACHINE_ID), "salted hash of /etc/machine-id")
    assert found.virtual.value is True
    assert found.os == Fact("Example Linux 13 (sid)", "/etc/os-release")
    assert found.os_build.value == "6.12.0-1-amd64"
    assert (found.logical_cpus.value, found.physical_cores.value) == (4, 2)
    assert found.usable_cpus == Fact(2, "cgroup v2 cpu.max (1 level above) = 2.5 CPUs, in whole CPUs")
    assert found.memory_bytes.value == 16000000 * 1024
    assert found.memory_limit_bytes == Fact(8000000000, "cgroup v2 memory.max (1 level above)")
    assert found.cache_line_bytes.value == 64
    assert found.last_level_bytes.value == 16 << 20
    assert found.huge_pages.value == "madvise"
    (tier,) = found.tiers
    assert (tier.cpus, tier.cores_in_reach, tier.l2_bytes) == ((0, 1, 2, 3), 2, 1 << 20)


def test_only_what_linux_cannot_tell_is_unknown_on_a_server(tmp_path):
    unknown = {name for name, fact in facts(describe(write(tmp_path, SERVER))).items() if fact.value is None}
    assert unknown == {"gpu_cores", "bus_peak_gb_per_s"}


def test_an_empty_root_gives_unknown_facts_with_reasons_and_no_zero(tmp_path):
    found = describe(tmp_path, reach={0, 1})
    known_facts = {name for name, fact in facts(found).items() if fact.value is not None}
    assert known_facts == {"arch", "usable_cpus"}  # from the running system, not from files
    assert all(fact.source for fact in facts(found).values())
    assert found.tiers[0].cpus == (0, 1)
    assert str(tmp_path) not in repr(found)


GARBAGE = ["", "\0\0\0", "max max max", "-1", "99999999999999999999999999", "\ud7ff" * 50, ": : :\n" * 9]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return write(tmp_path_factory.mktemp("server"), SERVER)


@pytest.mark.parametrize("name", sorted(SERVER))
def test_garbage_in_any_one_file_never_raises_and_never_becomes_nothing(server, name):
    for text in GARBAGE:
        (server / name).write_text(text)
        for fact in facts(describe(server)).values():
            assert fact.source
            assert fact.value is False or fact.value not in (0, "", ())
    (server / name).write_text(SERVER[name])


@pytest.mark.parametrize("name", sorted(SERVER))
def test_a_folder_in_any_one_files_place_never_raises(server, name):
    (server / name).unlink()
    (server / name).mkdir()
    assert all(fact.source for fact in facts(describe(server)).values())
    (server / name).rmdir()
    (server / name).write_text(SERVER[name])


def test_a_garbled_quota_leaves_the_usable_cpus_unknown(tmp_path):
    root = write(tmp_path, SERVER | {"sys/fs/cgroup/job/cpu.max": "a lot"})
    assert describe(root).usable_cpus.value is None
    assert "cpu.max (1 level above) is not a whole number: 'a'" in describe(root).usable_cpus.source


def test_a_quota_above_the_affinity_does_not_count(tmp_path):
    root = write(tmp_path, SERVER)
    assert describe(root, reach={3}).usable_cpus == Fact(1, "affinity; no lower cgroup CPU quota")


def test_a_quota_below_one_cpu_leaves_one(tmp_path):
    root = write(tmp_path, SERVER | {"sys/fs/cgroup/job/cpu.max": "50000 100000"})
    assert describe(root).usable_cpus == Fact(1, "cgroup v2 cpu.max (1 level above) = 0.5 CPUs, in whole CPUs")


def test_a_declared_peak_wins_over_the_modules(tmp_path):
    assert describe(tmp_path, peak_gbs=50).bus_peak_gb_per_s == Fact(50.0, "declared by --peak-gbs")
    with pytest.raises(BadInput):
        describe(tmp_path, peak_gbs=0)


def test_the_bus_peak_comes_from_dmidecode_where_it_may_be_run(tmp_path):
    device = (
        "Handle 0x0010, DMI type 17, 92 bytes\nMemory Device\n\tData Width: 64 bits\n\tSize: 16 GB\n"
        "\tForm Factor: DIMM\n\tLocator: DIMM 0\n\tBank Locator: P0 CHANNEL A\n\tType: DDR5\n"
        "\tSpeed: 5600 MT/s\n\tConfigured Memory Speed: 5600 MT/s\n"
    )
    found = linux.machine(root=tmp_path, run=lambda argv: device, allowed={0})
    assert found.bus_peak_gb_per_s == Fact(44.8, "dmidecode -t 17: 1 channels (1 modules) at 5600 MT/s")
    assert describe(tmp_path).bus_peak_gb_per_s.source.startswith("dmidecode is not installed")


# The chip's name


def test_arm_cores_are_named_by_their_implementer_and_part(tmp_path):
    cpu = "processor\t: {}\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: {}\n\n"
    text = cpu.format(0, "0xd05") + cpu.format(1, "0xd0b") + cpu.format(2, "0xd0b")
    root = write(tmp_path, {"proc/cpuinfo": text})
    assert linux.chip(root) == ("ARM 0x41/0xd05 + 0x41/0xd0b", "/proc/cpuinfo CPU implementer/part")
    assert known(lambda: linux.virtual(root)).value is None


def test_a_chip_without_a_name_is_unknown(tmp_path):
    root = write(tmp_path, {"proc/cpuinfo": "model name\t:\nbogomips : 1\n"})
    with pytest.raises(Unknown, match="names no CPU model"):
        linux.chip(root)


# The machine's id


def test_a_container_without_machine_id_falls_back_to_the_product_uuid(tmp_path):
    root = write(tmp_path, {"etc/machine-id": "", "sys/class/dmi/id/product_uuid": UUID.upper() + "\n"})
    assert linux.hardware_id(root) == (anonymous_id(UUID), "salted hash of /sys/class/dmi/id/product_uuid")


@pytest.mark.parametrize("text", ["uninitialized\n", "0" * 32, "f" * 32, "0123"])
def test_a_machine_id_that_was_never_set_is_not_an_identity(tmp_path, text):
    root = write(tmp_path, {"etc/machine-id": text, "sys/class/dmi/id/product_uuid": "0" * 8})
    with pytest.raises(Unknown, match="no /etc/machine-id and no readable DMI product UUID"):
        linux.hardware_id(root)


def test_a_network_address_is_no_identity(tmp_path):
    """There are so few of them that a hash of one is undone by trying all."""
    root = write(tmp_path, {"sys/class/net/eth0/address": "a4:bb:6d:00:00:01\n"})
    with pytest.raises(Unknown):
        linux.hardware_id(root)


def test_no_raw_id_appears_in_a_description(tmp_path):
    files = SERVER | {"sys/class/dmi/id/product_uuid": UUID}
    text = repr(describe(write(tmp_path, files)))
    assert MACHINE_ID not in text
    assert UUID not in text


@pytest.mark.parametrize(
    "line", ["MemTotal: 5 MB", "MemTotal:", "MemTotal: many kB", "MemTotal: -5 kB", "MemTotal: 0 kB"]
)
def test_memory_in_another_form_is_unknown(tmp_path, line):
    with pytest.raises(Unknown, match="MemTotal"):
        linux.memory_field(write(tmp_path, {"proc/meminfo": line + "\n"}), "MemTotal")
