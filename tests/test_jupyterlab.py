"""Every notebook runs from top to bottom in a real JupyterLab, in a browser, on a copy of the project's data."""

import shutil
import subprocess
from pathlib import Path

import jupyterlab_browser
import nbformat
import pytest

from labkit import figures

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(jupyterlab_browser.missing() is not None, reason=str(jupyterlab_browser.missing())),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The notebooks and the committed data, without what this machine has measured or drawn."""
    copy = tmp_path_factory.mktemp("project")
    listed = subprocess.run(["git", "ls-files", "-z", "data"], cwd=ROOT, capture_output=True, text=True)
    committed = [ROOT / name for name in listed.stdout.split("\0") if name]
    reference = [path for path in (ROOT / "data" / "reference").rglob("*") if path.is_file()]
    notebooks = [ROOT / "notebooks" / name for name in NOTEBOOKS]
    for source in {*committed, *reference, *notebooks}:
        if source.is_file():
            target = copy / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    (copy / "notebooks").mkdir(exist_ok=True)
    return copy


@pytest.fixture(scope="module")
def lab(project, tmp_path_factory):
    with jupyterlab_browser.jupyterlab(project, tmp_path_factory.mktemp("jupyter")) as lab:
        yield lab


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_run_all_counts_every_cell_and_draws_the_figures(lab, project, notebook):
    shutil.rmtree(project / "figures", ignore_errors=True)
    cells = lab.run_all(f"notebooks/{notebook}")
    assert [cell.error for cell in cells if cell.error] == []
    assert [cell.count for cell in cells] == list(range(1, len(cells) + 1))
    drawn = sorted((project / "figures").glob("*/*.pdf"))
    assert drawn
    for pdf in drawn:
        assert figures.provenance_of(pdf).notebook == notebook.removesuffix(".ipynb")
        assert [e for e in ("png", "csv", "tex", "json") if not pdf.with_suffix(f".{e}").is_file()] == []


def test_a_failing_cell_is_seen(lab, project):
    """The judge above can say no: cells after the failing one are not counted, and the error is read back."""
    from nbformat.v4 import new_code_cell, new_notebook

    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    sources = ("1 + 1", "raise KeyError('gone')", "2 + 2")
    nbformat.write(new_notebook(cells=[new_code_cell(s) for s in sources], metadata=kernel), project / "bad.ipynb")
    first, second, third = lab.run_all("bad.ipynb")
    assert first.count == 1
    assert first.error is None
    assert second.error == "KeyError: 'gone'"
    assert third.count is None
