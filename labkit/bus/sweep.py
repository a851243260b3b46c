"""Take the measurement: visit every point of the plan in every repeat, keep each window with its evidence."""

import hashlib
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from labkit import machine, protocol, source
from labkit.bus import gates, gpu, memory
from labkit.bus.plan import Point
from labkit.bus.prepare import Prepared
from labkit.records import Code, Header, Row, new_run_id, utc_now
from labkit.windows import Engine, NotTogether, Window, now_ns, together

Progress = Callable[[str, int, int], None]
"""Called before each window with what is measured, the windows done and the windows of the repeats planned."""


class Measured(msgspec.Struct, frozen=True):
    """A finished or interrupted sweep, ready to be written."""

    header: Header
    rows: tuple[Row, ...]
    state_after: dict[str, Any]
    reason: str | None = None  # why it is partial


def sweep(prepared: Prepared, progress: Progress) -> Measured:
    """Measure. Ctrl-C gives what whole repeats there are. Raises Refused, ChildFailed, NotAvailable.

    The caller holds the machine's measuring lock and writes the result.
    """
    settings, here, seed = prepared.settings, prepared.here, prepared.seed
    progress("waiting for a quiet machine", 0, 0)
    before, unquiet = protocol.wait_until_quiet(settings.quiet_s)
    session = Session(prepared, progress)
    code = Code(version=here.versions["labkit"], source=source.package_digest(), dirty=source.dirty())
    header = partial(
        Header,
        schema=1,
        run_id=new_run_id("bus"),
        primitive="bus",
        kind="measured",
        chip=here.chip.value or "unknown",
        # Never one name for two machines, even where nothing tells them apart.
        machine=here.machine.value or f"unknown-{secrets.token_hex(4)}",
        gpu_cores=here.gpu_cores.value,
        bus_peak_gb_per_s=here.bus_peak_gb_per_s.value,
        bus_peak_source=here.bus_peak_gb_per_s.source,
        started_at=utc_now(),
        key=_key(prepared, code.source),
        labkit=code,
        facts=msgspec.to_builtins(here),
        state_before={**msgspec.to_builtins(before), "unquiet": unquiet},
        versions=here.versions,
        thresholds=gates.THRESHOLDS,
    )
    reason = None
    try:
        protocol.interleave(prepared.points, session.measure, seed=seed, budget_s=settings.budget_s)
    except KeyboardInterrupt:
        reason = "interrupted"
    pages, share = memory.page_mode(session.bench.regions) if session.bench.regions else ("unknown", None)
    parameters = {
        "quick": settings.quick,
        "main_tier": prepared.tiers[0].name,
        "threads": prepared.counts,
        "kernels": settings.kernels,
        "doubts": prepared.doubts,
        "seed": seed,
        "window_s": settings.window_s,
        "footprint_bytes": prepared.footprint,
        "pages": pages,
        "huge_page_share": share,
        "windows_lost": session.lost,
    }
    rows = [row for row in session.rows if not reason or row.repeat < session.under_way]
    after = machine.state()
    # Its own threads are in the pressure of the last ten seconds; what others use at this moment is theirs.
    later = machine.quiet_reasons(msgspec.structs.replace(after, cpu_pressure_avg10=None))
    return Measured(
        header=header(parameters=parameters),
        rows=tuple(rows),
        state_after={**msgspec.to_builtins(after), "unquiet": later},
        reason=reason,
    )


def _key(prepared: Prepared, code: str) -> str:
    """sha256 over what determines a run: runs of one key repeat each other."""
    same = (prepared.settings, prepared.points, prepared.here.machine, prepared.here.os_build, prepared.here.versions)
    return hashlib.sha256(msgspec.json.encode((code, *same), order="sorted")).hexdigest()


class Session:
    """A sweep under way: takes one window at a time and keeps its rows."""

    def __init__(self, prepared: Prepared, progress: Progress) -> None:
        from labkit.bus.work import Bench

        tiers = prepared.tiers
        self.bench = Bench(prepared.compiled, partial(memory.region_bytes, prepared.footprint), prepared.seed)
        self.rows: list[Row] = []
        self.under_way = -1  # the repeat that is being taken
        self.lost = 0  # windows whose workers did not work at the same time
        self._window_s = prepared.settings.window_s
        self._tiers = {tier.name: tier for tier in tiers}
        # Affinity is a promise and needs no check; a QoS class is a hint and does.
        self._core_types = machine.core_types() if any(tier.qos is not None for tier in tiers) else {}
        self._accelerator = None if prepared.operand is None else gpu.GpuBench(prepared.operand, prepared.seed)
        self._progress = progress
        self._planned = len(prepared.points) * (protocol.REPEATS + 1)
        self._done = 0
        self._start_ns = now_ns()

    def measure(self, point: Point, repeat: int) -> float | None:
        """One window at `point`; its rate in GB/s, or None when the window does not count."""
        self._progress(describe(point), self._done, self._planned)
        self._done += 1
        self.under_way = repeat
        engines = {}
        if point.engine == "cpu":
            engines["cpu"] = self.bench.openers(point, self._tiers[point.tier])
        if "gpu" in (point.engine, point.beside) and self._accelerator is not None:
            engines["gpu"] = [self._accelerator.opener(point.op if point.engine == "gpu" else "sum")]
        self.bench.cpus_seen.clear()
        wrong = self.bench.wrong, self._accelerator.wrong if self._accelerator else 0
        before = machine.counters()
        try:
            # A GPU's unit of work takes many times as long as a core's: fewer of them are cut off at the ends.
            window = together(engines, self._window_s * (2 if "gpu" in engines else 1))
        except NotTogether:
            self.lost += 1
            return None
        changed = machine.delta(before, machine.counters())
        self.bench.check_written()
        if repeat < 0:
            return None
        evidence = {
            "at": max(0.0, (window.start_ns - self._start_ns) / 1e9),
            "window_s": window.seconds,
            "pressure": changed.pressure,
            "steal": changed.steal,
            "throttled": changed.throttled,
            "tier_seen": machine.types_seen(self.bench.cpus_seen, self._core_types),
        }
        wrong_now = {
            "cpu": self.bench.wrong - wrong[0],
            "gpu": (self._accelerator.wrong if self._accelerator else 0) - wrong[1],
        }
        rows = [_row(point, name, engine, repeat, wrong_now[name], evidence) for name, engine in window.engines.items()]
        self.rows += rows
        if len(rows) > 1:
            self.rows.append(_aggregate(point, window, repeat, sum(wrong_now.values()), evidence))
        return rows[0].value if all(gates.counts(row) for row in rows) else None


def describe(point: Point) -> str:
    """A point in a few words, for the progress line."""
    words = [point.op, point.store or "", point.kernel, f"{point.threads} threads" if point.threads else point.engine]
    if point.probe not in ("sweep",):
        words.append(f"({point.probe})")
    return " ".join(word for word in words if word)


def _row(point: Point, name: str, engine: Engine, repeat: int, wrong: int, evidence: dict[str, Any]) -> Row:
    own = name == point.engine
    bytes_counted = round(engine.items)
    return Row(
        quantity="read_bandwidth" if not own or point.op in ("read", "sum", "max") else "stream_bandwidth",
        value=engine.rate / 1e9,
        unit="GB/s",
        repeat=repeat,
        probe=point.probe,
        engine=name,  # type: ignore[arg-type]
        beside=point.beside if own else point.engine,
        kernel=point.kernel if own else "mlx",
        op=point.op if own else "sum",
        store=point.store,  # type: ignore[arg-type]
        threads=point.threads,
        tier=point.tier or None,
        bytes=point.bytes if own else None,
        bytes_counted=bytes_counted,
        bytes_bus_model=round(bytes_counted * point.traffic),
        cpu_share=engine.cpu_share,
        page_faults=engine.page_faults,
        wrong=wrong,
        overlap=engine.overlap,
        **evidence,
    )


def _aggregate(point: Point, window: Window, repeat: int, wrong: int, evidence: dict[str, Any]) -> Row:
    """Both engines together. Their rates add up because both were counted in the one common window."""
    return Row(
        quantity="aggregate_bandwidth",
        value=sum(engine.rate for engine in window.engines.values()) / 1e9,
        unit="GB/s",
        repeat=repeat,
        probe=point.probe,
        threads=point.threads,
        tier=point.tier,
        overlap=min(engine.overlap for engine in window.engines.values()),
        cpu_share=window.engines["cpu"].cpu_share,
        page_faults=window.engines["cpu"].page_faults,
        wrong=wrong,
        **evidence,
    )
