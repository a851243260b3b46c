"""The house keeps its own rules: one dependency list, stripped notebooks, a quick start, honest set-up."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {
    "IPython", "coremltools", "jupyter_client", "jupyterlab", "llvmlite", "matplotlib", "mlx", "nbclient",
    "nbformat", "numpy", "pandas", "papermill", "pyarrow", "torch", "tueplots",
}  # fmt: skip


def written(*path):
    """A file of the project, or a skip: parts of the first release are written side by side."""
    file = ROOT.joinpath(*path)
    if not file.is_file():
        pytest.skip(f"{file.relative_to(ROOT)} is not written yet")
    return file


# --- one list of dependencies


def test_environment_yml_holds_a_python_and_this_package_and_no_list_of_its_own():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *packages, pip = environment["dependencies"]
    python, *others = packages
    assert python == f"python {PROJECT['requires-python']}"
    assert set(others) <= {"pip", "make", "git"}
    assert pip == {"pip": ["-e .[dev]"]}


def test_every_place_names_the_same_pythons():
    low, high = (int(minor) for minor in re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups())
    pythons = [f"3.{minor}" for minor in range(low, high)]
    setup = (ROOT / ".ci" / "venv").read_text()
    assert re.search(r"^ *([\d.| ]+)\) chosen=", setup, re.MULTILINE)[1].split(" | ") == pythons
    assert re.search(r"PYTHON:-([^}]+)", setup)[1].split() == [f"python{p}" for p in reversed(pythons)] + ["python3"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    (chosen,) = [s["with"]["python-version"] for s in workflow["jobs"]["test"]["steps"] if "setup-python" in str(s)]
    assert chosen in pythons


def test_every_dependency_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)[1]
    without = [line.strip() for line in listed.splitlines() if not re.search(r'", # \w+', line)]
    assert without == []


# --- notebooks


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return json.loads(request.param.read_text())


def code(cell):
    return [line for line in "".join(cell["source"]).splitlines() if line.strip() and not line.lstrip().startswith("#")]


def test_there_are_notebooks():
    assert NOTEBOOKS


def test_a_notebook_is_stripped(notebook):
    assert "papermill" not in notebook["metadata"]
    for cell in notebook["cells"]:
        assert not {"papermill", "execution"} & set(cell["metadata"])
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_a_notebook_has_one_parameters_cell_and_runs_on_the_kernel_python3(notebook):
    tags = [tag for cell in notebook["cells"] for tag in cell["metadata"].get("tags", [])]
    assert tags.count("parameters") == 1
    assert "injected-parameters" not in tags
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_a_notebook_asks_a_question_and_ends_with_what_would_change_its_answer(notebook):
    prose = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    title = "".join(notebook["cells"][0]["source"]).splitlines()[0]
    assert re.fullmatch(r"# .+\?", title), title
    headings = [line for text in prose for line in text.splitlines() if line.startswith("#")]
    assert headings[-1] == "## What would change this answer"


def test_a_notebook_holds_at_most_25_lines_of_code_besides_its_parameters(notebook):
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    lines = [line for c in cells if "parameters" not in c["metadata"].get("tags", []) for line in code(c)]
    assert len(lines) <= 25


# --- the repository


def test_no_tracked_file_is_over_a_megabyte():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this copy of labkit is not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert files
    assert [f.name for f in files if f.is_file() and f.stat().st_size > 1_000_000] == []


# --- a quick start


def loaded_by(statement):
    """The heavy packages that a fresh Python has loaded after `statement`."""
    report = f"{statement}\nimport sys; print({{m.partition('.')[0] for m in sys.modules}} & {HEAVY!r} or 'none')"
    ran = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


def test_importing_labkit_loads_no_heavy_package():
    assert loaded_by("import labkit") == "none"


def test_help_loads_no_heavy_package():
    written("labkit", "cli.py")
    statement = """if True:
        import sys, labkit.cli
        sys.argv = ["labkit", "--help"]
        try:
            labkit.cli.main()
        except SystemExit as end:
            assert not end.code, end.code
    """
    assert loaded_by(statement) == "none"


def commands():
    """Every command of the labkit command line, as a reader types it."""
    import typer
    from typer.main import get_command

    from labkit import cli

    def walk(command, name):
        if hasattr(command, "commands"):
            for part, below in command.commands.items():
                yield from walk(below, f"{name} {part}")
        else:
            yield name

    (app,) = [value for value in vars(cli).values() if isinstance(value, typer.Typer)]
    return list(walk(get_command(app), "labkit"))


def test_every_command_is_in_the_readme():
    written("labkit", "cli.py")
    readme = (ROOT / "README.md").read_text()
    names = commands()
    assert names
    assert [name for name in names if name not in readme] == []


# --- set-up

SYSTEM_TOOLS = ("sh", "make", "sed", "touch", "dirname", "cat")


@pytest.fixture
def fresh(tmp_path):
    """A machine of its own: a PATH with make and little else, and a copy of what `make` needs to set up."""

    class Fresh:
        path = tmp_path / "bin"
        project = tmp_path / "labkit"
        log = tmp_path / "log"

        def tool(self, name, script):
            (self.path / name).write_text(f"#!/bin/sh\necho {name} \"$@\" >> '{self.log}'\n{script}\n")
            (self.path / name).chmod(0o755)

        def python(self, name, version, script="exit 1"):
            """A fake Python that tells its version and otherwise does as `script` says."""
            self.tool(name, f'case "$*" in *version_info*) echo {version}; exit 0;; esac\n{script}')

        def make(self, *arguments):
            environment = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}
            environment["PATH"] = str(self.path)
            return subprocess.run(
                [self.path / "make", *arguments], cwd=self.project, env=environment, capture_output=True, text=True
            )

        def calls(self):
            return self.log.read_text() if self.log.exists() else ""

    fresh = Fresh()
    fresh.path.mkdir()
    for name in SYSTEM_TOOLS:
        (fresh.path / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not installed"))
    fresh.tool("id", "echo 1000")
    (fresh.project / ".ci").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", ".ci/venv"):
        shutil.copy(ROOT / name, fresh.project / name)
    return fresh


def sentences(ran):
    """What labkit said, without make's own line."""
    return [line for line in ran.stderr.splitlines() if not line.startswith("make: ")]


@pytest.mark.parametrize("target", ["run", "test", "lab"])
@pytest.mark.parametrize("version", ["3.10", "3.14", "2.7"])
def test_make_rejects_a_wrong_python_with_one_sentence(fresh, target, version):
    fresh.python("python3", version)
    ran = fresh.make(target)
    assert ran.returncode == 2
    (sentence,) = sentences(ran)
    assert "needs Python 3.11, 3.12 or 3.13" in sentence
    assert f"python3 here is {version}" in sentence
    assert not (fresh.project / ".venv").exists()
    assert "-m" not in fresh.calls()


def test_make_without_any_python_says_so_in_one_sentence(fresh):
    ran = fresh.make("test")
    assert ran.returncode == 2
    (sentence,) = sentences(ran)
    assert "found none" in sentence


def test_make_passes_by_a_python_that_does_not_run(fresh):
    fresh.tool("python3.13", "echo 'shim: no such version' >&2; exit 127")
    fresh.python("python3.12", "3.12", 'case "$*" in "-m venv"*) echo stop >&2; exit 9;; esac')
    ran = fresh.make("test")
    assert "python3.12 -m venv --clear .venv" in fresh.calls()
    assert sentences(ran) == ["stop"]


def test_make_does_not_replace_the_python_that_was_asked_for(fresh):
    fresh.python("python3", "3.12")
    fresh.python("old", "3.9")
    ran = fresh.make("test", "PYTHON=old")
    assert ran.returncode == 2
    assert "old here is 3.9" in ran.stderr
    assert "python3 " not in fresh.calls()


def test_make_without_the_venv_package_gives_the_command_that_brings_it(fresh):
    fresh.python("python3", "3.11")  # everything else fails, `import ensurepip` too
    fresh.tool("apt-get", "exit 1")
    ran = fresh.make("test")
    assert ran.returncode != 0
    (sentence,) = sentences(ran)
    assert "sudo apt-get install python3.11-venv" in sentence
    assert "apt-get " not in fresh.calls()  # only root installs packages unasked


def test_make_as_root_brings_the_venv_package_itself_and_says_so(fresh):
    ready = fresh.path / "ready"
    fresh.tool("id", "echo 0")
    fresh.python("python3", "3.11", f"case \"$*\" in *ensurepip*) test -e '{ready}'; exit $?;; esac\nexit 9")
    fresh.tool("apt-get", f"case \"$*\" in install*) : > '{ready}';; esac")
    ran = fresh.make("test")
    assert "installing the Debian package python3.11-venv" in sentences(ran)[0]
    assert re.search(r"apt-get install .*python3\.11-venv", fresh.calls())
    assert "python3 -m venv --clear .venv" in fresh.calls()


def test_make_alone_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())
    listing = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^ +make ([a-z]+)", listing, re.MULTILINE)) == targets


def test_ci_ends_with_exactly_make_test_and_the_workflow_runs_it_too():
    last = (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1]
    assert last == "exec make test"
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["test"]
    assert [step["run"] for step in workflow["steps"] if "run" in step] == ["make test", "make run"]
    assert {system.split("-")[0] for system in workflow["strategy"]["matrix"]["os"]} == {"ubuntu", "macos"}
