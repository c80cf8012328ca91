"""What a method is given, and how it presents itself."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Task:
    """Rows to fit, rows to stop early by, and a seed; y is not standardised."""

    X: np.ndarray
    y: np.ndarray
    X_valid: np.ndarray
    y_valid: np.ndarray
    seed: int


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    name : str
        In tables and file names.
    needs : tuple of str
        Modules it imports; the extra that brings each is in pyproject.toml.
    fit : callable
        Task -> (new rows -> prediction), or {name: such a function} if one fit gives several.
    about : str
        Its settings, for the results page.
    warms : bool
        Whether it compiles something when first called, which is not timed.
    """

    name: str
    needs: tuple[str, ...]
    fit: Callable
    about: str
    warms: bool = False


def missing(method):
    """Modules that are not installed."""
    return [name for name in method.needs if importlib.util.find_spec(name) is None]
