"""The few lines that every notebook needs: check its parameters, load its data, save with provenance, mark its end.

lab = notebook.enter("20_bus_reach", chip=chip, data_dir=data_dir, figures_dir=figures_dir, quick=quick)
frame = lab.records.frame
lab.save(fig, "reach", data=summary, of=frame)
lab.finish()
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import notebook_file, project
from labkit.errors import BadInput
from labkit.notebook_file import ALL_CHIPS, NotebookFile
from labkit.parameters import Type, Value, checked, suggestion

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from labkit.figures import Provenance
    from labkit.records import Loaded

END_MARK = "labkit"
"""Key, in the metadata of an output, of the mark that says: this notebook ran to its end."""

_TYPES: dict[type, Type] = {bool: "bool", str: "str", int: "int", float: "float"}


def enter(name: str, *, chip: str, data_dir: str, figures_dir: str, quick: bool, **others: Value) -> "Session":
    """Begin the notebook `name` (its file name without .ipynb): check every parameter, set the figures' style.

    Relative folders are meant from the project's root. The figures' folder of the chip is created. Types are those
    of the notebook's own parameters cell, as saved in notebooks/. Raises BadInput; for an unknown chip with the
    list of known ones.
    """
    from labkit import figures

    root = project.root()
    given: dict[str, Value] = {
        "chip": chip, "data_dir": data_dir, "figures_dir": figures_dir, "quick": quick, **others
    }  # fmt: skip
    file = _own_file(root, name)
    _check_types(name, file, given)
    data = _existing(root / data_dir)
    _check_chip(name, file, chip, data)
    folder = _created(root / figures_dir / project.slug(chip))
    figures.apply_style()
    return Session(name, chip, data, folder, quick, given, file)


def _own_file(root: Path, name: str) -> NotebookFile | None:
    path = root / "notebooks" / f"{name}.ipynb"
    return notebook_file.read(path) if path.is_file() else None


def _check_types(name: str, file: NotebookFile | None, given: dict[str, Value]) -> None:
    if file is None:
        types: dict[str, Type] = {"chip": "str", "data_dir": "str", "figures_dir": "str", "quick": "bool"}
        types |= {key: _TYPES.get(type(value), "str") for key, value in given.items() if key not in types}
    else:
        types = {parameter.name: parameter.type for parameter in file.parameters}
    for key, value in given.items():
        if key not in types:
            raise BadInput(f"{name}: its parameters cell does not declare {key!r}{suggestion(key, types)}")
        checked(key, types[key], value, name)
    for key in types:
        if key not in given:
            raise BadInput(f"{name}: parameter {key!r} is declared but unchecked: pass it to notebook.enter")


def _check_chip(name: str, file: NotebookFile | None, chip: str, data_dir: Path) -> None:
    from labkit import records

    known = records.chips(data_dir)
    if file is not None and file.scope == "once":
        if chip != ALL_CHIPS:
            raise BadInput(f"{name} runs once over all chips: chip must be {ALL_CHIPS!r}, not {chip!r}")
    elif chip not in known and (file is not None or chip != ALL_CHIPS):
        raise BadInput(f"{name}: there are no data for chip {chip!r}{suggestion(chip, known)}")


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise BadInput(f"data_dir: there is no folder {folder}; pass the folder that holds `runs`")
    return folder


def _created(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"figures_dir: cannot create {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"figures_dir: cannot write into {folder}")
    return folder


class Session:
    """One run of one notebook: where it reads, where it writes, and what it has saved."""

    def __init__(
        self,
        name: str,
        chip: str,
        data_dir: Path,
        figures_dir: Path,
        quick: bool,
        parameters: dict[str, Value],
        file: NotebookFile | None,
    ) -> None:
        self.name = name
        self.chip = chip
        self.data_dir = data_dir
        self.figures_dir = figures_dir  # the chip's own folder
        self.quick = quick
        self.parameters = parameters
        self.saved: list[Path] = []
        self._file = file

    @cached_property
    def records(self) -> "Loaded":
        """All records of this notebook's chip (of every chip, if it runs once over all)."""
        from labkit import records

        return records.load(self.data_dir, chip=None if self.chip == ALL_CHIPS else self.chip)

    @cached_property
    def code(self) -> str | None:
        """Hash of the notebook's own code, as saved, and the labkit modules it reaches; None if it is nowhere."""
        from labkit import source

        return None if self._file is None else self._file.code_hash(source.Tree())

    def save(
        self,
        fig: "Figure",
        name: str,
        *,
        data: "pd.DataFrame",
        table: "pd.DataFrame | None" = None,
        caption: str = "",
        of: "pd.DataFrame | None" = None,
        kinds: Sequence[str] = (),
        run_ids: Sequence[str] = (),
    ) -> None:
        """Save a figure, the data it shows and a table (default: the data) with full provenance.

        Kinds and run ids are those in the columns `kind` and `run_id` of `of` (default: of `data`), or as given.
        Paths are added to `saved`. Raises BadInput when neither says them, and whatever figures.save raises.
        """
        from labkit import figures

        provenance = self._provenance(name, data if of is None else of, kinds, run_ids)
        self._note(
            figures.save(
                fig, name, folder=self.figures_dir, data=data, provenance=provenance, table=table, caption=caption
            )
        )

    def save_table(
        self,
        data: "pd.DataFrame",
        name: str,
        *,
        table: "pd.DataFrame | None" = None,
        caption: str = "",
        of: "pd.DataFrame | None" = None,
        kinds: Sequence[str] = (),
        run_ids: Sequence[str] = (),
    ) -> None:
        """Save data and a table (default: headings.for_paper of them) without a figure; otherwise as `save`."""
        from labkit import figures
        from labkit.headings import for_paper

        provenance = self._provenance(name, data if of is None else of, kinds, run_ids)
        table = for_paper(data) if table is None else table
        self._note(
            figures.save_table(data, name, folder=self.figures_dir, provenance=provenance, table=table, caption=caption)
        )

    def figure(
        self, name: str, draw: "Callable[[pd.DataFrame], Figure]", data: "pd.DataFrame", *, caption: str
    ) -> None:
        """Save `draw(data)`, the data, and the table that a paper prints of them (headings.for_paper).

        Where there are no data, say so: nothing empty is drawn, and nothing is left out without a word. Raises
        what `save` raises.
        """
        from labkit.headings import for_paper

        if data.empty:
            print(f"{name}: no figure, because no data of {self.chip} belong in it")
            return
        self.save(draw(data), name, data=data, table=for_paper(data), caption=caption)

    def finish(self) -> None:
        """Mark the notebook's end and list what was saved. The batch counts no notebook as done without this."""
        names = [path.name for path in self.saved]
        line = f"{self.name}, {self.chip}: saved {', '.join(names) if names else 'nothing'}"
        mark = {END_MARK: {"end": self.name, "code": self.code}}
        if "ipykernel" in sys.modules:
            from IPython.display import display

            display({"text/plain": line}, raw=True, metadata=mark)
        else:
            print(line)

    def _note(self, paths: list[Path]) -> None:
        self.saved += [path for path in paths if path not in self.saved]

    def _provenance(
        self, name: str, frame: "pd.DataFrame", kinds: Sequence[str], run_ids: Sequence[str]
    ) -> "Provenance":
        from labkit import records
        from labkit.figures import Provenance

        return Provenance(
            notebook=self.name,
            kinds=tuple(kinds) or _distinct(frame, "kind", name),
            run_ids=tuple(run_ids) or _distinct(frame, "run_id", name),
            data=records.runs_fingerprint(self.records.runs),
            code=self.code,
            parameters={key: value for key, value in self.parameters.items() if not _is_path(key, value)},
        )


def _distinct(frame: "pd.DataFrame", column: str, name: str) -> tuple[str, ...]:
    if column not in frame.columns or frame[column].isna().all():
        raise BadInput(
            f"{name}: its data have no column {column!r}, so its provenance is unknown: "
            f"pass of=<the frame it was computed from>"
        )
    values: Iterable[str] = frame[column].dropna().unique()
    return tuple(sorted(values))


def _is_path(key: str, value: Value) -> bool:
    """Where things lie on one machine is no part of a figure."""
    return key.endswith(("_dir", "_path", "_file")) or (isinstance(value, str) and Path(value).is_absolute())
