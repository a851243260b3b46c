"""A notebook's digests change with its source, and with nothing that running it changes."""

import json

import pytest
import tiny

from labkit import notebook_file, source
from labkit.errors import BadInput


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def edited(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return notebook_file.read(path)


def test_outputs_counts_and_ids_do_not_count(folder):
    path = tiny.good_notebook(folder, "10_a")
    before = notebook_file.read(path)

    def run(content):
        for n, cell in enumerate(content["cells"]):
            cell["id"] = f"other{n}"
            cell["source"] = cell["source"].splitlines(keepends=True)
        content["cells"][1]["execution_count"] = 7
        content["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]

    after = edited(path, run)
    assert (after.digest(), after.code_digest()) == (before.digest(), before.code_digest())


def test_prose_changes_the_copy_but_not_the_code(folder):
    path = tiny.good_notebook(folder, "10_a")
    before = notebook_file.read(path)
    after = edited(path, lambda content: content["cells"][0].update(source="# Another title"))
    assert after.digest() != before.digest()
    assert after.code_digest() == before.code_digest()


def test_code_changes_both_and_parameters_only_the_copy(folder):
    path = tiny.good_notebook(folder, "10_a")
    before = notebook_file.read(path)
    other = edited(path, lambda content: content["cells"][1].update(source=tiny.PARAMETERS.replace("False", "True")))
    assert other.digest() != before.digest()
    assert other.code_digest() == before.code_digest()
    coded = edited(path, lambda content: content["cells"][2].update(source="1 + 1"))
    assert coded.code_digest() != before.code_digest()


def test_the_code_hash_covers_the_labkit_modules_that_its_cells_import(folder):
    small = notebook_file.read(tiny.notebook(folder, "10_a", "from labkit import stats"))
    tree = source.Tree()
    assert tree.reached(small.imports()) >= {"labkit", "labkit.stats"}
    assert "labkit.batch" not in tree.reached(small.imports())


def test_scope_is_per_chip_unless_the_notebook_says_once(folder):
    assert notebook_file.read(tiny.good_notebook(folder, "10_a")).scope == "chip"
    assert notebook_file.read(tiny.good_notebook(folder, "10_b", scope="once")).scope == "once"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: c.update(nbformat=3), "notebook format 3"),
        (lambda c: c.pop("cells"), "not a notebook"),
        (lambda c: c["metadata"].update(labkit={"scope": "twice"}), "scope"),
        (lambda c: c["metadata"].update(labkit={"scop": "once"}), "scope"),
        (lambda c: c["cells"].pop(1), "0 cells are tagged"),
        (lambda c: c["cells"].append(c["cells"][1]), "2 cells are tagged"),
        (lambda c: c["cells"][1].update(source='chip: str = ""  # brand'), "must declare `data_dir: str`"),
        (lambda c: c["cells"][1].update(source=tiny.PARAMETERS.replace("bool = False", "int = 0")), "`quick: bool`"),
    ],
)
def test_what_is_no_notebook_of_labkits_is_refused_by_name(folder, change, complaint):
    path = tiny.good_notebook(folder, "10_a")
    with pytest.raises(BadInput, match=complaint) as error:
        edited(path, change)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b'{"nbformat": 4, "cells": 3, "metadata": {}}'])
def test_damaged_files_are_refused_by_name(folder, content):
    path = folder / "notebooks" / "10_a.ipynb"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"10_a\.ipynb: not a notebook"):
        notebook_file.read(path)


def test_a_name_that_could_not_be_a_file_beside_others_is_refused(tmp_path):
    with pytest.raises(BadInput, match="letters, digits"):
        notebook_file.read(tmp_path / ".hidden thing.ipynb")
