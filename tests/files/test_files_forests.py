"""Files of forests with stages, local noise, copies, scatter and observations: the same bits."""

import copy

import numpy as np
import pytest

from model_files import (
    KNOWN,
    NEW,
    WEIGHT,
    Y2,
    X,
    Y,
    answers,
    heteroscedastic,
    stage_of,
    through_file,
)
from triegp import TrieGPRegressor
from triegp.additive import conditioning, insertion
from triegp.files import mixture
from triegp.files.container import read_file

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning"),
]


def small(**options):
    return TrieGPRegressor(**({"n_trees": 3, "max_iter": 2, "random_state": 0} | options))


def fit_local():
    model = small().fit(*heteroscedastic())
    assert stage_of(model).local is not None
    return model


def fit_scatter():
    model = small().fit(X, Y)  # its twins differ
    assert model.forests_[0].model.rows.scatter is not None
    assert stage_of(model).repeats is not None
    return model


def fit_copies():
    model = small().fit(np.vstack([X[20:], X[20:60]]), np.append(Y[20:], Y[20:60]))
    assert model._stream.observations.copies
    assert model.forests_[0].model.rows.scatter is None
    return model


def fit_line():
    model = small().fit(X[20:80], X[20:80] @ [1.0, 2.0, 3.0] + 0.1 * Y[20:80])
    assert stage_of(model).trend is not None
    return model


def fit_approximated():
    """Inducing rows and neighbours that are not exact."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditioning, "smooth_sizes", lambda n, share: (12, 7))
        patch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
        model = small(smooth=True).fit(X[20:], Y[20:])
    assert model.forests_[0].model.smooth.induced.n_neighbours == 7
    return model


def fit_inserted():
    """Rows inserted one by one, with a correction where they are felt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditioning, "smooth_sizes", lambda n, share: (12, 7))
        patch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
        patch.setattr(insertion, "PENDING_SHARE", 1.0)
        model = small(smooth=True).fit(X[20:], Y[20:])
        model.partial_fit(0.5 * X[:2] + 0.2, Y[:2])
        model.partial_fit(0.5 * X[2:3] + 0.2, Y[2:3])
        found = model.forests_[0].model
    assert found.n_pending == 3
    return model


MODELS = {
    "trend": fit_line,
    "local noise": fit_local,
    "scatter": fit_scatter,
    "copies": fit_copies,
    "weights of 0": lambda: small().fit(X, Y, WEIGHT, KNOWN),
    "precision": lambda: small(weights="precision").fit(X, Y, WEIGHT),
    "not calibrated": lambda: small(calibrated=False).fit(X, Y),
    "trees alone": lambda: small(smooth=False).fit(X, Y),
    "smooth part": lambda: small(smooth=True).fit(X[20:], Y[20:]),
    "exact variances": lambda: small(smooth=True, variance="exact").fit(X[20:], Y[20:]),
    "exact variances of trees": lambda: small(smooth=False, variance="exact").fit(X, Y),
    "another kernel": lambda: small(smooth=True, kernel="matern52").fit(X[20:], Y[20:]),
    "known noise": lambda: small(smooth=True).fit(X, Y, None, KNOWN),
    "two targets": lambda: small(smooth=True).fit(X[20:], np.stack([Y, Y**2], axis=1)[20:]),
    "shared targets": lambda: small(multi_target="shared").fit(X[20:], Y2[20:]),
    "shared targets, trees alone": lambda: small(multi_target="shared", smooth=False).fit(
        X[20:], Y2[20:], WEIGHT[20:], KNOWN[20:]
    ),
    "shared targets, scatter": lambda: small(multi_target="shared").fit(X, Y2),
    "constant features": lambda: small(smooth=True).fit(0 * X[20:], Y[20:]),
    "few inducing rows": fit_approximated,
    "inserted rows": fit_inserted,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_forest_says_the_same_to_the_last_bit(name, tmp_path):
    model = MODELS[name]()
    loaded = through_file(model, tmp_path / "m")
    for other in (loaded, copy.deepcopy(model)):
        for one, two in zip(answers(model), answers(other), strict=True):
            np.testing.assert_array_equal(one, two, strict=True)
        for one, two in zip(model.predict(X, True), other.predict(X, True), strict=True):
            np.testing.assert_array_equal(one, two)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "again").read_bytes()
    y = Y[:3] if model.one_dimensional_ else np.stack([Y, Y**2], axis=1)[:3]
    rows = NEW[:3].clip(0.1, 0.9) if name != "constant features" else np.zeros((3, 3))
    more = [m.partial_fit(rows, y) for m in (model, loaded)]
    for one, two in zip(*map(answers, more), strict=True):
        np.testing.assert_array_equal(one, two, strict=True)


def test_local_noise_as_intervals(tmp_path, monkeypatch):
    """As it is stored from 2,048 rows on."""
    monkeypatch.setattr(mixture, "FEW_ROWS", 0)
    model = fit_local()
    loaded = through_file(model, tmp_path / "m")
    stored = read_file(tmp_path / "m")[1]
    assert any(place.endswith("local.ensemble.intervals.codes") for place in stored)
    for one, two in zip(answers(model), answers(loaded), strict=True):
        np.testing.assert_array_equal(one, two, strict=True)
