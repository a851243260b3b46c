"""How figures look: paper widths, fonts that publishers accept, series that can be told apart without colour.

Nothing happens on import: a style is applied by a call.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from labkit.errors import BadInput
from labkit.records.schema import Kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

KINDS: tuple[str, ...] = get_args(Kind)
Column = Literal["single", "double"]

EMBED: dict[str, Any] = {
    "pdf.fonttype": 42,  # TrueType: publishers reject the default's Type 3 fonts
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "labkit",
}


class Series(NamedTuple):
    """How one line is drawn. Any one of the three tells the series apart."""

    color: str
    marker: str
    linestyle: str | tuple[int, tuple[int, ...]]


# Dark and light alternate: printed in grey, neighbours differ in lightness as they do in hue. Hues after the
# "medium-contrast" scheme of Paul Tol, Colour Schemes, SRON/EPS/TN/09-002, plus black.
SERIES: list[Series] = [
    Series("#004488", "o", "solid"),
    Series("#EE99AA", "s", "dashed"),
    Series("#994455", "^", "dashdot"),
    Series("#6699CC", "D", "dotted"),
    Series("#000000", "v", (0, (5, 1, 1, 1, 1, 1))),
    Series("#997700", "P", (0, (6, 3))),
]


def series_style(i: int) -> dict[str, Any]:
    """Keyword arguments of `Axes.plot` for series `i` (from 0). Raises BadInput beyond the last of `SERIES`."""
    if not 0 <= i < len(SERIES):
        raise BadInput(
            f"series {i}: there are {len(SERIES)} that can be told apart (0 to {len(SERIES) - 1}); "
            "split the figure into panels"
        )
    return SERIES[i]._asdict()


def _rc(column: Column, aspect: float) -> dict[str, Any]:
    from cycler import cycler
    from tueplots import axes, figsizes, fontsizes

    sizes = {"single": figsizes.icml2024_half, "double": figsizes.icml2024_full}
    if column not in sizes:
        raise BadInput(f"column {column!r}: choose single or double")
    width, _ = sizes[column]()["figure.figsize"]
    colors, markers, lines = zip(*SERIES, strict=True)
    return {
        **axes.lines(line_base_ratio=2.4),
        **axes.spines(top=False, right=False),
        **axes.grid(),
        **fontsizes.icml2024(),
        "figure.figsize": (width, width * aspect),
        "figure.constrained_layout.use": True,
        **EMBED,
        "axes.grid": True,
        "axes.prop_cycle": cycler(color=colors, marker=markers, linestyle=lines),
        "font.family": "DejaVu Sans",  # ships with matplotlib: the same glyphs on every machine
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 7,
        "legend.frameon": False,
        "legend.handlelength": 2.6,  # long enough to show a whole dash pattern
        "lines.markersize": 3.5,
    }


def apply_style(column: Column = "single", *, aspect: float = 0.62) -> None:
    """Use the paper style from here on: 3.25 in (single) or 6.75 in (double) wide, height = aspect x width."""
    import matplotlib

    matplotlib.rcParams.update(_rc(column, aspect))


@contextlib.contextmanager
def style(column: Column = "single", *, aspect: float = 0.62) -> Iterator[None]:
    """`apply_style` for the figures made inside a `with` block."""
    import matplotlib

    with matplotlib.rc_context(_rc(column, aspect)):
        yield


def label_kind(where: "Axes | FigureBase", kinds: Sequence[str], extra: str = "") -> None:
    """Write small which kinds of truth are shown: bottom right of a figure, or up the right edge of an axes.

    Both places take part in constrained layout, so nothing is covered. Label the axes where panels differ in
    kind. Raises BadInput for an unknown kind.
    """
    from matplotlib.figure import FigureBase

    text = " + ".join(check_kinds(kinds)) + (f" · {extra}" if extra else "")
    small: dict[str, Any] = {"fontsize": 6, "color": "#444444"}
    if not isinstance(where, FigureBase):
        where.annotate(
            text, (1, 0), xycoords="axes fraction", xytext=(3, 0), textcoords="offset points",
            rotation=90, ha="left", va="bottom", annotation_clip=False, **small,
        )  # fmt: skip
    elif where.get_supxlabel():
        raise BadInput("the figure has a common x label where its kind would stand: give label_kind an axes")
    else:
        where.supxlabel(text, x=0.995, ha="right", **small)


def check_kinds(kinds: Sequence[str]) -> Sequence[str]:
    """The kinds, if each is one of the four; a plain string is one kind by mistake, not four letters."""
    if isinstance(kinds, str) or not kinds or not set(kinds) <= set(KINDS):
        raise BadInput(f"kinds {kinds!r}: give one or more of {', '.join(KINDS)}, as a tuple")
    return kinds
