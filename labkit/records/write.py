"""Write a run: one immutable file, whole or absent."""

import hashlib
import math
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from labkit import atomic, project
from labkit.errors import BadInput
from labkit.records.schema import UNITS, End, Header, Row


def new_run_id(primitive: str, now: datetime | None = None) -> str:
    """A run's name, unique and sorted by time: '20261130T201500Z-bus-1a2b3c4d'."""
    now = now or datetime.now(UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{primitive}-{secrets.token_hex(4)}"


def utc_now() -> str:
    """This moment in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def problem(row: Row) -> str | None:
    """What the types cannot say: why this row is not a record, or None when it is."""
    if row.quantity not in UNITS:
        return f"quantity: '{row.quantity}' is unknown (known: {', '.join(UNITS)})"
    if row.unit != UNITS[row.quantity]:
        return f"unit: {row.quantity} is in {UNITS[row.quantity]}, not {row.unit}"
    if not math.isfinite(row.value) or row.value < 0:
        return f"value: {row.value} is not a finite number of at least 0"
    return None


def encode(
    header: Header,
    rows: Sequence[Row],
    status: Literal["complete", "partial"],
    state_after: Mapping[str, Any],
    reason: str | None = None,
) -> bytes:
    """The bytes of a run file. Raises BadInput on a row that a reader would reject."""
    for number, row in enumerate(rows):
        if found := problem(row):
            raise BadInput(f"row {number} of {header.run_id} cannot be recorded: {found}")
    encoder = msgspec.json.Encoder()
    body = b"".join(encoder.encode(line) + b"\n" for line in (header, *rows))
    end = End(
        status=status,
        rows=len(rows),
        finished_at=utc_now(),
        sha256=hashlib.sha256(body).hexdigest(),
        reason=reason,
        state_after=dict(state_after),
    )
    return body + encoder.encode(end) + b"\n"


def write(
    data_dir: Path,
    header: Header,
    rows: Sequence[Row],
    status: Literal["complete", "partial"] = "complete",
    state_after: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> Path:
    """Write data_dir/runs/<chip>/<run_id>.jsonl and return its path. Raises BadInput, atomic.CannotWrite."""
    from labkit.records.read import parse_run

    path = _folder(data_dir, header.chip) / f"{header.run_id}.jsonl"
    content = encode(header, rows, status, state_after or {}, reason)
    parse_run(content, path.name)  # what could not be read back is not written
    check_folder(data_dir, header.chip)
    if path.exists():
        raise BadInput(f"{path} exists already: a run is never rewritten")
    return atomic.write(path, content)


def check_folder(data_dir: Path, chip: str) -> None:
    """Make the folder that a chip's runs go to and write there. Raises CannotWrite: better before measuring."""
    folder = _folder(data_dir, chip)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise atomic.CannotWrite(
            f"runs cannot be written into {folder}: {error.strerror}; make it writable, or pass --data-dir"
        ) from error


def _folder(data_dir: Path, chip: str) -> Path:
    return data_dir / "runs" / project.slug(chip)
