"""The matrix: which notebooks are to run for which chips, and which of these runs are still valid."""

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from labkit import notebook_file, parameters, project, records, source
from labkit.batch.messages import Job
from labkit.errors import BadInput
from labkit.notebook_file import ALL_CHIPS, NotebookFile

_DRAWING = ("matplotlib", "pandas", "numpy", "papermill", "tueplots", "jinja2")
"""Packages whose release can change what a notebook draws."""

_SET_BY_BATCH = {
    "chip": "choose chips for the batch as a whole",
    "data_dir": "choose it for the batch as a whole",
    "figures_dir": "choose it for the batch as a whole",
}


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The record that a run ended well: what went in, and what came out. Written last."""

    key: str
    parts: dict[str, str]
    outputs: dict[str, str]  # file name, relative to the record's folder -> sha256


def plan(
    root: Path,
    data_dir: Path,
    figures_dir: Path,
    notebooks: Sequence[str] | None,
    chips: Sequence[str] | None,
    given: Mapping[str, object],
    force: bool,
    cell_timeout_s: int,
) -> tuple[Job, ...]:
    """Every cell of the matrix. Raises BadInput on an unknown notebook, chip or parameter: nothing has run then."""
    runs, _ = records.read_all(data_dir)
    known_chips = sorted({run.header.chip for run in runs})
    files = _notebooks(root / "notebooks", notebooks)
    values = {file.name: parameters.resolve(file.parameters, given, file.name, _SET_BY_BATCH) for file in files}
    for chip in chips or ():
        if chip not in known_chips and chip != ALL_CHIPS:
            raise BadInput(f"there are no data for chip {chip!r}{parameters.suggestion(chip, known_chips)}")
    pairs = [(file, chip) for file in files for chip in _chips_of(file, chips, known_chips)]
    if not pairs:
        raise BadInput(
            f"nothing to run: {', '.join(file.name for file in files)}"
            f" for {', '.join(chips or known_chips) or 'no chip'}. "
            f"Notebooks that run once over all chips need chip {ALL_CHIPS!r}, or no choice of chips"
        )
    tree = source.Tree()
    labkit = {file.name: tree.digest(file.imports()) for file in files}
    reference = _digest_of(_chips_table(data_dir))
    data = {
        chip: f"{records.runs_fingerprint(r for r in runs if chip in (ALL_CHIPS, r.header.chip))} {reference}"
        for chip in {chip for _, chip in pairs}
    }
    every = tuple(path.stem for path in _all_notebooks(root / "notebooks"))
    versions = _versions()
    return tuple(
        Job(
            notebook=file.name,
            chip=chip,
            path=str(file.path),
            root=str(root),
            folder=str(figures_dir / project.slug(chip)),
            data_dir=str(data_dir),
            figures_dir=str(figures_dir),
            parameters=values[file.name],
            parts={
                "notebook": file.digest(),
                "labkit": labkit[file.name],
                "data": data[chip],
                "parameters": _settings(file, values[file.name]),
                "versions": versions,
            },
            code=file.code_hash(tree),
            notebooks=every,
            force=force,
            cell_timeout_s=cell_timeout_s,
        )
        for file, chip in pairs
    )


def _settings(file: NotebookFile, given: Mapping[str, parameters.Value]) -> str:
    """All of a notebook's parameters but those that the batch sets: a default passed by hand changes nothing."""
    settings = {p.name: given.get(p.name, p.default) for p in file.parameters if p.name not in _SET_BY_BATCH}
    return msgspec.json.encode(settings, order="sorted").decode()


def _all_notebooks(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ipynb"))


def _notebooks(folder: Path, names: Iterable[str] | None) -> list[NotebookFile]:
    """The notebooks named (by name or path; None: all)."""
    found = {path.stem: path for path in _all_notebooks(folder)}
    if not found:
        raise BadInput(f"there are no notebooks in {folder}")
    chosen = list(found) if names is None else [Path(name).name.removesuffix(".ipynb") for name in names]
    for name in chosen:
        if name not in found:
            raise BadInput(f"there is no notebook {name!r} in {folder}{parameters.suggestion(name, found)}")
    return [notebook_file.read(found[name]) for name in dict.fromkeys(chosen)]


def _chips_of(file: NotebookFile, chosen: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    if file.scope == "once":
        return [ALL_CHIPS] if chosen is None or ALL_CHIPS in chosen else []
    return [chip for chip in known if chosen is None or chip in chosen]


def _chips_table(data_dir: Path) -> Path:
    """Notebooks may look up any chip in it, so it is an input of each."""
    folder = data_dir / "reference"
    return (folder if folder.is_dir() else project.reference_dir()) / "chips.csv"


def _versions() -> str:
    names = [f"{name} {_version(name)}" for name in _DRAWING]
    return ", ".join([f"python {sys.version_info.major}.{sys.version_info.minor}", *names])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def key_of(job: Job) -> str:
    """sha256 over everything that decides the job's result."""
    return hashlib.sha256(msgspec.json.encode(job.parts, order="sorted")).hexdigest()


def done_path(job: Job) -> Path:
    """Where the job's done record lies."""
    return Path(job.folder) / f"{job.notebook}.done.json"


def read_done(path: Path) -> Done | None:
    """The done record at `path`; None when there is none, or none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Done)
    except (OSError, msgspec.DecodeError):
        return None


def done_record(job: Job, outputs: Iterable[str]) -> bytes:
    """The done record of a job that has left `outputs` (names relative to its folder) behind."""
    folder = Path(job.folder)
    digests = {name: _digest_of(folder / name) for name in sorted(outputs)}
    return msgspec.json.format(msgspec.json.encode(Done(key_of(job), job.parts, digests)), indent=1) + b"\n"


def why_stale(job: Job) -> str | None:
    """Why the job must run; None if its last run still holds: same key, and every output as it was written."""
    done = read_done(done_path(job))
    if done is None:
        return "not done yet"
    if done.key != key_of(job):
        changed = [name for name in job.parts if done.parts.get(name) != job.parts[name]]
        return f"changed: {', '.join(changed)}"
    for name, digest in done.outputs.items():
        try:
            if _digest_of(Path(job.folder) / name) != digest:
                return f"changed: {name}"
        except OSError:
            return f"missing: {name}"
    return None


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
