"""What a method is given, and how it presents itself."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Task:
    """Rows to fit, rows to stop early by, and a seed; y is not standardised."""

    X: np.ndarray
    y: np.ndarray
    X_valid: np.ndarray
    y_valid: np.ndarray
    seed: int

    def thinned(self, most_rows):
        """The task with at most so many training rows, drawn at random."""
        if most_rows is None or len(self.y) <= most_rows:
            return self
        rng = np.random.default_rng(self.seed)
        some = np.sort(rng.choice(len(self.y), most_rows, replace=False))
        return replace(self, X=self.X[some], y=self.y[some])


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
    most_rows : int or None
        Largest number of training rows; of more, so many are drawn at random.
    """

    name: str
    needs: tuple[str, ...]
    fit: Callable
    about: str
    warms: bool = False
    most_rows: int | None = None


def missing(method):
    """Modules that are not installed."""
    return [name for name in method.needs if importlib.util.find_spec(name) is None]
