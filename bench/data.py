"""The paper's splits of tables in a local folder: 64 % train, 16 % validation, 20 % test.

Parts are loaded by name, so that code which tunes can be seen not to load the test part.
"""

import os
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("TRIEGP_DATA", Path(__file__).parents[2] / "shared" / "data"))
SEVEN = ("pol", "elevators", "bike", "kin40k", "protein", "keggdirected", "keggundirected")


def load(name, seed, *parts):
    """[(X, y), ...] for parts among "train", "valid", "test"; read as float32, used as float64."""
    with np.load(FOLDER / name / "data.npz") as data:
        X = data["X"].astype(np.float32).astype(np.float64)
        y = data["y"].astype(np.float32).astype(np.float64).ravel()
    rows = np.random.RandomState(seed).permutation(len(y))
    first = int(0.8 * len(y))
    second = int(0.8 * first)
    where = {"train": rows[:second], "valid": rows[second:first], "test": rows[first:]}
    return [(X[where[part]], y[where[part]]) for part in parts]


def standardise(y_train, *others):
    """Targets in the units of all reported scores: training mean 0 and deviation 1 (n - 1)."""
    mean, sd = y_train.mean(), y_train.std(ddof=1)
    return [(y - mean) / sd for y in (y_train, *others)]
