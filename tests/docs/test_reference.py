"""The reference has an entry for every public name, and says what every parameter is."""

import importlib.util
import inspect
import re
from functools import cached_property

import pages
import pytest

import triegp

API = pages.DOCS / "api"
SOURCE = pages.ROOT / "src" / "triegp"
ROOMS = sorted(
    {path.parent.name for path in SOURCE.glob("*/__init__.py") if "__all__" in path.read_text()}
    - {"cli"}  # the command has a page of its own
    | {"pieces"}
)
NEEDS = {  # packages of extras
    "botorch": "gpytorch",
    "mlflow": "mlflow.pyfunc",
    "skpro": "skpro",
    "optuna": "optuna",
}
HERE = [room for room in ROOMS if importlib.util.find_spec(NEEDS.get(room, "triegp"))]


def entries(path):
    """Names that a page of the reference lists, `~triegp.` cut off."""
    text = path.read_text()
    found = re.findall(r"^   ~?([\w.]+)$", text, re.MULTILINE)
    found += re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)$", text, re.MULTILINE)
    return [name.removeprefix("triegp.") for name in found]


def test_rooms_with_public_names_have_a_page():
    assert {"tree", "encoding", "engines", "additive", "smooth", "sros", "dask", "pieces"} <= set(
        ROOMS
    )
    listed = pages.contents(API / "index.rst")
    assert [room for room in ROOMS if f"api/{room}" not in listed] == []


@pytest.mark.parametrize("room", HERE)
def test_every_public_name_has_an_entry(room):
    public = importlib.import_module(f"triegp.{room}").__all__
    assert sorted(entries(API / f"{room}.rst")) == sorted(public)


def test_names_of_the_package_have_an_entry():
    found = [name for name in entries(API / "estimators.rst") if "." not in name]
    assert sorted(found) == sorted(triegp.__all__)


def public_functions():
    """Functions and methods that the reference documents, by their full names."""
    modules = [triegp, *(importlib.import_module(f"triegp.{room}") for room in HERE)]
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
            elif inspect.isclass(value):
                yield f"{module.__name__}.{name}", value
                for one, member in inspect.getmembers(value):
                    ours = (getattr(member, "__module__", None) or "").startswith("triegp")
                    if isinstance(member, cached_property):
                        continue
                    if one[0] != "_" and ours and inspect.isroutine(member):
                        yield f"{module.__name__}.{name}.{one}", member


def test_everything_public_has_a_docstring():
    assert [name for name, value in public_functions() if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("kind", ["TrieGPRegressor", "BinaryTreeGPRegressor", "BitEncoder"])
def test_fitted_attributes_are_documented(kind):
    """Those that are set by `fit`, and those that are properties."""
    doc = inspect.getdoc(getattr(triegp, kind))
    section = doc[doc.index("Attributes\n---") :]
    named = set(re.findall(r"\b([a-z]\w*_)\b", re.split(r"\n\n\w+\n---", section)[0]))
    properties = [
        name
        for name, value in inspect.getmembers(getattr(triegp, kind))
        if name.endswith("_") and name[0] != "_" and isinstance(value, property)
    ]
    missing = [name for name in properties if name not in named]
    assert missing == []
    heads = re.findall(r"^(\w+_(?:, \w+_)*) : ", section, re.MULTILINE)
    listed = [name for head in heads for name in head.split(", ")]
    assert len(listed) > 3
    assert [name for name in set(listed) if listed.count(name) > 1] == []


def named_parameters(doc):
    """Names in the section Parameters of a docstring."""
    section = doc.partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\n[A-Z]\w+\n---", section)[0]
    heads = re.findall(r"^(\S[^:\n]*)", section, re.MULTILINE)
    return {name for head in heads for name in re.findall(r"\w+", head)}


# Kernels and their contract describe arguments in prose; Dask's methods have those of the local
# estimators, and metrics, plots and reports share options that one docstring describes.
PROSE = ("engines", "dask", "metrics", "plots", "report")


def test_every_parameter_is_described():
    missing = []
    for name, value in public_functions():
        record = inspect.isclass(value) and (
            hasattr(value, "__dataclass_fields__") or issubclass(value, tuple | Exception)
        )
        hook = re.search(r"\.set_\w+_request$", name)  # scikit-learn's
        if record or hook or name.split(".")[1] in PROSE:
            continue
        wanted = set(inspect.signature(value).parameters) - {"self", "args", "kwargs"}
        missing += [f"{name}: {one}" for one in wanted - named_parameters(inspect.getdoc(value))]
    assert missing == []
