"""Locks between processes. The system drops them when their holder ends, however it ends."""

import contextlib
import fcntl
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from labkit.errors import NotAvailable, Refused


class Holder(msgspec.Struct, frozen=True):
    """Who holds the measuring lock; written into its file."""

    pid: int
    command: str
    since: str


@contextlib.contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`, waiting for its present holder; `on_wait` is called once if there is one."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait:
                on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def measuring_lock(path: Path | None = None) -> Iterator[None]:
    """Hold this machine's one right to measure: two measurements at once would measure each other.

    One lock file for all users, by default in the system's folder for temporary files. Raises Refused naming the
    holder if there is one, NotAvailable if the file cannot be opened.
    """
    path = path or _machine_wide()
    handle = _open_for_everyone(path)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"this machine is measuring already: {_holder(handle)}. Wait until it is done, or stop it; "
                "two measurements at once would measure each other"
            ) from None
        _rewrite(handle, msgspec.json.encode(_me()))
        try:
            yield
        finally:
            _rewrite(handle, b"")
    finally:
        os.close(handle)


def _machine_wide() -> Path:
    # For what shares nothing with the rest of the machine, as tests do.
    if chosen := os.environ.get("LABKIT_MEASURING_LOCK"):
        return Path(chosen)
    # tempfile's folder is one per user on macOS, and follows TMPDIR anywhere: neither is the machine's.
    shared = Path("/tmp")
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / "labkit-measuring.lock"


def _open_for_everyone(path: Path) -> int:
    try:
        try:
            # Without O_CREAT first: Linux forbids it on somebody else's file in a sticky folder.
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            os.fchmod(handle, 0o666)  # the umask does not count: another user must be able to lock it too
            return handle
    except OSError as error:
        raise NotAvailable(
            f"cannot open {path}, the lock that keeps measurements apart: {error.strerror}; remove the file"
        ) from error


def _me() -> Holder:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return Holder(os.getpid(), command[:200], f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")


def _holder(handle: int) -> str:
    try:
        holder = msgspec.json.decode(os.pread(handle, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return "another process (it has only just begun)"
    return f"process {holder.pid} (`{holder.command}`), since {holder.since}"


def _rewrite(handle: int, content: bytes) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, content, 0)
