"""Published measurements: CSV files in data/reference, through the same door as our own runs."""

import csv
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from labkit import project
from labkit.records.read import BadRecord
from labkit.records.schema import Count, Header, Row, Run, Text
from labkit.records.write import problem

Rate = Annotated[float, Meta(gt=0, le=1e5)]
Percent = Annotated[float, Meta(ge=0)]
GIB = 2**30

Line = TypeVar("Line", bound=msgspec.Struct)


class Chip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of chips.csv. Bins of one chip share the brand string: (chip, cores, gpu_cores) is the key."""

    chip: Text
    model_id: str | None
    cpu_p_cores: Count
    cpu_e_cores: Count
    gpu_cores: Count
    ane_cores: Count | None
    bus_peak_gb_per_s: Rate | None
    source: Text
    note: str | None


class CpuLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of membw_cpu.csv."""

    chip: Text
    machine: Text
    threads: Count
    qos: Text
    buffer_gib: float | None
    gb_per_s: Rate
    reps: Count
    statistic: Literal["median"]
    source: Text


class GpuLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of membw_gpu.csv."""

    chip: Text
    machine: Text
    op: Text
    reads: Count
    writes: Count
    operand_gib: float
    window_s: float
    iters: Count
    gb_per_s: Rate
    source: Text


class ContentionLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of contention.csv: one repeat, or the source's summary (medians) of the repeats."""

    chip: Text
    machine: Text
    threads: Count
    row: Literal["repeat", "summary"]
    repeat: Count | None
    cpu_alone_gb_per_s: Rate
    gpu_alone_gb_per_s: Rate
    cpu_contended_gb_per_s: Rate
    gpu_contended_gb_per_s: Rate
    aggregate_gb_per_s: Rate | None
    vs_gpu_alone: float | None
    delta_gb_per_s: float | None
    cpu_alone_spread_pct: Percent | None
    gpu_alone_spread_pct: Percent | None
    cpu_contended_spread_pct: Percent | None
    gpu_contended_spread_pct: Percent | None
    overlap_pct: Percent
    gpu_operand_gib: float
    gpu_window_s: float
    load_average: float
    source: Text


def read_csv(path: Path, line_type: type[Line]) -> list[Line]:
    """Every line of `path` as a `line_type`; an empty cell is None. Raises BadRecord naming file, line, column."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = next(reader, [])
            wanted = list(line_type.__struct_fields__)
            if columns != wanted:
                raise BadRecord(f"{path}, line 1: the columns are {columns}, expected {wanted}")
            lines = []
            for cells in reader:
                if len(cells) != len(columns):
                    raise BadRecord(f"{path}, line {reader.line_num}: {len(cells)} cells for {len(columns)} columns")
                values = {name: cell or None for name, cell in zip(columns, cells, strict=True)}
                try:
                    lines.append(msgspec.convert(values, line_type, strict=False))
                except msgspec.ValidationError as error:
                    raise BadRecord(f"{path}, line {reader.line_num}: {error}") from error
            return lines
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadRecord(f"{path}: cannot be read: {error}") from error


def read_chips(reference: Path | None = None) -> list[Chip]:
    """chips.csv: every known bin of every chip, with its bus peak in GB/s (1e9 bytes/s) and source."""
    return read_csv((reference or project.reference_dir()) / "chips.csv", Chip)


def read_published(reference: Path) -> list[Run]:
    """The published bus measurements as runs of kind `published`, one per file, chip and machine."""
    measured_bins = {chip.chip: chip for chip in read_chips(reference) if chip.model_id}
    runs = []
    for name, line_type, rows_of in _TABLES:
        path = reference / f"{name}.csv"
        if not path.is_file():
            continue
        lines = read_csv(path, line_type)
        by_machine = sorted(lines, key=lambda line: (line.chip, line.machine))  # stable: keeps the file's order
        for (chip, machine), group in groupby(by_machine, key=lambda line: (line.chip, line.machine)):
            members = list(group)
            bin_ = measured_bins.get(chip)
            header = Header(
                schema=1,
                run_id=f"published-{name}-{project.slug(chip)}-{machine}",
                primitive="bus",
                kind="published",
                chip=chip,
                machine=machine,
                gpu_cores=bin_.gpu_cores if bin_ else None,
                bus_peak_gb_per_s=bin_.bus_peak_gb_per_s if bin_ else None,
                bus_peak_source=bin_.source if bin_ else None,
                source=members[0].source,
            )
            rows = tuple(row for line in members for row in rows_of(line))
            for row in rows:
                if found := problem(row):
                    raise BadRecord(f"{path}: {chip}, {machine}: {found}")
            runs.append(Run(header=header, rows=rows, end=None, path=str(path)))
    return runs


def _cpu_rows(line: CpuLine) -> Iterator[Row]:
    yield Row(
        quantity="read_bandwidth",
        value=line.gb_per_s,
        unit="GB/s",
        repeat=0,
        statistic=line.statistic,
        samples=line.reps,
        probe="sweep",
        engine="cpu",
        op="read",
        threads=line.threads,
        tier=line.qos,
        bytes=None if line.buffer_gib is None else int(line.buffer_gib * GIB),
    )


def _gpu_rows(line: GpuLine) -> Iterator[Row]:
    # One timing per op: neither a median nor an interval can be had from it.
    yield Row(
        quantity="read_bandwidth" if line.writes == 0 else "stream_bandwidth",
        value=line.gb_per_s,
        unit="GB/s",
        repeat=0,
        window_s=line.window_s,
        probe="sweep",
        engine="gpu",
        op=line.op,
        bytes=int(line.operand_gib * GIB) * (line.reads + line.writes),
    )


def _contention_rows(line: ContentionLine) -> Iterator[Row]:
    series = (
        ("cpu", None, line.cpu_alone_gb_per_s, line.cpu_alone_spread_pct),
        ("gpu", None, line.gpu_alone_gb_per_s, line.gpu_alone_spread_pct),
        ("cpu", "gpu", line.cpu_contended_gb_per_s, line.cpu_contended_spread_pct),
        ("gpu", "cpu", line.gpu_contended_gb_per_s, line.gpu_contended_spread_pct),
    )
    for engine, beside, value, spread in series:
        yield Row(
            quantity="read_bandwidth",
            value=value,
            unit="GB/s",
            repeat=line.repeat or 0,
            statistic="sample" if line.row == "repeat" else "median",
            spread=None if spread is None else spread / 100,
            window_s=line.gpu_window_s,
            probe="contention",
            engine=engine,
            beside=beside,
            threads=line.threads,
            overlap=line.overlap_pct / 100 if beside else None,
        )
    if line.aggregate_gb_per_s is not None:
        yield Row(
            quantity="aggregate_bandwidth",
            value=line.aggregate_gb_per_s,
            unit="GB/s",
            repeat=0,
            statistic="median",
            probe="contention",
            threads=line.threads,
            overlap=line.overlap_pct / 100,
        )


_TABLES: tuple[tuple[str, type[msgspec.Struct], Callable[..., Iterator[Row]]], ...] = (
    ("membw_cpu", CpuLine, _cpu_rows),
    ("membw_gpu", GpuLine, _gpu_rows),
    ("contention", ContentionLine, _contention_rows),
)
