"""Small problems and quick models for the tests of plots."""

import numpy as np
import pandas as pd

from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.encoding import pack_codes
from triegp.tree import BitOrder, build_trie, condition


def problem(n=80, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, n_features))
    return X, np.sin(6 * X[:, 0]) + X[:, -1] + 0.2 * rng.standard_normal(n)


def quick_mixture(**parameters):
    quick = {"n_members": 2, "n_candidates": 2, "max_iter": 5, "random_state": 0}
    return BinaryTreeGPRegressor(**{**quick, **parameters})


def quick_forest(**parameters):
    return TrieGPRegressor(**{"n_trees": 4, "max_iter": 3, "random_state": 0, **parameters})


def mixed_frame(n=120, seed=1):
    """Strings with gaps, dates, numbers with gaps, booleans and small integers."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["Bonn", "Rome", "Oslo", None], n, p=[0.5, 0.3, 0.1, 0.1])
    day = np.datetime64("2020-01-01") + rng.integers(0, 90, n)
    x = np.where(rng.random(n) < 0.1, np.nan, rng.random(n))
    frame = pd.DataFrame(
        {"town": town, "day": day, "x": x, "n": rng.integers(0, 4, n), "flag": x > 0.5},
        index=rng.permutation(n),
    )
    y = (town == "Bonn") + np.nan_to_num(x) + 0.2 * rng.standard_normal(n)
    return frame, y


def four_rows(noise=0.1):
    """The posterior of the worked tree of docs/notation.md."""
    codes = pack_codes([[0b110], [0b001], [0b111], [0b010]], precision=3)
    order = BitOrder.from_weights([0, 1, 2], weights=[0.5, 0.3, 0.2], nugget="bit")
    trie = build_trie(codes, order)
    return condition(trie, codes, order, [1.0, -1.0, 1.2, -0.5], noise=noise)
