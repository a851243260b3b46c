"""Figures and tables for a paper: one style, and files that say where their numbers come from.

A figure is saved as PDF and PNG together with its data (CSV), a LaTeX table and a sidecar (JSON). The same inputs
give the same bytes, so `git diff` on a figure means that something changed.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from labkit import atomic
from labkit.errors import BadInput, Refused
from labkit.latex import booktabs, with_index
from labkit.style import EMBED, KINDS, SERIES, apply_style, check_kinds, label_kind, series_style, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "KINDS",
    "SERIES",
    "Provenance",
    "apply_style",
    "label_kind",
    "provenance_of",
    "save",
    "save_table",
    "series_style",
    "style",
]

_MAKER = "labkit"  # stands where matplotlib would write its version, which changes the bytes
_PNG_KEY = "Provenance"


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a figure comes from. Holds no paths, host or user names, or dates."""

    notebook: str  # the notebook's name, as in "20_bus_reach"
    kinds: tuple[str, ...]  # every kind of truth that the figure shows
    run_ids: tuple[str, ...]
    data: str  # hash of every input record
    code: str | None  # hash of notebook and labkit sources; None: not known
    parameters: dict[str, Any]


def save(
    fig: "Figure",
    name: str,
    *,
    folder: str | Path,
    data: "pd.DataFrame",
    provenance: Provenance,
    table: "pd.DataFrame | None" = None,
    caption: str = "",
) -> list[Path]:
    """Write NAME.pdf, NAME.png (300 dpi), NAME.csv (`data`), NAME.tex (`table`, else `data`) and NAME.json.

    All are written in full before the first takes its name, so a failure leaves earlier files as they were.
    Returns the paths. Raises Refused when there is nothing to draw, BadInput for a bad name, bad provenance or
    a figure that does not show its kind, atomic.CannotWrite when the disk is full.
    """
    _check(name, data, provenance)
    if not fig.axes:
        raise Refused(f"{name}: nothing to draw: the figure has no axes")
    _require_kind_shown(fig, name, provenance.kinds)
    pdf, png = _draw(fig, name, provenance)
    files = {"pdf": pdf, "png": png, **_texts(name, data, table, provenance, caption)}
    return _write(Path(folder), name, files, provenance)


def save_table(
    data: "pd.DataFrame",
    name: str,
    *,
    folder: str | Path,
    provenance: Provenance,
    table: "pd.DataFrame | None" = None,
    caption: str = "",
) -> list[Path]:
    """Write NAME.csv (`data`), NAME.tex (`table`, else `data`) and NAME.json. Returns and raises as `save`."""
    _check(name, data, provenance)
    return _write(Path(folder), name, _texts(name, data, table, provenance, caption), provenance)


def _check(name: str, data: "pd.DataFrame", provenance: Provenance) -> None:
    if not re.fullmatch(r"[a-z0-9]+([_-][a-z0-9]+)*", name):
        raise BadInput(f"figure name {name!r}: use small letters, digits, - and _ only, as in bus_reach")
    if data.empty:
        raise Refused(f"{name}: nothing to draw: the data are empty")
    if not data.columns.is_unique:
        raise BadInput(f"{name}: two columns of the data have one name")
    check_kinds(provenance.kinds)
    try:
        text = _compact(provenance)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name}: the provenance cannot be written as JSON: {error}") from None
    for value in _strings(json.loads(text)):
        if value.startswith(("/", "~", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", value):
            raise BadInput(f"{name}: the provenance holds the path {value!r}: name inputs by run id and hash")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _strings(item)


def _require_kind_shown(fig: "Figure", name: str, kinds: Sequence[str]) -> None:
    from matplotlib.text import Text

    shown = " ".join(t.get_text() for t in fig.findobj(Text) if t.get_visible())
    missing = [kind for kind in kinds if not re.search(rf"\b{kind}\b", shown)]
    if missing:
        raise BadInput(
            f"{name}: the figure does not say that it shows {' and '.join(missing)} values: "
            "call figures.label_kind on it"
        )


def _draw(fig: "Figure", name: str, provenance: Provenance) -> tuple[bytes, bytes]:
    import matplotlib

    said = _compact(provenance)
    info = {
        "Title": name,
        "Subject": f"{', '.join(provenance.kinds)}; notebook {provenance.notebook}",
        "Keywords": said,
        "Creator": _MAKER,
        "Producer": _MAKER,
        "CreationDate": None,
    }
    pdf, png = BytesIO(), BytesIO()
    plain = {**EMBED, "savefig.bbox": None, "savefig.facecolor": "white", "pdf.compression": 6}
    with matplotlib.rc_context(plain):
        # Constrained layout starts from where the last drawing left the axes. Two dry runs bring a figure that
        # a notebook has shown and one that it has not to the same place.
        for _ in range(2):
            fig.draw_without_rendering()
        fig.savefig(pdf, format="pdf", metadata=info)
        fig.savefig(png, format="png", dpi=300, metadata={"Software": _MAKER, "Title": name, _PNG_KEY: said})
    return pdf.getvalue(), png.getvalue()


def _texts(
    name: str, data: "pd.DataFrame", table: "pd.DataFrame | None", provenance: Provenance, caption: str
) -> dict[str, bytes]:
    csv = with_index(data).to_csv(index=False, lineterminator="\n")  # pandas writes floats in full (repr)
    tex = booktabs(data if table is None else table, caption=caption, label=f"tab:{name}", kinds=provenance.kinds)
    return {"csv": csv.encode(), "tex": tex.encode()}


def _write(folder: Path, name: str, files: dict[str, bytes], provenance: Provenance) -> list[Path]:
    from importlib.metadata import version

    sidecar = {
        "provenance": json.loads(_compact(provenance)),
        "sha256": {f"{name}.{end}": hashlib.sha256(content).hexdigest() for end, content in files.items()},
        # What the bytes depend on beside the inputs: they are the same under every numpy, pandas and Python tried.
        "versions": {"matplotlib": version("matplotlib")},
    }
    text = json.dumps(sidecar, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    # The sidecar comes last and holds the others' hashes: a kill between two renames can be found out.
    named = {folder / f"{name}.{end}": content for end, content in {**files, "json": text.encode()}.items()}
    atomic.write_all(named)
    return list(named)


def _compact(provenance: Provenance) -> str:
    """One line of ASCII, keys sorted: the same text for the same provenance, safe in PDF and PNG metadata."""
    plain = msgspec.to_builtins(provenance, order="deterministic")
    return json.dumps(plain, separators=(",", ":"), allow_nan=False)


def provenance_of(path: str | Path) -> Provenance:
    """What a saved PDF, PNG or sidecar says about itself. Raises BadInput when it says nothing."""
    path = Path(path)
    readers = {".pdf": _said_by_pdf, ".png": _said_by_png, ".json": _said_by_sidecar}
    reader = readers.get(path.suffix)
    if reader is None:
        raise BadInput(f"{path}: provenance is kept in .pdf, .png and .json files")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    try:
        return msgspec.convert(reader(content), Provenance)
    except (ValueError, LookupError, TypeError, AttributeError, OSError, SyntaxError, msgspec.ValidationError):
        # SyntaxError is what Pillow raises for a broken PNG
        raise BadInput(f"{path}: holds no labkit provenance; it was not saved by figures.save") from None


def _said_by_sidecar(content: bytes) -> Any:
    return json.loads(content)["provenance"]


def _said_by_png(content: bytes) -> Any:
    from PIL import Image

    with Image.open(BytesIO(content), formats=["PNG"]) as image:
        return json.loads(image.text[_PNG_KEY])  # type: ignore[attr-defined]


def _said_by_pdf(content: bytes) -> Any:
    """The Keywords string of matplotlib's information dictionary, which it writes uncompressed."""
    found = re.search(rb"/Keywords \(((?:\\.|[^\\()])*)\)", content, re.DOTALL)
    if found is None:
        raise LookupError
    return json.loads(re.sub(rb"\\(.)", rb"\1", found[1], flags=re.DOTALL))
