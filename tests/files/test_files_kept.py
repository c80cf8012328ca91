"""Kept model files of each released format version are read, with the predictions they had.

`python tests/files/test_files_kept.py` writes the folder of the format version. Before the first
release it is written again if the format changes; from then on a changed format has a new version,
and a new folder. The predictions were made by the program that wrote the files.
"""

from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "version_1"
KINDS = ("mixture", "cells", "forest", "categories", "transform")
NUMERIC = np.random.default_rng(5).random((12, 2))
NAMES = ["ant", "bee", "cat"]


def rows(n):
    draw = np.random.default_rng(6)
    X = draw.random((n, 2))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * draw.standard_normal(n)


def table(X):
    """Two numbers, one with gaps, and a name; as a data frame."""
    import pandas as pd

    first = np.where(np.arange(len(X)) % 5 == 3, np.nan, X[:, 0])
    names = pd.Categorical([NAMES[k % 3] for k in range(len(X))], NAMES)
    return pd.DataFrame({"size": first, "weight": X[:, 1], "name": names})


def new_rows(kind):
    return table(NUMERIC) if kind == "categories" else NUMERIC


def fit(kind):
    from triegp import BinaryTreeGPRegressor, TrieGPRegressor

    few = {"random_state": 0, "n_jobs": 1, "max_iter": 4}
    two = {**few, "n_members": 2, "n_candidates": 2}
    X, y = rows(40)
    if kind == "mixture":
        return BinaryTreeGPRegressor(**two).fit(X, y)
    if kind == "cells":
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (("FEWEST_ROWS", 50), ("SAMPLE_ROWS", 100), ("HELD_ROWS", 40)):
                patch.setattr(f"triegp.estimators.pieces.{name}", value)
            return BinaryTreeGPRegressor(max_cells=24, **two).fit(*rows(150))
    if kind == "forest":
        return TrieGPRegressor(n_trees=2, **few).fit(X, y)
    if kind == "categories":
        return BinaryTreeGPRegressor(**two).fit(table(X), y)
    return BinaryTreeGPRegressor(target_transform="log", **two).fit(X, np.exp(y))


def answers(model, kind):
    new = new_rows(kind)
    mean, std = model.predict(new, return_std=True)
    return np.column_stack([mean, std, model.predict_quantiles(new, (0.05, 0.5, 0.95))])


@pytest.mark.filterwarnings("ignore:.*outside the training box")
@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_file_predicts_what_it_did(kind, tmp_path):
    import triegp
    from tolerances import VALUE
    from triegp.files.container import read_file

    path = FOLDER / kind
    assert read_file(path)[0]["version"] == 1
    model = triegp.load(path)
    stored = np.load(FOLDER / "predictions.npz")[kind]
    if kind == "cells":
        assert model.ensembles_[0].n_summed > 0
    found = answers(model, kind)
    np.testing.assert_allclose(found, stored, **VALUE)  # by another numpy, perhaps
    model.save(tmp_path / "again")
    np.testing.assert_array_equal(answers(triegp.load(tmp_path / "again"), kind), found)


def test_the_kept_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 100_000


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    stored = {}
    for kind in KINDS:
        model = fit(kind)
        model.save(FOLDER / kind)
        stored[kind] = answers(model, kind)
    np.savez_compressed(FOLDER / "predictions.npz", **stored)
