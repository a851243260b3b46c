"""Bus runs made by rule, for tests of what is made of them."""

from labkit.bus.plan import Point
from labkit.records import Header, Row, Run
from labkit.records.schema import End

STEADY = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.003, 0.997)
"""Nine repeats with a spread of 2 %."""


def series(rate, wobble=STEADY, **point):
    """Rows of one point: `rate` GB/s times the wobble of each repeat."""
    fields = {
        "quantity": "read_bandwidth",
        "unit": "GB/s",
        "probe": "sweep",
        "engine": "cpu",
        "op": "read",
        "kernel": "llvm",
        "threads": 1,
        "tier": "all",
        "bytes": 2**30,
        "cpu_share": 1.0,
        "pressure": 0.0,
        "steal": 0.0,
        "page_faults": 0,
        "wrong": 0,
        **point,
    }
    return [Row(value=rate * factor, repeat=n, **fields) for n, factor in enumerate(wobble)]


def good(rates=(33.0, 60.0), **changes):
    """The rows of a sweep over 1 and 2 threads in which every proof holds; `changes` replace whole series by name."""
    one, two = rates
    parts = {
        "one": series(one),
        "two": series(two, threads=2),
        "one_numpy": series(one * 0.97, kernel="numpy"),
        "two_numpy": series(two * 0.98, kernel="numpy", threads=2),
        "knee": series(two * 1.01, probe="knee", threads=2, bytes=2**29),
        "knee_numpy": series(two * 0.99, probe="knee", threads=2, bytes=2**29, kernel="numpy"),
        "ceiling": series(one * 3, probe="ceiling", bytes=2**19),
        "scaling": series(200, probe="scaling", bytes=2**14),
        "scaling_two": series(395, probe="scaling", bytes=2**15, threads=2),
    }
    unknown = set(changes) - set(parts)
    assert not unknown, unknown
    return [row for rows in {**parts, **changes}.values() for row in rows]


def run(rows, status="complete", reason=None, before=None, after=None, **header):
    """A measured run of these rows, on a machine with a bus peak of 100 GB/s."""
    fields = {
        "schema": 1,
        "run_id": "20261130T201500Z-bus-00000000",
        "primitive": "bus",
        "kind": "measured",
        "chip": "Test Chip",
        "machine": "0123456789ab",
        "started_at": "2026-11-30T20:15:00.000+00:00",
        "bus_peak_gb_per_s": 100.0,
        "bus_peak_source": "declared",
        "parameters": {"huge_page_share": 1.0, "threads": [1, 2], "main_tier": "all"},
        "state_before": {"unquiet": [], "power_source": "AC", "thermal_level": 0, **(before or {})},
        **header,
    }
    end = End(
        status=status,
        rows=len(rows),
        finished_at="2026-11-30T20:16:00.000+00:00",
        sha256="0" * 64,
        reason=reason,
        state_after={"power_source": "AC", "thermal_level": 0, **(after or {})},
    )
    return Run(header=Header(**fields), rows=tuple(rows), end=end, path="test")


POINT = Point("sweep", "read", "llvm", 1, "all", 2**28)
