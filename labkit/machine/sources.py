"""Where facts come from: files and commands, each read with a reason ready for when it cannot be."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from labkit.machine.facts import Fact

T = TypeVar("T")

Run = Callable[[list[str]], str]
"""Runs a command and returns its standard output; raises Unknown when it is missing, fails or is too slow."""

COMMAND_TIMEOUT_S = 10.0
SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"


class Unknown(Exception):
    """A fact that cannot be had; the text says why. It never leaves this package: it becomes a Fact's source."""


def known(read: Callable[[], tuple[T, str]]) -> Fact[T]:
    """The Fact that `read` returns as (value, source), or the unknown Fact that says why there is none."""
    try:
        value, source = read()
    except Unknown as why:
        return Fact(None, str(why))
    return Fact(value, source)


def read_text(root: Path, name: str) -> str:
    """The text of the file `name` (an absolute path without its leading slash) under `root`.

    Reasons name the file as it would be on a real system, never the root they were read under.
    """
    try:
        with open(os.path.join(root, name), "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        raise Unknown(f"/{name}: {error.strerror or type(error).__name__}") from None


def exists(root: Path, name: str) -> bool:
    """Whether `name` under `root` is there; what may not be looked at counts as absent."""
    return os.path.exists(os.path.join(root, name))


def listing(root: Path, name: str) -> list[str]:
    """Sorted names in the folder `name` under `root`."""
    try:
        return sorted(os.listdir(os.path.join(root, name)))
    except OSError as error:
        raise Unknown(f"/{name}: {error.strerror or type(error).__name__}") from None


def whole_number(text: str, where: str) -> int:
    """A non-negative integer, strictly; `where` names the place in the reason for anything else."""
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise Unknown(f"{where} is not a whole number: {shown(text)}")
    return int(text)


def shown(text: str) -> str:
    """What a reason quotes of text that was not understood: a short, printable piece."""
    return repr(text[:24]) + ("..." if len(text) > 24 else "")


def run_command(argv: list[str], timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Standard output of a command, in the C locale. Raises Unknown when missing, failing or slow."""
    name = argv[0]
    # System tools live in sbin, which is not on every user's PATH.
    path = os.pathsep.join(filter(None, [os.environ.get("PATH"), SYSTEM_FOLDERS]))
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, "LC_ALL": "C", "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise Unknown(f"{name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unknown(f"{name} gave no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise Unknown(f"{name} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).decode("utf-8", "replace").strip().split("\n")[-1]
        raise Unknown(f"{name} failed with status {done.returncode}: {complaint[:100]}")
    return done.stdout.decode("utf-8", "replace")
