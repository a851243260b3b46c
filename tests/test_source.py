"""A digest changes exactly when code that a notebook reaches changes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from labkit import source
from labkit.errors import BadInput

FILES = {
    "__init__.py": "",
    "bus/__init__.py": "from .sweep import run",
    "bus/sweep.py": "def run():\n    from ..stats import median\n    return median",
    "stats.py": "import math",
    "figures.py": "import labkit.style as look",
    "style.py": "",
    "runs_a_child.py": "import sys\nCOMMAND = [sys.executable, '-m', 'labkit.child']",
    "child.py": "from labkit import stats",
    "anything.py": "import importlib\ndef load(name):\n    return importlib.import_module('labkit.' + name)",
    "lonely.py": "",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "labkit" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return tmp_path / "labkit"


def reached(package: Path, *modules: str) -> set[str]:
    return {name.removeprefix("labkit.") for name in source.Tree(package).reached(modules)}


def test_reach_follows_relative_and_function_level_imports_and_package_inits(package):
    assert reached(package, "labkit.bus") == {"labkit", "bus", "bus.sweep", "stats"}
    assert reached(package, "labkit.figures") == {"labkit", "figures", "style"}


def test_an_attribute_counts_as_its_module_and_foreign_names_count_for_nothing(package):
    assert reached(package, "labkit.bus.run", "numpy", "labkitten") == {"labkit", "bus", "bus.sweep", "stats"}


def test_a_module_named_for_a_child_process_is_reached(package):
    assert reached(package, "labkit.runs_a_child") == {"labkit", "runs_a_child", "child", "stats"}


def test_a_computed_import_reaches_everything(package):
    assert source.Tree(package).reached(["labkit.anything"]) == set(source.Tree(package).files)


@pytest.mark.parametrize("changed", ["bus/__init__.py", "bus/sweep.py", "stats.py", "__init__.py"])
def test_a_change_in_reached_code_changes_the_digest(package, changed):
    before = source.closure_digest(["labkit.bus"], package)
    (package / changed).write_text(FILES[changed] + "\n# changed")
    assert source.closure_digest(["labkit.bus"], package) != before


@pytest.mark.parametrize("changed", ["figures.py", "lonely.py", "child.py"])
def test_a_change_elsewhere_does_not_though_the_whole_package_differs(package, changed):
    before, whole = source.closure_digest(["labkit.bus"], package), source.package_digest(package)
    (package / changed).write_text(FILES[changed] + "\n# changed")
    assert source.closure_digest(["labkit.bus"], package) == before
    assert source.package_digest(package) != whole


def test_the_digest_knows_names_not_only_contents(package):
    before = source.package_digest(package)
    (package / "lonely.py").rename(package / "alone.py")
    assert source.package_digest(package) != before


def test_the_digest_does_not_depend_on_order_or_place(package, tmp_path):
    names = ["labkit.bus", "labkit.figures"]
    digest = source.closure_digest(names, package)
    assert source.closure_digest(reversed(names), package) == digest
    elsewhere = tmp_path / "elsewhere" / "labkit"
    shutil.copytree(package, elsewhere)
    assert source.closure_digest(names, elsewhere) == digest


def test_code_that_is_no_python_is_named_with_its_line(package):
    (package / "stats.py").write_text("import math\ndef (")
    with pytest.raises(BadInput, match=r"stats\.py, line 2"):
        source.closure_digest(["labkit.bus"], package)


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("import labkit.bus as b, numpy", {"labkit.bus", "numpy"}),
        ("from labkit import bus, stats as s", {"labkit", "labkit.bus", "labkit.stats"}),
        ("def f():\n    from labkit.bus import run", {"labkit.bus", "labkit.bus.run"}),
        ("%matplotlib inline\nimport labkit.bus", {"labkit.bus"}),
        ("files = !ls\nif files:\n    !rm x\n    import labkit.bus\nfiles?", {"labkit.bus"}),
        ("%%time\nimport labkit.bus", {"labkit.bus"}),
        ("%time import labkit.bus", {"labkit.bus"}),
        ("from labkit import (  # both\n    bus,\n    stats,\n)\n!ls", {"labkit", "labkit.bus", "labkit.stats"}),
        ('text = """\n%s import nothing\n"""', set()),
        ("x = (7\n  % 2)\nimport labkit.bus", {"labkit.bus"}),
        ("", set()),
        ("!pip install labkit", set()),
    ],
)
def test_imports_of_a_cell_are_found_among_magics(cell, names):
    assert names <= source.imports_of(cell)
    assert {n for n in source.imports_of(cell) if n.startswith("labkit")} == {n for n in names if "labkit" in n}


def test_labkit_itself_is_parsed_whole():
    tree = source.Tree()
    assert tree.reached(tree.files) == set(tree.files)
    assert "labkit.batch" not in tree.reached(["labkit.notebook"]), "a change of the batch must not redraw all figures"


def test_dirty_follows_git_and_is_unknown_outside_of_it(package, tmp_path):
    assert source.dirty(package) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert source.dirty(package) is None  # there is a repository, but it does not hold this package
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "all"], check=True)
    assert source.dirty(package) is False
    (tmp_path / "notes.txt").write_text("not code")
    assert source.dirty(package) is False
    (package / "lonely.py").write_text("changed = True")
    assert source.dirty(package) is True
