"""Write a file whole or not at all."""

import contextlib
import errno
import os
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        what = "no space left" if error.errno in FULL else (error.strerror or str(error))
        raise CannotWrite(
            f"could not write {path.name} ({len(content)} bytes) in {path.parent}: {what}; "
            "nothing that stood there before was changed"
        ) from error
    finally:
        # Gone after a rename; still there after any failure, Ctrl-C included.
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


def _sync_folder(folder: Path) -> None:
    """A rename is only durable once the folder itself is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
