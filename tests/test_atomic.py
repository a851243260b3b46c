"""A file is written whole or not at all, whatever happens meanwhile."""

import contextlib
import os
import resource
import signal
import subprocess
import sys

import pytest

from labkit import atomic

# Kills itself at every N-th step of the interpreter inside a write of a run file, in a fork each; the parent
# process looks at the folder after each death. Two forks of one write: the first run of the name, and a second.
KILL_EVERYWHERE = """
import os, signal, sys
from pathlib import Path
from labkit import atomic, records
import labkit.records.write

folder = Path(sys.argv[1])
header = records.Header(schema=1, run_id="r", primitive="bus", kind="measured", chip="Chip", machine="m")
rows = [records.Row(quantity="read_bandwidth", value=float(n), unit="GB/s", repeat=n) for n in range(20)]
inside = {sys.modules["labkit.records.write"].__file__, atomic.__file__}

def write_and_die_at(step):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename not in inside:
            return None
        frame.f_trace_opcodes = True
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    records.write(folder, header, rows)
    sys.settrace(None)

whole = 0
step = 1
while True:
    child = os.fork()
    if child == 0:
        write_and_die_at(step)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    files = sorted((folder / "runs").rglob("*.jsonl"))
    for file in files:
        run = records.read_run(file)
        assert len(run.rows) == 20, step
        whole += 1
        file.unlink()
    assert records.read_all(folder)[1] == (), "a killed write must leave nothing that looks like a run"
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    step += STRIDE
left = list((folder / "runs").rglob(".*.tmp"))
print(step // STRIDE, whole, len(left))
"""


@contextlib.contextmanager
def limited_files(size):
    """No file may grow beyond `size` bytes meanwhile: the kernel says so as it does on a full disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, old)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_write_killed_at_any_of_200_points_leaves_no_run_or_a_whole_one(tmp_path):
    stride = 5  # every fifth bytecode of the write: some 300 points
    code = KILL_EVERYWHERE.replace("STRIDE", str(stride))
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    points, whole, left = map(int, done.stdout.split())
    assert points >= 200
    assert 1 <= whole < points  # killed before the rename: no run; after it: a whole one
    assert left <= 1  # the last writer's at most: each write removes what dead ones left


def test_the_old_content_stands_until_the_new_is_whole(tmp_path):
    path = atomic.write(tmp_path / "file", b"old")
    said = r"could not write file \(5000 bytes\).*no space left; nothing that stood there before was changed"
    with limited_files(1000), pytest.raises(atomic.CannotWrite, match=said):
        atomic.write(path, b"x" * 5000)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_a_sentence_and_leaves_earlier_records(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small file system can only be mounted by root: " + mounted.stderr.decode().strip()[:80])
    try:
        atomic.write(mount / "earlier", b"kept")
        with pytest.raises(atomic.CannotWrite, match="no space left"):
            atomic.write(mount / "later", b"x" * 200_000)
        assert (mount / "earlier").read_bytes() == b"kept"
        assert [p.name for p in mount.iterdir()] == ["earlier"]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_files_written_together_are_all_new_or_all_old(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    atomic.write_all({first: b"1", second: b"1"})
    with limited_files(1000), pytest.raises(atomic.CannotWrite, match="could not write second"):
        atomic.write_all({first: b"2", second: b"2" * 5000})
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"1")


def test_a_failure_between_two_renames_says_what_is_in_place_already(tmp_path):
    (tmp_path / "second").mkdir()
    with pytest.raises(atomic.CannotWrite, match=r"could not write second .*already in place: first"):
        atomic.write_all({tmp_path / "first": b"2", tmp_path / "second": b"2"})
    assert (tmp_path / "first").read_bytes() == b"2"
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(atomic.CannotWrite, match="could not write new"):
        atomic.write(tmp_path / "file" / "new", b"")


def test_what_killed_writers_left_is_removed_and_what_live_ones_write_is_not(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead, live = tmp_path / f".a.{gone.stdout.strip()}.tmp", tmp_path / f".b.{os.getpid()}.tmp"
    dead.touch()
    live.touch()
    atomic.write(tmp_path / "file", b"")
    assert not dead.exists()
    assert live.exists()
