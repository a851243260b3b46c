"""The machine and its state as tables for a terminal: fact, value, source."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from labkit.machine.facts import Cache, Fact, Machine, Tier
from labkit.machine.state import State, quiet_reasons

UNKNOWN = "unknown"
BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_machine(machine: Machine, state: State, console: Console) -> None:
    """Print every fact and the state, each with its source, and whether the machine is quiet."""
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    reasons = quiet_reasons(state)
    console.print(facts_table(machine))
    console.print(tiers_table(machine.tiers))
    # Text: what a system says of itself may hold square brackets, which are markup in plain strings.
    console.print(Text(f"Versions: {versions}\n"))
    console.print(state_table(state))
    console.print(
        Text("Not quiet: " + "; ".join(reasons) if reasons else "Quiet: nothing speaks against measuring now.")
    )


def facts_table(machine: Machine) -> Table:
    table = _table("Machine", "fact", "value", "source")
    for name in machine.__struct_fields__:
        fact = getattr(machine, name)
        if isinstance(fact, Fact):
            _add(table, name, text(name, fact.value), fact.source)
    return table


def tiers_table(tiers: tuple[Tier, ...]) -> Table:
    table = _table("Core tiers", "tier", "cores", "logical CPUs", "order of use", "L2", "source")
    for tier in tiers:
        _add(
            table,
            tier.name,
            text("cores", tier.physical_cores),
            text("cpus", tier.logical_cpus),
            " ".join(str(cpu) for cpu in tier.cpus) or "-",
            text("l2_bytes", tier.l2_bytes),
            tier.source,
        )
    return table


def state_table(state: State) -> Table:
    table = _table(f"State at {state.at}", "what", "value", "source")
    for name in state.__struct_fields__:
        if name in state.sources:
            _add(table, name, text(name, getattr(state, name)), state.sources[name])
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", ratio=2 if column == "source" else None)
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(cell) for cell in cells))


def text(name: str, value: Any) -> str:
    """A value as a reader wants it; `name` tells its unit. None is "unknown"."""
    if value is None:
        return UNKNOWN
    if name.endswith("_bytes"):
        return binary_size(value)
    if name in ("busy", "busy_others"):
        return f"{value:.1%}"
    if name == "cpu_pressure_avg10":
        return f"{value:.2f} %"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    if name == "caches":
        return "\n".join(_cache(cache) for cache in value)
    if name == "numa_nodes":
        return "\n".join(f"{n.node}: CPUs {' '.join(map(str, n.cpus)) or 'none'}" for n in value)
    return str(value)


def _cache(cache: Cache) -> str:
    sharers = "1 CPU" if cache.shared_by == 1 else f"{cache.shared_by} CPUs"
    tier = f" ({cache.tier})" if cache.tier else ""
    size = binary_size(cache.bytes)
    return f"{cache.instances} x L{cache.level} {cache.type.lower()} {size}, {sharers} each{tier}"


def binary_size(count: int) -> str:
    """Bytes in the largest binary unit that keeps at least one of it: 32768 -> "32 KiB"."""
    power = min((max(count, 1).bit_length() - 1) // 10, len(BINARY_UNITS) - 1)
    return f"{count / 1024**power:.2f}".rstrip("0").rstrip(".") + f" {BINARY_UNITS[power]}"
