"""A short-lived folder for one batch: kernels' sockets, IPython's and Jupyter's own files, workers' logs."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "labkit-"
_LOCK = ".labkit-batch"  # what tells our folders from others that somebody may name so
_LONGEST = 50  # sockets lie deeper inside, and their whole path has about 100 bytes


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A private folder with a short path, removed afterwards. Removes those that killed batches left behind."""
    base = place()
    _remove_abandoned(base)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    # Locked before it has its name: whoever finds it by that name finds it held.
    handle = os.open(folder / "new", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.rename(folder / "new", folder / _LOCK)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def place() -> Path:
    """The folder that scratch folders are made in: the system's for temporary files, if its path is short enough."""
    base = Path(tempfile.gettempdir()).resolve()
    return base if len(os.fsencode(base)) <= _LONGEST else Path("/tmp").resolve()


def _remove_abandoned(base: Path) -> None:
    for held in base.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            handle = os.open(held, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # somebody else's
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(held.parent, ignore_errors=True)
        except BlockingIOError:
            pass  # in use
        finally:
            os.close(handle)


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, but with nothing of the user's that could change what a notebook does."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    for name in ("ipython", "config", "r"):
        (folder / name).mkdir(exist_ok=True)
    return {
        **kept,
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_RUNTIME_DIR": str(folder / "r"),
        # Otherwise a kernel installed by the user elsewhere, with another Python, may be taken.
        "JUPYTER_PREFER_ENV_PATH": "1",
    }


_LEFT_OUT = {"PYTHONSTARTUP", "MPLBACKEND", "MATPLOTLIBRC"}
