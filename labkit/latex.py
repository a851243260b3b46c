"""Tables for a paper: a DataFrame as LaTeX booktabs, everything in it escaped."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_MISSING = "--"  # never as 0
_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def escape(text: object) -> str:
    """Text as LaTeX shows it: special characters escaped."""
    return "".join(_SPECIAL.get(c, c) for c in str(text))


def booktabs(df: "pd.DataFrame", *, caption: str = "", label: str = "", kinds: Sequence[str] = ()) -> str:
    """A booktabs table (needs \\usepackage{booktabs}); headings, cells and caption are plain text and escaped.

    Floats show three significant digits and their whole integer part; missing values show as --.
    """
    df = with_index(df)
    columns = "".join("r" if _is_numbers(df[name]) else "l" for name in df.columns)
    said = [part for part in (caption.strip(), f"Kind: {', '.join(kinds)}." if kinds else "") if part]
    if len(said) == 2 and said[0][-1] not in ".?!":
        said[0] += "."
    # to_latex puts caption and label in as they are
    return (
        df.style.format(_cell)
        .format_index(escape, axis=1)
        .hide(axis="index")
        .to_latex(
            hrules=True,
            column_format=columns,
            caption=escape(" ".join(said)) or None,
            label=label or None,
            position_float="centering",
            multicol_align="c",
        )
    )


def _is_numbers(column: "pd.Series") -> bool:
    """Numbers, or text that was rounded from them for print: set flush right."""
    from pandas.api.types import is_numeric_dtype

    known = column.dropna()
    return is_numeric_dtype(column.dtype) or bool(len(known) and known.astype(str).str.fullmatch(r"-?[\d.]+%?").all())


def with_index(df: "pd.DataFrame") -> "pd.DataFrame":
    """A named index is data and becomes a column; an unnamed one is only row numbers."""
    return df.reset_index(drop=not any(df.index.names))


def _cell(value: Any) -> str:
    import numpy as np
    import pandas as pd

    if pd.isna(value):
        return _MISSING
    if isinstance(value, float | np.floating):
        return _number(float(value))
    return escape(value)


def _number(value: float) -> str:
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if -4 <= power < 9:
        return f"{value:.{max(0, 2 - power)}f}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$"
