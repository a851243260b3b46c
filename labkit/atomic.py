"""Write a file whole or not at all."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from labkit.errors import LabkitError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CannotWrite(LabkitError):
    """The file could not be written; what stood there before is untouched."""

    exit_code = 3


def write(path: Path, content: bytes) -> Path:
    """Put `content` at `path`: readers see the old file or the new one, also after a power cut or kill -9.

    The content goes to a hidden file beside `path`, is synced, and takes its name in one step. A process that
    is killed can leave the hidden file; the next write into the folder removes it. Raises CannotWrite.
    """
    write_all({path: content})
    return path


def write_all(files: Mapping[Path, bytes]) -> None:
    """Put every content at its path. All are written in full before the first takes its name, in the given order.

    So a full disk leaves every earlier file as it was. A kill between two renames can leave new beside old: let
    the last file vouch for the others. Raises CannotWrite.
    """
    hidden = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in files}
    path, renamed = next(iter(files)), []
    try:
        for folder in dict.fromkeys(path.parent for path in files):
            folder.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(folder)
        for path, content in files.items():
            with open(hidden[path], "wb") as file:
                file.write(content)
                file.flush()
                _sync(file.fileno())
        for path, temporary in hidden.items():
            os.replace(temporary, path)
            renamed.append(path.name)
        for folder in dict.fromkeys(path.parent for path in files):
            _sync_folder(folder)
    except OSError as error:
        what = "no space left" if error.errno in FULL else (error.strerror or str(error))
        changed = (
            f"already in place: {', '.join(renamed)}" if renamed else "nothing that stood there before was changed"
        )
        raise CannotWrite(
            f"could not write {path.name} ({len(files[path])} bytes) in {path.parent}: {what}; {changed}"
        ) from error
    finally:
        # Gone after a rename; still there after any failure, Ctrl-C included.
        for temporary in hidden.values():
            with contextlib.suppress(OSError):
                temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """A rename is only durable once the folder itself is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    """To the medium itself: macOS's fsync only reaches the drive's own cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        # Not every file system knows it; the plain way is the next best.
        with contextlib.suppress(OSError):
            fcntl.fcntl(handle, full)
            return
    os.fsync(handle)


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed writers left: hidden .tmp files whose process no longer exists."""
    for left in folder.glob(".*.tmp"):
        pid = left.name.split(".")[-2]
        if pid.isdigit() and not _alive(int(pid)):
            left.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:
        return False
    return True
