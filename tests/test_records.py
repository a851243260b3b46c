"""Run files: what is written is what is read, and nothing damaged is read at all."""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import records
from labkit.errors import BadInput, LabkitError
from labkit.records import Code, Header, Row
from labkit.records.schema import UNITS


def header(**changes):
    fields = {
        "schema": 1,
        "run_id": "20261130T201500Z-bus-1a2b3c4d",
        "primitive": "bus",
        "kind": "measured",
        "chip": "Test Chip",
        "machine": "0123456789ab",
        "started_at": "2026-11-30T20:15:00.000+00:00",
        "labkit": Code(version="0.1.0", source="ab", dirty=False),
        "parameters": {"threads": [1, 2], "quick": True},
    }
    return Header(**{**fields, **changes})


def row(**changes):
    return Row(**{"quantity": "read_bandwidth", "value": 33.25, "unit": "GB/s", "repeat": 0, **changes})


WHOLE = records.encode(
    header(), [row(repeat=n, threads=1, cpu_share=0.99) for n in range(5)], "complete", {"load1": 0.5}
)

finite = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
rows = st.builds(
    Row,
    quantity=st.sampled_from(sorted(UNITS)),
    value=finite,
    unit=st.just("GB/s"),
    repeat=st.integers(0, 10**6),
    threads=st.none() | st.integers(0, 10**4),
    cpu_share=st.none() | finite,
    tier=st.none() | st.text(min_size=1, max_size=20),
    store=st.sampled_from([None, "regular", "nontemporal"]),
)


@given(st.lists(rows, max_size=8))
@settings(max_examples=60)
def test_any_run_reads_back_as_it_was_written(written):
    run = records.parse_run(records.encode(header(), written, "complete", {"load1": 0.1}), "file")
    assert run.rows == tuple(written)
    assert run.header == header()
    assert run.end.rows == len(written)
    assert run.end.state_after == {"load1": 0.1}


def test_a_run_file_lies_under_its_chip_and_is_never_rewritten(tmp_path):
    path = records.write(tmp_path, header(), [row()])
    assert path == tmp_path / "runs" / "test-chip" / "20261130T201500Z-bus-1a2b3c4d.jsonl"
    with pytest.raises(BadInput, match="never rewritten"):
        records.write(tmp_path, header(), [row()])


@pytest.mark.parametrize("bad", [{"bus_peak_source": "x" * 401}, {"machine": ""}])
def test_a_header_that_could_not_be_read_back_is_not_written(bad, tmp_path):
    with pytest.raises(records.BadRecord, match="line 1"):
        records.write(tmp_path, header(**bad), [row()])
    assert not list(tmp_path.rglob("*.jsonl"))


def test_two_runs_of_one_second_have_two_names():
    assert len({records.new_run_id("bus") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (row(quantity="speed"), "quantity: 'speed' is unknown"),
        (row(unit="s"), "unit: read_bandwidth is in GB/s, not s"),
        (row(value=float("nan")), "value: nan"),
        (row(value=float("inf")), "value: inf"),
        (row(value=-1.0), "value: -1.0"),
    ],
)
def test_a_row_that_is_no_record_is_not_written(bad, said):
    with pytest.raises(BadInput, match=said):
        records.encode(header(), [row(), bad], "complete", {})


def lines(**replaced):
    """The whole file with some lines (by number from 1) replaced by text."""
    parts = WHOLE.decode().splitlines(keepends=True)
    for number, text in replaced.items():
        parts[int(number[1:]) - 1] = text
    return "".join(parts).encode()


def line_3(**fields):
    """The whole file with its third line holding these fields."""
    return lines(l3=json.dumps({"type": "row", **fields}) + "\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (line_3(quantity="read_bandwidth", value="33", unit="GB/s", repeat=1), r"line 3: value:"),
        (line_3(quantity="read_bandwidth", value=3, unit="MB/s", repeat=1), r"line 3: unit:"),
        (line_3(quantity="read_bandwidth", value=3, unit="GB/s"), r"line 3: repeat:"),
        (line_3(quantity="x", value=3, unit="GB/s", repeat=1), r"line 3: quantity:"),
        (line_3(quantity="read_bandwidth", value=3, unit="GB/s", repeat=1, host="a"), r"line 3: host:"),
        (lines(l3="{}\n"), r"line 3: type:"),
        (lines(l3="not json\n"), r"line 3: "),
        (lines(l3="[" * 100_000 + "\n"), r"line 3: "),
        (lines(l3=WHOLE.decode().splitlines(keepends=True)[0]), r"line 3: a second header"),
        (lines(l3=""), r"line 6: rows: the end line counts 5, the file holds 4"),
        (WHOLE.replace(b"33.25", b"38.25", 1), r"line 7: sha256: the file was changed"),
        (WHOLE + WHOLE, r"line 8: there is more after the end line"),
        (WHOLE + b"x", r"line 8: there is more after the end line"),
        (WHOLE.replace(b'"schema":1', b'"schema":2'), r"line 1: schema 2 is newer than this labkit's 1: update labkit"),
        (lines(l1='{"type":"header","schema":1}\n'), r"line 1: run_id:"),
        (b"a,b\n1,2\n", r"line 1: "),
        (b"%PDF-1.7 \xff\xfe\n", r"line 1: "),
        (lines(l1=""), r"line 1: the first line is not a header"),
        (WHOLE[:40], r"line 1: the first line is not a whole header"),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_named_with_line_and_field(content, said):
    with pytest.raises(records.BadRecord, match=said):
        records.parse_run(content, "some.jsonl")


def test_a_file_cut_anywhere_after_its_header_is_no_run_but_no_error_either(tmp_path):
    header_end = WHOLE.index(b"\n") + 1
    for cut in range(header_end, len(WHOLE)):
        with pytest.raises((records.NotARun, records.BadRecord)) as caught:
            records.parse_run(WHOLE[:cut], "some.jsonl")
        # Only a cut inside a line can look damaged; a torn last line means that writing stopped.
        assert caught.type is records.NotARun, WHOLE[:cut][-60:]


def test_a_thousand_mutated_files_each_load_or_give_one_error():
    """Bytes flipped, cut, doubled, swapped and replaced at random: never a traceback, never another run's values."""
    random_ = random.Random(7)
    original = records.parse_run(WHOLE, "file")
    outcomes = {"loads": 0, "refused": 0}
    for _ in range(1000):
        content = bytearray(WHOLE)
        for _ in range(random_.randint(1, 4)):
            at = random_.randrange(len(content))
            kind = random_.randrange(5)
            if kind == 0:
                content[at] ^= 1 << random_.randrange(8)
            elif kind == 1:
                del content[at : at + random_.randint(1, 80)]
            elif kind == 2:
                content[at:at] = content[at : at + random_.randint(1, 80)]
            elif kind == 3:
                content[at] = random_.choice(b'{}[]",:\n0-eE.\x00\xff')
            else:
                other = random_.randrange(len(content))
                content[at], content[other] = content[other], content[at]
            if not content:
                break
        try:
            run = records.parse_run(bytes(content), "some.jsonl")
        except LabkitError as error:
            outcomes["refused"] += str(error).startswith("some.jsonl")
        else:
            assert run.rows == original.rows  # the checksum lets only harmless changes of the end line through
            outcomes["loads"] += 1
    assert outcomes["loads"] + outcomes["refused"] == 1000
    assert outcomes["refused"] > 900


@given(st.binary(max_size=300))
def test_no_bytes_at_all_give_a_traceback(content):
    with pytest.raises(LabkitError):
        records.parse_run(content, "file")


def test_the_end_line_tells_whether_the_run_is_partial():
    content = records.encode(header(), [row()], "partial", {}, "interrupted")
    end = records.parse_run(content, "file").end
    assert (end.status, end.reason) == ("partial", "interrupted")


def test_a_record_carries_nothing_that_its_schema_does_not_name():
    known = set(Header.__struct_fields__) | set(Row.__struct_fields__)
    assert not known & {"host", "hostname", "user", "path", "address", "environment"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "row", "hostname": "x"}, Row)
