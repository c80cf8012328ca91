"""Estimators by name, and reading them from model files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triegp.files.codec import Arrays
from triegp.files.container import ModelFileError, read_file, read_header
from triegp.files.state import unpack_model
from triegp.imports import import_once

ESTIMATORS = {  # the classes that `load` can create, and their modules
    "BinaryTreeGPRegressor": "triegp.estimators.mixture_regressor",
    "TrieGPRegressor": "triegp.estimators.trie_regressor",
}
KINDS = {"BinaryTreeGPRegressor": "Ensemble", "TrieGPRegressor": "FittedForest"}  # their models


def find_estimator(name: str) -> type[Any]:
    """The class of this name, a key of ESTIMATORS."""
    found: type[Any] = getattr(import_once(ESTIMATORS[name]), name)
    return found


def load(path: str | Path) -> Any:
    """Read a model that `save` wrote; its predictions have the same bits.

    Parameters
    ----------
    path : str or Path
        The file. Nothing in it is executed.

    Returns
    -------
    TreeGPRegressor
        The fitted estimator, of the class that was saved.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If it is truncated, edited, not a model file, or from a newer version of triegp.
    MemoryError
        If a mixture needs more memory than the machine has.
    """
    name, header, arrays = read_model(path)
    with complete(path):
        model = find_estimator(name)(**header["parameters"])
        model._check_parameters(here=False)
        model._restore(unpack_model(header["model"], arrays, model._kind))
    return model


def read_model(path: str | Path) -> tuple[str, dict[str, Any], Arrays]:
    """Name of the estimator, header and arrays of a model file."""
    name = read_header(path).get("estimator")  # before all of a file is read that is no model
    if not isinstance(name, str) or name not in ESTIMATORS:
        expected = ", ".join(sorted(ESTIMATORS))
        raise ModelFileError(f"{path} holds {name!r:.80}, expected one of {expected}")
    header, arrays = read_file(path)
    if header.get("estimator") != name:
        raise ModelFileError(f"{path} was replaced while it was read: load it again")
    return name, header, arrays


@contextmanager
def complete(path: str | Path) -> Iterator[None]:
    """Raise ModelFileError for errors of code that relies on the contents of a file."""
    try:
        yield
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise ModelFileError(f"{path} does not hold a complete model: {error!r:.400}") from error
