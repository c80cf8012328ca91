"""The house itself: public names, documented defaults, line lengths."""

import inspect
import re
from pathlib import Path

import pytest

import triegp
from triegp.additive.settings import Settings as ForestSettings
from triegp.mixture.settings import PRESETS, TUNABLE

ROOT = Path(__file__).parents[1]
ESTIMATORS = [triegp.BinaryTreeGPRegressor, triegp.TrieGPRegressor]
MAX_COLUMNS = 120


def test_about_ten_public_names_and_all_of_them_are_documented():
    assert len(triegp.__all__) <= 10
    for name in triegp.__all__:
        assert inspect.getdoc(getattr(triegp, name))


def parameter_text(estimator):
    """Text about each parameter in the class docstring."""
    doc = inspect.getdoc(estimator)
    section = doc[doc.index("Parameters\n---") : doc.index("Attributes\n---")]
    parts = re.split(r"^(\w+) : ", section, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_shows_its_default(estimator):
    text = parameter_text(estimator)
    signature = inspect.signature(estimator).parameters
    assert list(text) == list(signature)
    for name, parameter in signature.items():
        default = parameter.default
        if default is not None:
            shown = repr(default).replace("'", '"').replace("_", "")
            assert f"default={shown}" in text[name].replace("_", ""), name


def spelled(value):
    """How a docstring may write a value."""
    if isinstance(value, str):
        return [f'"{value}"']
    if isinstance(value, float):
        return [repr(value), f"{value:g}", f"{value:.0e}".replace("e-0", "e-")]
    return [repr(value), f"{value:,}"]


@pytest.mark.parametrize("name", TUNABLE)
def test_the_docstring_shows_what_the_presets_choose(name):
    text = parameter_text(triegp.BinaryTreeGPRegressor)[name]
    for preset in ("default", "paper-bte"):
        value = getattr(PRESETS[preset], name)
        assert any(way in text for way in spelled(value)), (preset, value)


def test_settings_have_the_estimators_defaults():
    assert set(TUNABLE) <= set(PRESETS["default"].__dataclass_fields__)
    parameters = inspect.signature(triegp.TrieGPRegressor).parameters
    shared = [name for name in parameters if name in ForestSettings.__dataclass_fields__]
    assert len(shared) >= 9
    for name in shared:
        assert getattr(ForestSettings(), name) == parameters[name].default


def test_both_estimators_give_one_meaning_to_each_shared_parameter():
    one, two = (parameter_text(estimator) for estimator in ESTIMATORS)
    for name in ("on_interrupt", "keep_rows", "engine", "n_jobs", "verbose"):
        assert one[name] == two[name]


def test_no_line_is_too_long():
    """Rows of tables and code in Markdown aside."""
    folders = ("src", "tests", "bench", "docs", "examples", "tools")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    files = [path for path in files if path.suffix in (".py", ".md")]
    files += [path for path in ROOT.glob("*") if path.suffix in (".py", ".md", ".toml")]
    assert len(files) > 100
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_COLUMNS and not line.startswith("|")
    ]
    assert long == []
