"""A notebook's parameters: read from its parameters cell, and checked before any value is used.

papermill checks nothing: a misspelt name runs with the defaults, "no" stays a (true) string. Here the cell itself
is the schema: annotated plain types, a default, and a comment that documents each.
"""

import ast
import difflib
import io
import math
import re
import tokenize
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from labkit.errors import BadInput

Value = str | int | float | bool
Type = Literal["str", "int", "float", "bool"]

_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Parameter(msgspec.Struct, frozen=True):
    """One line of a parameters cell."""

    name: str
    type: Type
    default: Value
    help: str


def declared(source: str, where: str) -> tuple[Parameter, ...]:
    """The parameters that the cell `source` declares, in its order.

    Every line is `name: str|int|float|bool = default  # what it means`. Raises BadInput naming `where` and line.
    """
    try:
        statements = ast.parse(source).body
        comments = _comments(source)
    except (SyntaxError, ValueError, tokenize.TokenError) as error:
        raise BadInput(f"{where}: the parameters cell is not plain Python: {error}") from error
    found: dict[str, Parameter] = {}
    for statement in statements:
        parameter = _parameter(statement, comments, where)
        if parameter.name in found:
            raise BadInput(f"{where}, parameters cell, line {statement.lineno}: {parameter.name} stands there twice")
        found[parameter.name] = parameter
    return tuple(found.values())


def _comments(source: str) -> dict[int, str]:
    """Comment text by line number."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {t.start[0]: t.string.lstrip("#").strip() for t in tokens if t.type == tokenize.COMMENT}


def _parameter(statement: ast.stmt, comments: Mapping[int, str], where: str) -> Parameter:
    line = f"{where}, parameters cell, line {statement.lineno}"
    match statement:
        case ast.AnnAssign(
            target=ast.Name(id=name), annotation=ast.Name(id="str" | "int" | "float" | "bool" as kind), value=ast.expr()
        ):
            pass
        case _:
            raise BadInput(f"{line}: write `name: str|int|float|bool = default  # what it means`, and nothing else")
    try:
        default = ast.literal_eval(statement.value)
    except (ValueError, TypeError):
        raise BadInput(f"{line}: the default of {name} must be a plain value") from None
    if not comments.get(statement.end_lineno or 0):
        raise BadInput(f"{line}: {name} has no comment behind it that says what it means")
    return Parameter(name, kind, checked(name, kind, default, line), comments[statement.end_lineno or 0])


def checked(name: str, kind: Type, value: object, where: str) -> Value:
    """`value`, if it is of the declared type (an int serves as a float); raises BadInput otherwise."""
    good = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    }[kind]
    if not good:
        raise BadInput(f"{where}: parameter {name} must be {_WANTED[kind]}, not {value!r}")
    return float(value) if kind == "float" else value


def coerced(parameter: Parameter, value: object, where: str) -> Value:
    """`value` as the declared type; text from a command line is read strictly. Raises BadInput."""
    kind = parameter.type
    if not isinstance(value, str) or kind == "str":
        return checked(parameter.name, kind, value, where)
    if kind == "bool" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind == "int" and _INT.fullmatch(value) and len(value) <= 20:
        return int(value)
    if kind == "float" and _FLOAT.fullmatch(value):
        return checked(parameter.name, kind, float(value), where)
    return checked(parameter.name, kind, value, where)  # raises, naming what was wanted


_WANTED: dict[Type, str] = {
    "str": "text",
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false (with papermill's -p: True or False)",
}


def resolve(
    parameters: Iterable[Parameter], given: Mapping[str, object], where: str, reserved: Mapping[str, str] | None = None
) -> dict[str, Value]:
    """The `given` values, coerced. Raises BadInput on a name that is not declared, or that `reserved` explains."""
    known = {parameter.name: parameter for parameter in parameters}
    values = {}
    for name, value in given.items():
        if why := (reserved or {}).get(name):
            raise BadInput(f"{where}: {name} is no parameter to pass here: {why}")
        if name not in known:
            open_ones = [k for k in known if k not in (reserved or {})]
            raise BadInput(f"{where} has no parameter {name!r}{suggestion(name, open_ones)}")
        values[name] = coerced(known[name], value, where)
    return values


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, and all that are known."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return f"{meant} Known: {', '.join(known) if known else 'none'}"
