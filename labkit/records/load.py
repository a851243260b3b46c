"""Many runs, measured and published, as one table."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from labkit import project
from labkit.records.published import read_published
from labkit.records.read import NotARun, read_run
from labkit.records.schema import Kind, Row, Run

if TYPE_CHECKING:
    import pandas

HEADER_COLUMNS = (
    "run_id",
    "primitive",
    "kind",
    "chip",
    "machine",
    "gpu_cores",
    "started_at",
    "bus_peak_gb_per_s",
    "source",
)


class Ignored(NamedTuple):
    """Something in the runs folder that is not read, and why. The path is relative to the data folder."""

    path: str
    reason: str


class Loaded(NamedTuple):
    """What `load` found: the tidy table, the runs behind it, and the files that are not runs."""

    frame: "pandas.DataFrame"
    runs: tuple[Run, ...]
    ignored: tuple[Ignored, ...]


def load(data_dir: Path, *, chip: str | None = None, primitive: str | None = None, kind: Kind | None = None) -> Loaded:
    """Every value under `data_dir` as one row: the header's columns, then the row's fields.

    Shape: (values, len(HEADER_COLUMNS) + fields of Row). Bandwidths are GB/s = 1e9 bytes/s. Raises BadRecord on a
    damaged or foreign file; a file without end line is no run and stands in `ignored`.
    """
    runs, ignored = read_all(data_dir)
    chosen = tuple(
        run
        for run in runs
        if chip in (None, run.header.chip)
        and primitive in (None, run.header.primitive)
        and kind in (None, run.header.kind)
    )
    return Loaded(_frame(chosen), chosen, ignored)


def read_all(data_dir: Path) -> tuple[tuple[Run, ...], tuple[Ignored, ...]]:
    """All runs under `data_dir`, published ones first, each in order of its name; and what is not a run."""
    reference = data_dir / "reference"
    runs = read_published(reference if reference.is_dir() else project.reference_dir())
    ignored = []
    for path in _run_files(data_dir / "runs", ignored):
        name = str(path.relative_to(data_dir))
        try:
            runs.append(read_run(path))
        except NotARun:
            ignored.append(Ignored(name, "no end line: the run was never finished"))
    return tuple(runs), tuple(ignored)


def _run_files(folder: Path, ignored: list[Ignored]) -> list[Path]:
    """Run files in the chips' folders, in order of their names. What is not looked into is put in `ignored`."""
    found = []
    if not folder.is_dir():
        return found
    for entry in sorted(folder.iterdir()):
        name = f"{folder.name}/{entry.name}"
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            ignored.append(Ignored(name, "not in a chip's folder"))
            continue
        try:
            # Hidden files are the system's, and half-written runs.
            found += sorted(path for path in entry.iterdir() if path.suffix == ".jsonl" and path.name[0] != ".")
        except OSError as error:
            ignored.append(Ignored(name, f"cannot be read: {error.strerror}"))
    return found


def chips(data_dir: Path) -> list[str]:
    """Brand strings of the chips that have data, measured or published."""
    return sorted({run.header.chip for run in read_all(data_dir)[0]})


def fingerprint(data_dir: Path, chip: str | None = None) -> str:
    """sha256 over every run of `chip` (None: of all chips): equal only while the data are the same."""
    return runs_fingerprint(run for run in read_all(data_dir)[0] if chip in (None, run.header.chip))


def runs_fingerprint(runs: Iterable[Run]) -> str:
    """sha256 over the runs' contents, whatever their order and wherever they lie."""
    contents = sorted(hashlib.sha256(msgspec.json.encode((run.header, run.rows, run.end))).hexdigest() for run in runs)
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()


def _frame(runs: Iterable[Run]) -> "pandas.DataFrame":
    import pandas

    columns: dict[str, list] = {name: [] for name in (*HEADER_COLUMNS, *Row.__struct_fields__)}
    for run in runs:
        shared = [getattr(run.header, name) for name in HEADER_COLUMNS]
        for row in run.rows:
            for name, value in zip(HEADER_COLUMNS, shared, strict=True):
                columns[name].append(value)
            for name in Row.__struct_fields__:
                columns[name].append(getattr(row, name))
    return pandas.DataFrame({name: pandas.array(values, dtype=_dtype(name)) for name, values in columns.items()})


def _dtype(name: str) -> str:
    """Nullable types, so that a missing integer stays missing instead of turning a column into floats."""
    if name in ("gpu_cores",):
        return "Int64"
    if name in ("bus_peak_gb_per_s",):
        return "Float64"
    if name in HEADER_COLUMNS:
        return "string"
    leaves = _leaf_types(Row.__annotations__[name])
    if float in leaves:
        return "Float64"
    if int in leaves:
        return "Int64"
    return "string"


def _leaf_types(annotation: object) -> set[object]:
    """The plain types inside Annotated, unions and literals."""
    inner = get_args(annotation)
    return set().union(*(_leaf_types(part) for part in inner)) if inner else {annotation}
