"""The command line: one sentence for a mistake, the right exit code, and no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import __version__, project


def labkit(*arguments, cwd=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "labkit", *arguments],
        capture_output=True, text=True, timeout=120, cwd=cwd, env={**os.environ, "COLUMNS": "100", **env},
    )  # fmt: skip


def refused(code, said, *arguments, **options):
    done = labkit(*arguments, **options)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert said in " ".join(done.stderr.split()), done.stderr
    return done


def test_the_version_is_the_package_s():
    assert labkit("--version").stdout.strip() == f"labkit {__version__}"


def test_without_arguments_the_commands_are_listed():
    done = labkit()
    for command in ("machine", "bus", "run"):
        assert command in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bus", "--threads", "two"), "--threads two: give whole numbers"),
        (("bus", "--threads", "0"), "this machine can run 1 to"),
        (("bus", "--kernels", "sse"), "choose from llvm, numpy"),
        (("bus", "--peak-gbs", "-1"), "peak"),
        (("run", "--chip", "Apple M9"), "Known: "),
        (("run", "--notebook", "99_nothing"), "99_nothing"),
        (("run", "-p", "quick"), "give NAME=VALUE"),
        (("run", "-p", "quick=maybe"), "quick must be true or false"),
        (("run", "-p", "quik=true"), "did you mean 'quick'"),
        (("run", "--jobs", "0"), "at least 1"),
        (("nothing",), "No such command"),
        (("bus", "--nothing"), "No such option"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(arguments, said, tmp_path):
    refused(2, said, *arguments, cwd=project.PACKAGE.parent)


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has a GPU")
def test_what_this_machine_cannot_do_is_exit_code_3(tmp_path):
    refused(3, "no GPU here", "bus", "--quick", "--gpu", "--data-dir", str(tmp_path))


def test_an_unknown_chip_names_the_known_ones():
    done = refused(2, "there are no data for chip 'Apple M4 Por'", "run", "--chip", "Apple M4 Por")
    assert "did you mean 'Apple M4 Pro'" in done.stderr


def test_a_damaged_run_file_is_named(tmp_path):
    bad = tmp_path / "runs" / "chip" / "bad.jsonl"
    bad.parent.mkdir(parents=True)
    bad.write_text("hello\n")
    refused(2, "bad.jsonl, line 1", "run", "--data-dir", str(tmp_path), "--figures-dir", str(tmp_path / "figures"))


def test_the_machine_is_shown_as_a_table_and_as_json():
    table = labkit("machine", "--peak-gbs", "123.5")
    assert table.returncode == 0
    assert "123.5" in table.stdout
    assert "declared" in table.stdout
    found = json.loads(labkit("machine", "--json").stdout)
    assert set(found) == {"machine", "state"}
    assert found["machine"]["chip"]["source"]
    assert found["state"]["sources"]


def test_a_reader_that_has_had_enough_gets_no_traceback():
    shell = f"'{sys.executable}' -m labkit machine | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "Machine"
    assert done.stderr == ""


@pytest.mark.slow
def test_a_batch_ends_with_what_was_found_and_where(tmp_path):
    figures = tmp_path / "figures"
    done = labkit("run", "--notebook", "90_compare_chips", "--figures-dir", str(figures), cwd=project.PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    published, where = done.stdout.splitlines()[-2:]
    assert published == ("Published: Apple M4 Pro reaches 91% of 273 GB/s; Apple M5 Max reaches 49% of 614 GB/s.")
    assert where == f"Figures: {figures} (1 folder), notebooks 1 done."
    assert (Path(figures) / "all" / "curves.pdf").is_file()
    again = labkit("run", "--notebook", "90_compare_chips", "--figures-dir", str(figures), cwd=project.PACKAGE.parent)
    assert again.stdout.splitlines()[-1].endswith("notebooks 1 skipped.")
