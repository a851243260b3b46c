"""The machine: what it is, how it is now, and what its memory bus can do. This is the package's only door.

`from labkit.machine import describe, state`. Tables for a terminal are in labkit.machine.show.
"""

from labkit.machine.clusters import core_types, types_seen
from labkit.machine.facts import Cache, Fact, Machine, NumaNode, Tier
from labkit.machine.here import describe
from labkit.machine.peak import bus_peak
from labkit.machine.state import Counters, Delta, State, counters, delta, quiet_reasons, state

__all__ = [
    "Cache",
    "Counters",
    "Delta",
    "Fact",
    "Machine",
    "NumaNode",
    "State",
    "Tier",
    "bus_peak",
    "core_types",
    "counters",
    "delta",
    "describe",
    "quiet_reasons",
    "state",
    "types_seen",
]
