"""One measurement a machine: the second is refused by name, and a dead holder holds nothing."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from labkit.errors import NotAvailable, Refused
from labkit.lock import exclusive, measuring_lock

HOLD = textwrap.dedent("""
    import sys
    from pathlib import Path
    from labkit.lock import measuring_lock
    sys.argv = ["/usr/bin/labkit", "bus", "--quick"]
    with measuring_lock(Path({path!r})):
        print("held", flush=True)
        sys.stdin.read()
""")


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock at .path; its standard input ends it."""
    path = tmp_path / "measuring.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(path=str(path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    process.path = path
    yield process
    process.kill()
    process.communicate()


def test_a_second_measurement_is_refused_and_told_who_measures(holder):
    said = rf"process {holder.pid} \(`labkit bus --quick`\), since 20.* UTC"
    with pytest.raises(Refused, match=said), measuring_lock(holder.path):
        pass


def test_the_lock_is_free_after_its_holder_ended(holder):
    holder.communicate("")
    with measuring_lock(holder.path):
        assert str(os.getpid()) in holder.path.read_text()
    assert holder.path.read_text() == ""


def test_the_lock_is_free_after_its_holder_was_killed(holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert str(holder.pid) in holder.path.read_text()  # what a dead holder wrote is no lock
    with measuring_lock(holder.path):
        pass


def test_the_lock_is_released_when_the_measurement_fails(tmp_path):
    path = tmp_path / "measuring.lock"
    with pytest.raises(ZeroDivisionError), measuring_lock(path):
        raise ZeroDivisionError
    with measuring_lock(path):
        pass


def test_every_user_may_lock_the_file(tmp_path):
    old = os.umask(0o077)
    try:
        with measuring_lock(tmp_path / "measuring.lock"):
            pass
    finally:
        os.umask(old)
    assert (tmp_path / "measuring.lock").stat().st_mode & 0o777 == 0o666


def test_a_lock_file_that_is_none_is_named(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAvailable, match="cannot open"), measuring_lock(tmp_path / "lock"):
        pass


def test_exclusive_says_that_it_waits_and_then_gets_the_lock(holder):
    waited = []

    def on_wait():
        waited.append(holder.pid)
        holder.communicate("")

    with exclusive(holder.path, on_wait):
        assert waited == [holder.pid]
    with exclusive(holder.path, on_wait):
        assert len(waited) == 1
