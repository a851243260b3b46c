"""Files and commands give their text, or a reason that names what was asked for."""

import sys

import pytest

from labkit.machine.facts import Fact
from labkit.machine.sources import Unknown, known, listing, read_text, run_command, whole_number

PYTHON = sys.executable


def test_a_fact_that_can_be_read_carries_its_source():
    assert known(lambda: (3, "here")) == Fact(3, "here")


def test_a_fact_that_cannot_be_read_is_none_and_says_why():
    def nothing():
        raise Unknown("no such counter")

    assert known(nothing) == Fact(None, "no such counter")


def test_a_bug_in_a_reader_is_not_taken_for_an_unknown_fact():
    with pytest.raises(ZeroDivisionError):
        known(lambda: (1 // 0, "here"))


def test_the_reason_for_a_missing_file_names_it_without_the_root(tmp_path):
    for read in (read_text, listing):
        with pytest.raises(Unknown, match=r"^/proc/nothing: No such file or directory$"):
            read(tmp_path, "proc/nothing")


def test_a_folder_in_a_files_place_is_a_reason(tmp_path):
    (tmp_path / "stat").mkdir()
    with pytest.raises(Unknown, match=r"^/stat: Is a directory$"):
        read_text(tmp_path, "stat")


def test_bytes_that_are_no_text_do_not_raise(tmp_path):
    (tmp_path / "raw").write_bytes(b"\xff\xfe\x00")
    assert isinstance(read_text(tmp_path, "raw"), str)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "0x10", "1_000", "max", "9" * 5000, "1 2", "\u0661"])
def test_only_plain_digits_are_a_whole_number(text):
    with pytest.raises(Unknown, match="/f is not a whole number"):
        whole_number(text, "/f")


def test_white_space_around_a_number_is_no_matter():
    assert whole_number(" 42\n", "/f") == 42


def test_a_command_gives_its_output_in_the_c_locale():
    assert run_command([PYTHON, "-c", "import os; print(os.environ['LC_ALL'])"]) == "C\n"


def test_a_missing_command_says_that_it_is_not_installed():
    with pytest.raises(Unknown, match=r"^no-such-tool is not installed$"):
        run_command(["no-such-tool", "-x"])


def test_a_failing_command_gives_its_status_and_last_words():
    script = "import sys; sys.stderr.write('one\\ntwo: denied\\n'); sys.exit(3)"
    with pytest.raises(Unknown, match=r"failed with status 3: two: denied$"):
        run_command([PYTHON, "-c", script])


def test_a_slow_command_is_ended_and_says_so():
    with pytest.raises(Unknown, match=r"gave no answer within 0.2 s$"):
        run_command([PYTHON, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


def test_a_command_gets_no_input():
    assert run_command([PYTHON, "-c", "import sys; print(repr(sys.stdin.read()))"]) == "''\n"
