"""The table that a paper prints."""

import pandas
import pytest

from labkit.headings import for_paper
from labkit.latex import booktabs

FRAME = pandas.DataFrame(
    {
        "chip": ["Apple M4 Pro", "AMD EPYC"],
        "machine": ["inference1", "0123"],
        "run_id": ["a", "b"],
        "threads": pandas.array([14, 2], dtype="Int64"),
        "gb_per_s": [249.5, 62.04],
        "low": [None, None],
        "share": pandas.array([0.9139, None], dtype="Float64"),
        "own": [1, 2],
    }
)


def test_known_columns_are_named_and_rounded_unknown_ones_stay_as_they_are():
    table = for_paper(FRAME)
    assert table.fillna("missing").to_dict("list") == {
        "Chip": ["Apple M4 Pro", "AMD EPYC"],
        "Threads": ["14", "2"],
        "GB/s": ["249.5", "62.0"],
        "Of the bus": ["91%", "missing"],
        "own": [1, 2],
    }


def test_in_latex_a_missing_share_is_a_dash_and_numbers_are_flush_right():
    text = booktabs(for_paper(FRAME))
    assert r"\begin{tabular}{lrrrr}" in text
    assert r"AMD EPYC & 2 & 62.0 & -- & 2 \\" in text
    assert r"91\%" in text


@pytest.mark.parametrize("frame", [FRAME.iloc[:0], FRAME[["machine"]]])
def test_nothing_to_print_is_an_empty_table(frame):
    assert for_paper(frame).empty
