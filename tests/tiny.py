"""Tiny projects and notebooks for tests: real files in a temporary folder."""

import hashlib
import json
from pathlib import Path

from labkit import project, records

M4, M5, BENCH = "Apple M4 Pro", "Apple M5 Max", "Test Bench 9"
"""Two chips with published data, and one that only `measure` gives any."""

PARAMETERS = """\
chip: str = "Apple M4 Pro"  # brand string
data_dir: str = "data"  # folder of the records
figures_dir: str = "figures"  # folder of the figures
quick: bool = False  # fewer points
"""


def make_project(folder: Path) -> Path:
    """A project with the published data and one measured chip, and no notebooks yet."""
    (folder / "notebooks").mkdir(parents=True)
    reference = folder / "data" / "reference"
    reference.mkdir(parents=True)
    for path in project.reference_dir().glob("*.csv"):
        (reference / path.name).write_bytes(path.read_bytes())
    measure(folder, value=100.0)
    return folder


def measure(folder: Path, value: float, chip: str = BENCH) -> Path:
    """Add one run of one row."""
    header = records.Header(
        schema=1,
        run_id=records.new_run_id("bus"),
        primitive="bus",
        kind="measured",
        chip=chip,
        machine="bench",
        started_at=records.utc_now(),
    )
    return records.write(
        folder / "data", header, [records.Row(quantity="read_bandwidth", value=value, unit="GB/s", repeat=0)]
    )


def notebook(folder: Path, name: str, *cells: str, parameters: str = PARAMETERS, scope: str | None = None) -> Path:
    """Write notebooks/<name>.ipynb: a title, the parameters cell, then `cells`."""
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    content = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
            **({"labkit": {"scope": scope}} if scope else {}),
        },
        "cells": [
            {"cell_type": "markdown", "id": "title", "metadata": {}, "source": f"# {name}?"},
            {**code, "id": "parameters", "metadata": {"tags": ["parameters"]}, "source": parameters},
            *({**code, "id": f"c{n}", "metadata": {}, "source": cell} for n, cell in enumerate(cells)),
        ],
    }
    path = folder / "notebooks" / f"{name}.ipynb"
    path.write_text(json.dumps(content))
    return path


def entering(name: str) -> str:
    """The cell that begins every notebook."""
    return (
        "from labkit import notebook\n"
        f'lab = notebook.enter("{name}", chip=chip, data_dir=data_dir, figures_dir=figures_dir, quick=quick)'
    )


SAVING = 'frame = lab.records.frame\nlab.save_table(frame[["kind", "quantity", "value"]].head(3), "{table}", of=frame)'
FINISHING = "lab.finish()"


def good_notebook(folder: Path, name: str, *extra: str, scope: str | None = None) -> Path:
    """A notebook that saves one table, called table_<name>; `extra` cells stand before that."""
    return notebook(folder, name, entering(name), *extra, SAVING.format(table=f"table_{name}"), FINISHING, scope=scope)


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file in `folder`, hidden ones aside."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }
