"""The public names: exported, documented, found on the API page."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import midam

API = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.parametrize("name", midam.__all__)
def test_a_public_name_is_documented(name):
    found = getattr(midam, name)
    assert inspect.getdoc(found), f"{name} has no docstring"
    listed = re.findall(r"^::: (midam[\w.]*)", API.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert any(found.__module__ == module or found.__module__.startswith(f"{module}.") for module in listed), name


def test_names_are_listed_once_and_in_order():
    names = midam.__all__
    assert len(set(names)) == len(names)
    assert sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == names


def test_the_api_page_lists_modules_that_exist():
    listed = re.findall(r"^::: (midam[\w.]*)", API.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert listed
    for module in listed:
        importlib.import_module(module)


def test_nothing_public_is_forgotten():
    public = {
        name
        for name, value in vars(midam).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    }
    assert public == set(midam.__all__)
