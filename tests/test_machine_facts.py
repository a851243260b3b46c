"""Describing the machine that the tests run on: whole, sourced, JSON-able, and cheap in imports."""

import subprocess
import sys

import msgspec
import pytest

import labkit
from labkit.errors import BadInput, NotAvailable
from labkit.machine import Fact, Machine, describe
from labkit.machine.facts import anonymous_id, versions


@pytest.fixture(scope="module")
def here():
    return describe()


def facts(machine):
    return {n: f for n in machine.__struct_fields__ if isinstance(f := getattr(machine, n), Fact)}


def test_every_fact_of_this_machine_has_a_source(here):
    assert len(facts(here)) == len(here.__struct_fields__) - 2  # tiers carry theirs; versions need none
    assert all(fact.source for fact in facts(here).values())
    assert all(tier.source for tier in here.tiers)


def test_no_number_of_this_machine_is_zero(here):
    numbers = {n: f.value for n, f in facts(here).items() if type(f.value) in (int, float)}
    assert numbers
    assert all(value > 0 for value in numbers.values()), numbers


def test_a_description_survives_json_with_its_types(here):
    again = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(here)), type=Machine)
    assert again == here


def test_a_description_cannot_be_changed(here):
    with pytest.raises(AttributeError):
        here.chip = Fact("another", "me")


def test_describing_twice_names_the_same_machine(here):
    assert describe().machine == here.machine


def test_no_source_tells_where_the_project_or_the_user_is(here, tmp_path):
    text = msgspec.json.encode(here).decode()
    assert str(tmp_path.parent) not in text
    assert "/home/" not in text


def test_a_declared_peak_wins_and_says_so():
    assert describe(123.5).bus_peak_gb_per_s == Fact(123.5, "declared by --peak-gbs")


@pytest.mark.parametrize("peak", [0.0, -1.0, float("nan"), float("inf")])
def test_a_peak_that_is_no_rate_is_refused(peak):
    with pytest.raises(BadInput, match="--peak-gbs"):
        describe(peak)


def test_describing_imports_no_heavy_package():
    heavy = "('numpy', 'mlx', 'pandas', 'matplotlib', 'llvmlite', 'rich', 'papermill')"
    script = (
        f"import sys, labkit.machine as m; m.describe(); m.state(0.0); print([x for x in {heavy} if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_another_system_is_told_that_it_is_not_read(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(NotAvailable, match="win32"):
        describe()


def test_versions_hold_what_is_installed_and_nothing_else(monkeypatch):
    monkeypatch.setattr("labkit.machine.facts.VERSIONED", ("msgspec", "no-such-package"))
    assert set(versions()) == {"python", "labkit", "msgspec"}
    assert versions()["msgspec"] == msgspec.__version__
    assert versions()["labkit"] == labkit.__version__


def test_an_anonymous_id_is_stable_short_and_not_the_plain_hash():
    import hashlib

    uuid = "11111111-2222-3333-4444-555555555555"
    assert anonymous_id(uuid) == anonymous_id(f" {uuid}\n")
    assert anonymous_id("ABCDEF") == anonymous_id("abcdef")
    assert anonymous_id(uuid) != anonymous_id(uuid.replace("5", "6"))
    assert len(anonymous_id(uuid)) == 12
    assert int(anonymous_id(uuid), 16) >= 0
    assert anonymous_id(uuid) != hashlib.sha256(uuid.encode()).hexdigest()[:12]
