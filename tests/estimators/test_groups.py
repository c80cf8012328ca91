"""Covariances within groups of rows against the covariance matrix of all of them."""

import numpy as np
import pytest
from test_function_draws import FOREST, QUICK, make_data, rows

from tolerances import VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor


@pytest.mark.filterwarnings("ignore:.*outside the training box")
@pytest.mark.parametrize("outside", ["widen", "unrelated", "clip"])
@pytest.mark.parametrize("name", ["mixture", "cells", "paper", "forest", "two targets"])
def test_groups_are_parts_of_the_covariance(name, outside):
    X, y = make_data(150)
    if name == "two targets":
        y = np.column_stack([y, X[:, 0]])
    model = {
        "mixture": BinaryTreeGPRegressor(**QUICK),
        "two targets": BinaryTreeGPRegressor(**QUICK),
        "cells": BinaryTreeGPRegressor(**QUICK, max_cells=20),
        "paper": BinaryTreeGPRegressor(preset="paper-bte", n_candidates=2, max_iter=3),
        "forest": TrieGPRegressor(**FOREST),
    }[name].set_params(outside="clip" if name == "paper" else outside)
    model.fit(X, y)
    new = np.vstack([rows(X), np.full((3, 3), 0.5) + 1e-9 * np.arange(3)[:, None]])
    groups = np.random.default_rng(0).integers(0, len(new), (40, 3))
    mean, cov = model.predict(new, return_cov=True, latent=True)
    found, parts = model.predict_groups(new, groups)
    np.testing.assert_allclose(found, mean, **VALUE)
    np.testing.assert_allclose(parts, cov[groups[:, :, None], groups[:, None, :]], **VALUE)


def test_arguments():
    model = BinaryTreeGPRegressor(**QUICK).fit(*make_data(60))
    X = make_data(60)[0][:5]
    with pytest.raises(ValueError, match=r"groups must be integers \(g, q\)"):
        model.predict_groups(X, [0.5])
    with pytest.raises(ValueError, match="indices of the 5 rows"):
        model.predict_groups(X, [[0, 5]])
    logs = BinaryTreeGPRegressor(**QUICK, target_transform="log").fit(*make_data(60))
    with pytest.raises(ValueError, match="target_transform"):
        logs.predict_groups(X, [[0, 1]])
