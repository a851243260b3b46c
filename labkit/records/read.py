"""Read run files: whole and valid, or an error that names file, line and field."""

import hashlib
import re
from pathlib import Path
from typing import NoReturn

import msgspec

from labkit.errors import BadInput
from labkit.records.schema import SCHEMA, End, Header, Row, Run
from labkit.records.write import problem


class BadRecord(BadInput):
    """A file is not a run that this labkit can read."""


class NotARun(BadInput):
    """The file has no end line: it was never finished, so it is ignored (and reported), not an error."""


_LINE = msgspec.json.Decoder(Header | Row | End)
# msgspec names the field in one of these two ways.
_FIELD = re.compile(r"field `(?P<name>[^`]+)`|at `\$\.?(?P<path>[^`]*)`")


def read_run(path: Path) -> Run:
    """The run in `path`. Raises NotARun when the end line is missing, BadRecord for anything else amiss."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadRecord(f"{path}: cannot be read: {error.strerror}") from error
    return parse_run(content, str(path))


def parse_run(content: bytes, name: str) -> Run:
    """The run that `content` holds; `name` stands for the file in messages. Raises as read_run does."""
    lines = content.split(b"\n")
    torn = lines.pop()  # b"" when the last line is whole
    header: Header | None = None
    rows: list[Row] = []
    end: End | None = None
    seen = 0  # bytes before the line at hand
    for number, line in enumerate(lines, 1):
        if end is not None:
            _bad(name, number, "there is more after the end line")
        record = _decode(line, name, number)
        if isinstance(record, Header):
            if header is not None:
                _bad(name, number, "a second header")
            if record.schema > SCHEMA:
                _bad(
                    name,
                    number,
                    f"schema {record.schema} is newer than this labkit's {SCHEMA}: update labkit",
                )
            header = record
        elif header is None:
            _bad(name, number, "the first line is not a header: this is no run file")
        elif isinstance(record, Row):
            if found := problem(record):
                _bad(name, number, found)
            rows.append(record)
        else:
            end = record
            if end.rows != len(rows):
                _bad(name, number, f"rows: the end line counts {end.rows}, the file holds {len(rows)}")
            if end.sha256 != hashlib.sha256(content[:seen]).hexdigest():
                _bad(name, number, "sha256: the file was changed after it was written")
        seen += len(line) + 1
    if torn and end is not None:
        _bad(name, len(lines) + 1, "there is more after the end line")
    if header is None and content:
        _bad(name, 1, "the first line is not a whole header: this is no run file")
    if header is None or end is None:
        raise NotARun(f"{name}: no end line: the run was never finished")
    return Run(header=header, rows=tuple(rows), end=end, path=name)


def _decode(line: bytes, name: str, number: int) -> Header | Row | End:
    try:
        return _LINE.decode(line)
    # RecursionError and UnicodeDecodeError: what damaged bytes can also provoke in a JSON decoder.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = str(error)
        found = _FIELD.search(message)
        field = (found["name"] or found["path"]) if found else ""
        _bad(name, number, f"{field}: {message}" if field else message, error)


def _bad(name: str, number: int, what: str, cause: Exception | None = None) -> NoReturn:
    raise BadRecord(f"{name}, line {number}: {what} (restore the file, or move it out of the data folder)") from cause
