"""The bus peak: listed, from memory modules, or declared; never guessed.

The dmidecode texts are written from its documented format and from habits of vendors seen in public outputs.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.machine.peak import bus_peak, dmidecode_peak, memory_peak, read_bins
from labkit.machine.sources import Unknown

HEAD = "chip,model_id,cpu_p_cores,cpu_e_cores,gpu_cores,ane_cores,bus_peak_gb_per_s,source,note\n"


def table(tmp_path, *lines):
    path = tmp_path / "chips.csv"
    path.write_text(HEAD + "".join(line + "\n" for line in lines))
    return tmp_path


@pytest.fixture
def bins(tmp_path):
    return table(
        tmp_path,
        "Apple X Max,,10,4,32,16,410,a page,low",
        "Apple X Max,,12,4,40,16,546,another page,full",
        "Apple X Pro,,8,4,16,16,273,a third page,",
        "Apple X Pro,,10,4,20,16,273,a third page,",
        "Apple Y Max,,6,12,32,16,,nowhere,bandwidth not found",
        "Apple Y Max,,6,12,40,16,614,measured,",
    )


# The list


@pytest.mark.parametrize(
    ("chip", "gpu_cores", "peak"),
    [
        ("Apple M4 Pro", 20, 273.0),
        ("Apple M4 Pro", 16, 273.0),
        ("Apple M5 Max", 40, 614.0),
        ("Apple M4 Max", 32, 410.0),
        ("Apple M4 Max", 40, 546.0),
        ("Apple M3 Max", 30, 300.0),
    ],
)
def test_the_shipped_list_knows_the_bins(chip, gpu_cores, peak):
    found = bus_peak(chip, gpu_cores, None, None)
    assert found.value == peak
    assert found.source.startswith("chips.csv: ")


def test_every_line_of_the_shipped_list_has_a_source_that_a_record_can_hold():
    for line in read_bins():
        assert line.source != "no source given"
        assert len(bus_peak(line.chip, line.gpu_cores, line.cpu_cores, None).source) <= 400


def test_two_buses_of_one_name_without_gpu_cores_are_unknown(bins):
    found = bus_peak("Apple X Max", None, None, None, bins)
    assert found.value is None
    assert "410 GB/s (32 GPU cores) or 546 GB/s (40 GPU cores)" in found.source
    assert "GPU cores are unknown" in found.source


def test_cpu_cores_tell_bins_apart_where_gpu_cores_are_unknown(bins):
    assert bus_peak("Apple X Max", None, 14, None, bins).value == 410
    assert bus_peak("Apple X Max", None, 16, None, bins).value == 546


def test_cpu_cores_of_no_listed_bin_tell_nothing(bins):
    assert bus_peak("Apple X Max", None, 6, None, bins).value is None


def test_bins_of_one_bus_need_no_gpu_cores(bins):
    assert bus_peak("Apple X Pro", None, None, None, bins).value == 273


def test_a_bin_without_bandwidth_is_unknown_and_not_its_neighbours(bins):
    found = bus_peak("Apple Y Max", 32, None, None, bins)
    assert found.value is None
    assert "without a bus peak" in found.source
    assert bus_peak("Apple Y Max", None, None, None, bins).value is None
    assert bus_peak("Apple Y Max", None, 18, None, bins).value is None


def test_an_unlisted_bin_is_unknown_and_the_listed_ones_are_named(bins):
    found = bus_peak("Apple X Max", 38, 14, None, bins)
    assert found.value is None
    assert "with 32, 40 GPU cores, not with 38" in found.source


@pytest.mark.parametrize("chip", ["Apple X", "Apple X Ultra", "apple x pro", "Apple X Pro (Virtual)", "", None])
def test_a_similar_name_is_not_the_same_chip(bins, chip):
    found = bus_peak(chip, 20, 14, None, bins)
    assert found.value is None
    assert "--peak-gbs" in found.source


# Declared


def test_a_declared_peak_wins_over_the_list(bins):
    found = bus_peak("Apple X Pro", 20, 14, 300, bins)
    assert (found.value, found.source) == (300.0, "declared by --peak-gbs")


@pytest.mark.parametrize("declared", [0, -5.0, float("nan"), float("inf"), float("-inf")])
def test_a_declared_peak_that_is_no_rate_is_refused(bins, declared):
    with pytest.raises(BadInput, match="above 0"):
        bus_peak("Apple X Pro", 20, 14, declared, bins)


# A damaged list


@pytest.mark.parametrize("peak", ["fast", "-273", "0", "nan", "inf"])
def test_a_garbled_line_is_named_and_gives_no_peak(tmp_path, peak):
    found = bus_peak("Apple X", 8, None, None, table(tmp_path, f"Apple X,,4,4,8,16,{peak},a page,"))
    assert found.value is None
    assert re.search(r"cannot be used: chips.csv, line 2: .*bus_peak_gb_per_s", found.source)
    assert str(tmp_path) not in found.source


def test_a_missing_or_binary_list_is_a_reason(tmp_path):
    assert "No such file" in bus_peak("Apple X", 8, 8, None, tmp_path).source
    (tmp_path / "chips.csv").write_bytes(b"\xff\xfe\x00chip")
    assert "chips.csv: cannot be read: 'utf-8' codec" in bus_peak("Apple X", 8, 8, None, tmp_path).source


def test_a_list_with_other_columns_is_a_reason(tmp_path):
    path = tmp_path / "chips.csv"
    path.write_text("name,peak\nApple X,273\n")
    assert "line 1: the columns are ['name', 'peak']" in bus_peak("Apple X", 8, 8, None, tmp_path).source


@given(st.binary(max_size=200))
def test_no_list_at_all_raises(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp()
    (folder / "chips.csv").write_bytes(content)
    assert bus_peak("Apple X", 8, 8, None, folder).value is None


# Memory modules


def device(locator, bank="Not Specified", size="16 GB", configured="3200 MT/s", speed=None, **fields):
    values = {
        "Array Handle": "0x0023",
        "Total Width": "72 bits",
        "Data Width": "64 bits",
        "Size": size,
        "Form Factor": "DIMM",
        "Locator": locator,
        "Bank Locator": bank,
        "Type": "DDR4",
        "Type Detail": "Synchronous Registered (Buffered)",
        "Speed": speed or configured,
        "Manufacturer": "Example",
        "Configured Memory Speed": configured,
    } | {key.replace("_", " "): value for key, value in fields.items()}
    body = "".join(f"\t{key}: {value}\n" for key, value in values.items() if value is not None)
    return f"Handle 0x002B, DMI type 17, 84 bytes\nMemory Device\n{body}\n"


def empty(locator, bank="Not Specified"):
    return device(
        locator, bank, "No Module Installed", "Unknown", Data_Width="Unknown", Type="Unknown", Total_Width="Unknown"
    )


BANNER = "# dmidecode 3.4\nGetting SMBIOS data from sysfs.\nSMBIOS 3.3.0 present.\n\n"


def peak(*devices):
    return memory_peak(BANNER + "".join(devices))


def test_channels_count_and_slots_do_not():
    """Two modules on each of two channels: four slots in use, two channels."""
    devices = [device(f"DIMM {slot}", f"P0 CHANNEL {c}") for c in "AB" for slot in (0, 1)]
    assert peak(*devices) == (51.2, "dmidecode -t 17: 2 channels (4 modules) at 3200 MT/s")


def test_an_empty_channel_does_not_count():
    devices = [device(f"DIMM_{c}1") if c != "H" else empty("DIMM_H1") for c in "ABCDEFGH"]
    assert peak(*devices)[0] == pytest.approx(7 * 25.6)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("AMD client", [("DIMM 0", "P0 CHANNEL A"), ("DIMM 0", "P0 CHANNEL B")]),
        ("two sockets", [("P1-DIMMA1", "P0_Node0_Channel0_Dimm0"), ("P2-DIMMA1", "P1_Node1_Channel0_Dimm0")]),
        ("server, one socket", [("DIMMA1", "P0_Node0_Channel0_Dimm0"), ("DIMMB1", "P0_Node0_Channel1_Dimm0")]),
        ("board with letters", [("DIMM_A2", "BANK 1"), ("DIMM_B2", "BANK 3")]),
        ("board with letters and sockets", [("CPU0_DIMM_A1", "NODE 0"), ("CPU1_DIMM_A1", "NODE 1")]),
        ("socket between", [("DIMM_P0_A0", "BANK 0"), ("DIMM_P0_B0", "BANK 1")]),
        ("two controllers", [("Controller0-ChannelA-DIMM0", "BANK 0"), ("Controller1-ChannelA-DIMM0", "BANK 0")]),
        ("one controller", [("ChannelA-DIMM1", "BANK 1"), ("ChannelB-DIMM1", "BANK 3")]),
        ("laptop", [("DIMM A", "Not Specified"), ("DIMM B", "Not Specified")]),
    ],
)
def test_vendors_ways_to_name_two_channels(name, places):
    assert peak(*(device(locator, bank) for locator, bank in places))[1].startswith("dmidecode -t 17: 2 channels")


@pytest.mark.parametrize(
    "places",
    [
        [("DIMM_A1", "BANK 0"), ("DIMM_A2", "BANK 1")],
        [("DIMM 0", "P0 CHANNEL A"), ("DIMM 1", "P0 CHANNEL A")],
        [("Controller0-ChannelA-DIMM0", "BANK 0"), ("Controller0-ChannelA-DIMM1", "BANK 1")],
        [("P1-DIMMA1", "P0_Node0_Channel0_Dimm0"), ("P1-DIMMA2", "P0_Node0_Channel0_Dimm1")],
    ],
)
def test_two_modules_of_one_channel_are_one_channel(places):
    assert peak(*(device(locator, bank) for locator, bank in places))[0] == pytest.approx(25.6)


@pytest.mark.parametrize("locator", ["DIMM 0", "A1", "PROC 1 DIMM 3", "RAM slot #0", "DIMM1", "M0001", "Not Specified"])
def test_slots_without_a_channel_are_unknown(locator):
    with pytest.raises(Unknown, match="cannot be told"):
        peak(device(locator))


def test_channels_named_in_two_ways_are_not_added_up():
    with pytest.raises(Unknown, match="different ways"):
        peak(device("DIMM_A1"), device("DIMM 1", "P0 CHANNEL B"))


def test_the_configured_rate_counts_and_not_what_the_module_could_do():
    assert peak(device("DIMM_A1", configured="2933 MT/s", speed="3200 MT/s"))[0] == pytest.approx(2.933 * 8)


def test_the_slowest_module_sets_its_channels_rate():
    found = peak(device("DIMM_A1", configured="3200 MT/s"), device("DIMM_A2", configured="2666 MT/s"))
    assert found[0] == pytest.approx(2.666 * 8)
    assert "2666/3200 MT/s" in found[1]


def test_old_dmidecode_names_the_rate_a_clock_in_mhz():
    text = device("DIMM_A1", Configured_Memory_Speed=None, Configured_Clock_Speed="2400 MHz", Speed="2400 MHz")
    assert peak(text)[0] == pytest.approx(19.2)


@pytest.mark.parametrize("configured", ["Unknown", "0 MT/s", "", "fast"])
def test_a_rate_that_is_not_told_is_unknown_and_the_rated_speed_does_not_stand_in(configured):
    with pytest.raises(Unknown, match="configured speed"):
        peak(device("DIMM_A1", configured=configured, speed="3200 MT/s"))


def test_a_rate_of_half_the_rated_one_may_be_a_clock_and_is_unknown():
    """Seen in public outputs: "Speed: 2666 MT/s", "Configured Memory Speed: 1333 MT/s"."""
    with pytest.raises(Unknown, match="a clock or a rate"):
        peak(device("DIMM 0", "P0 CHANNEL A", configured="1333 MT/s", speed="2666 MT/s"))


def test_soldered_parts_count_with_the_width_they_state():
    devices = [
        device(
            f"Controller{c}-Channel{x}", "BANK 0", "2 GB", "4267 MT/s", Form_Factor="Row Of Chips", Data_Width="16 bits"
        )
        for c in (0, 1)
        for x in "ABCD"
    ]
    assert peak(*devices)[0] == pytest.approx(8 * 4.267 * 2)


def test_parts_of_one_narrow_channel_are_unknown():
    part = device("ChannelA-DIMM0", Form_Factor="Row Of Chips", Data_Width="32 bits")
    with pytest.raises(Unknown, match="narrower than 64 bits"):
        peak(part, part.replace("DIMM0", "DIMM1"))


def test_a_module_of_unknown_width_is_64_bits_and_a_soldered_part_is_unknown():
    assert peak(device("DIMM_A1", Data_Width="Unknown"))[0] == pytest.approx(25.6)
    with pytest.raises(Unknown, match="data width"):
        peak(device("ChannelA", Data_Width="Unknown", Form_Factor="Chip"))


def test_a_flash_chip_is_no_memory_channel():
    assert peak(device("DIMM_A1"), device("BIOS", Type="Flash"))[0] == pytest.approx(25.6)


@pytest.mark.parametrize(
    "text", ["", BANNER, empty("DIMM_A1"), "# dmidecode 3.4\n# No SMBIOS nor DMI entry point found\n"]
)
def test_output_without_a_module_is_unknown(text):
    with pytest.raises(Unknown, match="lists no memory module"):
        memory_peak(text)


@pytest.mark.parametrize("size", ["Unknown", "0 MB", ""])
def test_a_module_of_unknown_size_is_neither_there_nor_absent(size):
    with pytest.raises(Unknown, match="size"):
        peak(device("DIMM_A1", size=size))


def test_a_virtual_machine_that_tells_no_speed_is_unknown():
    with pytest.raises(Unknown, match="dmidecode -t 17"):
        peak(device("DIMM 0", size="4096 MB", configured="Unknown", Type="RAM", Total_Width="Unknown"))


def test_a_dmidecode_that_may_not_run_tells_how_to_go_on():
    def denied(argv):
        assert argv == ["dmidecode", "-t", "17"]
        raise Unknown("dmidecode failed with status 1: /dev/mem: Permission denied")

    with pytest.raises(Unknown, match="Permission denied; pass --peak-gbs if you know it"):
        dmidecode_peak(denied)


@given(
    st.text(max_size=300) | st.just(device("DIMM_A1")).flatmap(lambda d: st.integers(0, len(d)).map(lambda n: d[:n]))
)
def test_any_text_gives_a_rate_above_zero_or_a_reason(text):
    try:
        found, source = memory_peak(text)
    except Unknown:
        return
    assert found > 0
    assert source
