"""Which source code a result came from: digests of labkit as a whole, and of the part that a notebook reaches.

A notebook is stale only if code that it reaches has changed. Reach is found without running anything: imports are
read from the syntax trees, those inside functions included.
"""

import ast
import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from labkit.errors import BadInput
from labkit.project import PACKAGE

_COMPUTED_IMPORTS = {"import_module", "__import__"}
_MAGIC = re.compile(r"^(?P<indent>\s*)(?:[%!?]|.*\?\s*$|[\w.,\s\[\]]+=\s*[%!])")
_IMPORT_TEXT = re.compile(
    r"\bfrom\s+(?P<whence>\.*[\w.]+)\s+import\b\s*\(?(?P<names>[^)\n#;]*)|\bimport\s+(?P<plain>[\w.,\t ]+)"
)


def package_digest(package: Path = PACKAGE) -> str:
    """sha256 over the names and contents of every .py file of `package`."""
    return Tree(package).digest_of_all()


def closure_digest(modules: Iterable[str], package: Path = PACKAGE) -> str:
    """sha256 over every module of `package` that `modules` (dotted names; others are ignored) lead to by imports."""
    return Tree(package).digest(modules)


def dirty(package: Path = PACKAGE) -> bool | None:
    """Whether `package` differs from its git commit; None without git, or where git does not track it."""
    if not _git(package, "ls-files", "--", "__init__.py"):
        return None
    changes = _git(package, "status", "--porcelain", "--", ".")
    return None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    # Without optional locks a status beside a running commit cannot make that commit fail.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class Tree:
    """The modules of one package on disk. Each file is read and parsed once in the life of this object."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self.package = package
        self._reads: dict[str, set[str]] = {}

    @cached_property
    def files(self) -> dict[str, Path]:
        """Every module's dotted name and file."""
        found = {}
        for path in sorted(self.package.rglob("*.py")):
            parts = (self.package.name, *path.relative_to(self.package).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    @cached_property
    def contents(self) -> dict[str, bytes]:
        """Every module's source."""
        return {name: path.read_bytes() for name, path in self.files.items()}

    def reached(self, modules: Iterable[str]) -> set[str]:
        """The modules that importing `modules` can load: they, the packages around them, and all that these import."""
        found: set[str] = set()
        waiting = {name for module in modules for name in self._with_parents(module)}
        while waiting:
            name = waiting.pop()
            found.add(name)
            waiting |= self._imports(name) - found
        return found

    def digest(self, modules: Iterable[str]) -> str:
        """sha256 over names and contents of `reached(modules)`; the order of `modules` does not matter."""
        return self._digest(self.reached(modules))

    def digest_of_all(self) -> str:
        """sha256 over names and contents of every module."""
        return self._digest(self.files)

    def _digest(self, names: Iterable[str]) -> str:
        lines = [f"{name} {hashlib.sha256(self.contents[name]).hexdigest()}\n" for name in sorted(names)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _with_parents(self, name: str) -> Iterator[str]:
        """The module `name`, if it is one of ours, and the packages that Python runs before it.

        `name` may be an attribute of a module ("labkit.records.load"): then the module counts.
        """
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            candidate = ".".join(parts[:end])
            if candidate in self.files:
                yield candidate

    def _imports(self, name: str) -> set[str]:
        if name not in self._reads:
            try:
                tree = ast.parse(self.contents[name])
            except SyntaxError as error:
                raise BadInput(f"{self.files[name]}, line {error.lineno}: not Python: {error.msg}") from error
            is_package = self.files[name].name == "__init__.py"
            imported = set(_imported(tree, name if is_package else name.rpartition(".")[0]))
            # A module run as a child process (python -m labkit.x) is named by a string.
            imported |= {text for text in _strings(tree) if text in self.files}
            if any(_computes_a_name(node) for node in ast.walk(tree)):
                imported |= set(self.files)  # it could load anything
            self._reads[name] = {found for module in imported for found in self._with_parents(module)}
        return self._reads[name]


def imports_of(source: str) -> set[str]:
    """Dotted names that a notebook's code cell imports, at any depth.

    Lines for IPython or the shell (`%time`, `!ls`, `x?`) are left out. Where what remains is still no Python, the
    text is searched for import statements instead: too many names cost a rerun, a missed one a stale figure.
    """
    try:
        return set(_imported(ast.parse(source), ""))
    except (SyntaxError, ValueError):
        pass
    found = set(_imported_by_text(source))
    try:
        return found | set(_imported(ast.parse(_without_magics(source)), ""))
    except (SyntaxError, ValueError):
        return found


def _without_magics(source: str) -> str:
    kept = []
    for line in source.splitlines():
        magic = _MAGIC.match(line)
        kept.append(f"{magic['indent']}pass" if magic else line)
    return "\n".join(kept)


def _imported_by_text(source: str) -> Iterator[str]:
    for match in _IMPORT_TEXT.finditer(source):
        if match["whence"]:
            yield match["whence"]
            yield from (f"{match['whence']}.{name}" for name in _first_words(match["names"]))
        else:
            yield from _first_words(match["plain"])


def _first_words(names: str) -> Iterator[str]:
    """'a.b as c, d' -> 'a.b', 'd'."""
    for part in names.split(","):
        if words := part.split():
            yield words[0]


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Absolute names that the module imports; relative ones are resolved against `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                outer = ".".join(parts[: len(parts) - node.level + 1])
                base = f"{outer}.{base}".strip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _computes_a_name(node: ast.AST) -> bool:
    """A call of import_module or __import__ with anything but one plain absolute name."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called not in _COMPUTED_IMPORTS:
        return False
    constant = node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    return not constant or node.args[0].value.startswith(".")
