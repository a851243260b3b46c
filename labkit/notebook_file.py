"""A notebook on disk, as source: its cells, its parameters, its scope, and a digest that outputs do not change."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from labkit import source
from labkit.errors import BadInput
from labkit.parameters import Parameter, declared

Scope = Literal["chip", "once"]

ALL_CHIPS = "all"
"""The value of `chip` in a notebook that runs once over all chips (metadata: {"labkit": {"scope": "once"}})."""

_CORE = {"chip": "str", "data_dir": "str", "figures_dir": "str", "quick": "bool"}


class Cell(msgspec.Struct, frozen=True):
    """One cell of a notebook, without outputs."""

    type: str
    source: str
    tags: tuple[str, ...]


class NotebookFile(msgspec.Struct, frozen=True):
    """A notebook's source."""

    name: str  # file name without .ipynb
    path: Path
    cells: tuple[Cell, ...]
    kernel: str
    scope: Scope
    parameters: tuple[Parameter, ...]

    def digest(self) -> str:
        """sha256 over everything that decides what the executed copy shows: all cells, kernel and scope."""
        return hashlib.sha256(msgspec.json.encode((self.cells, self.kernel, self.scope))).hexdigest()

    def code_digest(self) -> str:
        """sha256 over the code that computes: code cells, without the parameters (they are recorded by value)."""
        code = [cell.source for cell in self.cells if cell.type == "code" and not is_parameters(cell)]
        return hashlib.sha256(msgspec.json.encode(code)).hexdigest()

    def imports(self) -> set[str]:
        """Dotted names that its code cells import."""
        return set().union(*(source.imports_of(cell.source) for cell in self.cells if cell.type == "code"))

    def code_hash(self, tree: source.Tree) -> str:
        """sha256 over its own code and every labkit module that it reaches: the code behind its figures."""
        return hashlib.sha256(f"{self.code_digest()} {tree.digest(self.imports())}".encode()).hexdigest()


def is_parameters(cell: Cell) -> bool:
    """The parameters cell, or the one that papermill put behind it."""
    return bool({"parameters", "injected-parameters"} & set(cell.tags))


def read(path: Path) -> NotebookFile:
    """The notebook at `path`. Raises BadInput when it is no notebook that labkit can run."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", path.stem):
        raise BadInput(f"{path.name}: a notebook's name has letters, digits, _ and - only")
    try:
        content = json.loads(path.read_bytes())
        if content["nbformat"] != 4:
            raise BadInput(f"{path}: notebook format {content['nbformat']}: open and save it in JupyterLab")
        cells = tuple(_cell(cell) for cell in content["cells"])
        metadata = content["metadata"]
        kernel = metadata.get("kernelspec", {}).get("name", "")
        labkit = metadata.get("labkit", {})
        scope = labkit.get("scope", "chip")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not a notebook: {error!r}") from error
    if scope not in ("chip", "once") or set(labkit) - {"scope"}:
        raise BadInput(f'{path}: metadata "labkit" may say {{"scope": "chip"}} or {{"scope": "once"}}, not {labkit}')
    return NotebookFile(path.stem, path, cells, kernel, scope, _parameters(cells, path))


def _cell(raw: dict[str, Any]) -> Cell:
    text = raw["source"]
    tags = raw.get("metadata", {}).get("tags", [])
    return Cell(raw["cell_type"], text if isinstance(text, str) else "".join(text), tuple(tags))


def _parameters(cells: tuple[Cell, ...], path: Path) -> tuple[Parameter, ...]:
    tagged = [cell for cell in cells if "parameters" in cell.tags]
    if len(tagged) != 1:
        raise BadInput(f"{path}: {len(tagged)} cells are tagged `parameters`; there must be exactly one")
    found = declared(tagged[0].source, str(path))
    types = {parameter.name: parameter.type for parameter in found}
    for name, kind in _CORE.items():
        if types.get(name) != kind:
            raise BadInput(f"{path}: the parameters cell must declare `{name}: {kind}`")
    return found
