"""What a notebook may be given is what its parameters cell declares, in name and in type."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.parameters import Parameter, coerced, declared, resolve

CELL = """\
chip: str = "Apple M4 Pro"  # brand string
threads: int = -1  # how many; -1: all
share: float = 1  # of the bus
quick: bool = False  # fewer points
"""


def test_a_cell_is_read_with_types_defaults_and_comments():
    assert declared(CELL, "nb") == (
        Parameter("chip", "str", "Apple M4 Pro", "brand string"),
        Parameter("threads", "int", -1, "how many; -1: all"),
        Parameter("share", "float", 1.0, "of the bus"),
        Parameter("quick", "bool", False, "fewer points"),
    )


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("chip: str = 'x'", "no comment"),
        ("chip: str = 'x'  #", "no comment"),
        ("chip = 'x'  # brand", "write `name"),
        ("chip: str  # brand", "write `name"),
        ("chip: str | None = None  # brand", "write `name"),
        ("sizes: list = [1]  # bytes", "write `name"),
        ("import os  # why", "write `name"),
        ("threads: int = True  # n", "whole number"),
        ("threads: int = 2.0  # n", "whole number"),
        ("quick: bool = 1  # fewer", "true or false"),
        ("share: float = 1e999  # of", "finite"),
        ("n: int = len('x')  # n", "plain value"),
        ("n: int = {[]: 1}  # n", "plain value"),
        ("n: int = 1  # n\nn: int = 2  # n", "twice"),
        ("n: int = (", "not plain Python"),
    ],
)
def test_a_cell_that_is_no_schema_is_refused_with_place_and_reason(cell, complaint):
    with pytest.raises(BadInput, match=complaint) as error:
        declared(cell, "nb.ipynb")
    assert "nb.ipynb" in str(error.value)


@given(st.text())
@example("a: int = '\x00'")
@example("a: str = (\n'x'\n)  # ok")
def test_any_text_is_either_a_schema_or_bad_input(text):
    try:
        found = declared(text, "nb")
    except BadInput:
        return
    assert all(parameter.help for parameter in found)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bool", "true", True),
        ("bool", "False", False),
        ("int", "-12", -12),
        ("float", "1e3", 1000.0),
        ("float", ".5", 0.5),
        ("float", "7", 7.0),
        ("str", "7", "7"),
    ],
)
def test_text_from_a_command_line_becomes_the_declared_type(kind, text, value):
    got = coerced(Parameter("p", kind, value, "?"), text, "nb")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bool", "no"), ("bool", "1"), ("bool", 1), ("bool", ""), ("bool", None),
        ("int", "3.0"), ("int", "1_000"), ("int", " 3"), ("int", "٣"), ("int", True), ("int", 3.0), ("int", "9" * 5000),
        ("float", "nan"), ("float", "inf"), ("float", "1e999"), ("float", "1_0.5"), ("float", True),
        ("float", math.nan),
        ("str", 3), ("str", None), ("str", ["x"]),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_name(kind, value):
    with pytest.raises(BadInput, match="nb: parameter p must be"):
        coerced(Parameter("p", kind, "", "?"), value, "nb")


@given(st.sampled_from(["str", "int", "float", "bool"]), st.one_of(st.text(), st.floats(), st.integers(), st.none()))
def test_coercion_gives_the_declared_type_or_bad_input(kind, value):
    try:
        got = coerced(Parameter("p", kind, "", "?"), value, "nb")
    except BadInput:
        return
    assert type(got).__name__ == kind
    assert not isinstance(got, float) or math.isfinite(got)


def test_an_unknown_name_is_refused_with_the_closest_and_all_known_ones():
    with pytest.raises(
        BadInput, match=r"nb has no parameter 'quik'; did you mean 'quick'\? Known: threads, share, quick"
    ):
        resolve(declared(CELL, "nb"), {"quik": "true"}, "nb", {"chip": "use --chip"})


def test_a_reserved_name_is_refused_with_the_reason():
    with pytest.raises(BadInput, match="chip is no parameter to pass here: use --chip"):
        resolve(declared(CELL, "nb"), {"chip": "Apple M4"}, "nb", {"chip": "use --chip"})
