"""Model files that this format version wrote are read for ever, with the predictions they had.

`tests/files/version_7` is written once, by `python tests/files/test_files_kept.py`, and never
again: a new format version gets a folder of its own. The predictions were made by the program that
wrote the files.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "version_7"
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
    from tolerances import FITS, VALUE
    from triegp.files.container import read_file

    path = FOLDER / kind
    assert read_file(path)[0]["version"] == 7
    model = triegp.load(path)
    stored = np.load(FOLDER / "predictions.npz")[kind]
    if kind == "cells":
        assert model.ensembles_[0].n_summed > 0
    found = answers(model, kind)
    # By another numpy, perhaps. Forests of so old files are solved again.
    close = FITS if kind == "forest" else VALUE
    np.testing.assert_allclose(found, stored, **close)
    model.save(tmp_path / "again")
    np.testing.assert_array_equal(answers(triegp.load(tmp_path / "again"), kind), found)


@pytest.mark.parametrize("centre", [1e300, -1e300, 711.0, -747.0])
def test_a_centre_that_is_no_logarithm(tmp_path, centre):
    from model_files import refused, write_parts
    from triegp.files.container import read_file

    header, arrays = read_file(FOLDER / "transform")
    header["transforms"][0]["centre"] = centre
    refused(write_parts(tmp_path / "m", header, arrays), "centre must be the log of a target")


@pytest.mark.parametrize(
    ("low", "high", "message"), [(0.0, 1.0, "must be positive"), (2.0, 1.0, "must not exceed")]
)
def test_a_range_of_targets_that_no_log_has(tmp_path, low, high, message):
    from model_files import refused, write_parts
    from triegp.files.container import read_file

    header, arrays = read_file(FOLDER / "transform")
    header["transforms"][0] |= {"low": low, "high": high}
    refused(write_parts(tmp_path / "m", header, arrays), message)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_a_scale_of_transformed_targets_whose_square_float64_cannot_hold(tmp_path, scale):
    from model_files import refused, write_parts
    from triegp.files.container import read_file

    header, arrays = read_file(FOLDER / "transform")
    arrays["target_scale"] = np.array([scale])
    refused(write_parts(tmp_path / "m", header, arrays), "must not have the scale")


def test_the_kept_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 100_000


if __name__ == "__main__":
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists: files of a released format version are never written again")
    FOLDER.mkdir()
    stored = {}
    for kind in KINDS:
        model = fit(kind)
        model.save(FOLDER / kind)
        stored[kind] = answers(model, kind)
    np.savez_compressed(FOLDER / "predictions.npz", **stored)
