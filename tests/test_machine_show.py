"""The tables show every fact with its source, whatever the values are."""

import io

import msgspec
import pytest
from rich.console import Console

from labkit.machine import Cache, Fact, Machine, NumaNode, State, Tier
from labkit.machine.show import binary_size, print_machine, text

FACTS = [name for name in Machine.__struct_fields__ if name not in ("tiers", "versions")]
STATE = [name for name in State.__struct_fields__ if name not in ("at", "sources")]

UNKNOWN_MACHINE = Machine(
    **{name: Fact(None, f"why-{name}") for name in FACTS},
    tiers=(Tier("cpu", (), None, None, None, None, "why-tiers"),),
    versions={"python": "3.11.0"},
)
UNKNOWN_STATE = State(
    at="2026-01-01T00:00:00+00:00",
    sources={name: f"because-{name}" for name in STATE},
    **dict.fromkeys(STATE),
)


def printed(machine, state, width=200):
    console = Console(file=io.StringIO(), width=width)
    print_machine(machine, state, console)
    return console.file.getvalue()


def test_an_unknown_machine_shows_the_reason_for_every_fact():
    shown = printed(UNKNOWN_MACHINE, UNKNOWN_STATE)
    for name in FACTS:
        assert f"why-{name}" in shown
    for name in STATE:
        assert f"because-{name}" in shown
    assert "why-tiers" in shown
    assert "None" not in shown
    assert shown.count("unknown") >= len(FACTS) + len(STATE)


def test_known_values_are_shown_with_their_units():
    machine = msgspec.structs.replace(
        UNKNOWN_MACHINE,
        memory_bytes=Fact(24 << 30, "m"),
        virtual=Fact(False, "v"),
        bus_peak_gb_per_s=Fact(273.0, "p"),
        caches=Fact((Cache(2, "Unified", 16 << 20, 2, 5, "Performance"),), "c"),
        numa_nodes=Fact((NumaNode(0, (0, 1)), NumaNode(1, ())), "n"),
        tiers=(Tier("Performance", (0, 2, 1, 3), 2, 2, 4, 4 << 20, "t"),),
    )
    state = msgspec.structs.replace(UNKNOWN_STATE, busy_others=0.25, logical_cpus=4, usable_cpus=4)
    shown = printed(machine, state)
    for part in (
        "24 GiB",
        "2 x L2 unified 16 MiB, 5 CPUs each (Performance)",
        "0: CPUs 0 1",
        "1: CPUs none",
        "0 2 1 3",
    ):
        assert part in shown
    assert " no " in shown
    assert "273 " in shown
    assert "25.0%" in shown
    assert "Not quiet: other work uses 25% of the 4 usable CPUs" in shown
    assert "python 3.11.0" in shown


def test_a_quiet_machine_is_called_quiet():
    state = msgspec.structs.replace(UNKNOWN_STATE, busy_others=0.0, logical_cpus=4, usable_cpus=4)
    assert "Quiet: nothing speaks against measuring now." in printed(UNKNOWN_MACHINE, state)


def test_square_brackets_are_shown_and_not_taken_for_markup():
    machine = msgspec.structs.replace(UNKNOWN_MACHINE, huge_pages=Fact(None, "not understood: '[/never] [red]x'"))
    assert "not understood: '[/never] [red]x'" in printed(machine, UNKNOWN_STATE)


def test_a_narrow_terminal_loses_no_character_of_a_source():
    shown = printed(UNKNOWN_MACHINE, UNKNOWN_STATE, width=60)
    squeezed = "".join(shown.split())
    assert "why-bus_peak_gb_per_s" in squeezed


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (64, "64 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (48 << 10, "48 KiB"),
        (1536, "1.5 KiB"),
        (5 << 40, "5 TiB"),
    ],
)
def test_sizes_are_in_binary_units(count, shown):
    assert binary_size(count) == shown


def test_zero_is_shown_as_zero_and_not_as_unknown():
    assert text("throttled_us", 0) == "0"
    assert text("steal_s", 0.0) == "0"
    assert text("busy", 0.0) == "0.0%"
