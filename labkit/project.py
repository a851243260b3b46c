"""Where things are: the project around this code, its data and its figures."""

import re
from pathlib import Path

from labkit.errors import BadInput

PACKAGE = Path(__file__).resolve().parent


def root(start: Path | None = None) -> Path:
    """The project folder: the nearest folder at or above `start` (default: here) that holds data/reference.

    Notebooks run with different working folders (JupyterLab: the notebook's own; papermill: the caller's), so
    relative paths in their parameters are meant relative to this folder. Falls back to the checkout that this
    package was imported from. Raises BadInput when neither is a labkit project.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents, PACKAGE.parent):
        if (folder / "data" / "reference" / "chips.csv").is_file():
            return folder
    raise BadInput(
        f"no labkit project at or above {start}: go to a clone of labkit, which holds notebooks/ and data/reference"
    )


def reference_dir() -> Path:
    """Published data that came with this labkit: the checkout's data/reference, or the installed copy."""
    for folder in (PACKAGE.parent / "data" / "reference", PACKAGE / "reference"):
        if (folder / "chips.csv").is_file():
            return folder
    raise BadInput(f"the published data are missing beside {PACKAGE}: install labkit again")


def slug(chip: str) -> str:
    """A chip's folder name: 'Apple M4 Pro' -> 'apple-m4-pro'."""
    return re.sub(r"[^a-z0-9]+", "-", chip.lower()).strip("-") or "unknown"
