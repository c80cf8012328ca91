"""Beyond the training box: predictions widen with the distance, and rows there are told."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import triegp
from triegp import BinaryTreeGPRegressor, TrieGPRegressor

MIXTURE = {"n_members": 6, "n_candidates": 8, "max_iter": 40, "random_state": 0}
FOREST = {"n_trees": 16, "max_iter": 100, "random_state": 0, "smooth": False}
KINDS = [(BinaryTreeGPRegressor, MIXTURE), (TrieGPRegressor, FOREST)]
QUICK = [
    (BinaryTreeGPRegressor, {"n_members": 3, "n_candidates": 3, "max_iter": 10, "random_state": 0}),
    (TrieGPRegressor, {"n_trees": 6, "max_iter": 3, "random_state": 0}),
]
both = pytest.mark.parametrize(("kind", "settings"), KINDS)
quickly = pytest.mark.parametrize(("kind", "settings"), QUICK)


def line(n, seed=0, n_features=1):
    rng = np.random.default_rng(seed)
    X = rng.random((n, n_features))
    return X, 3 * X[:, 0] + 0.1 * rng.standard_normal(n)


def quiet(model, method, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return getattr(model, method)(*args, **kwargs)


@both
def test_a_straight_line_is_covered_beyond_the_box(kind, settings):
    X, y = line(300)
    model = kind(**settings).fit(X, y)
    rng = np.random.default_rng(1)
    for x in (1.05, 1.2, 2.0, 100.0, -0.05, -1.0):
        low, high = quiet(model, "predict_interval", [[x]])[0]
        new = 3 * x + 0.1 * rng.standard_normal(400)
        covered = np.mean((low < new) & (new < high))
        assert covered > 0.9 - 3 * np.sqrt(0.09 / 400), x


@both
def test_deviations_begin_at_the_border_and_pass_that_of_y(kind, settings):
    X, y = line(300)
    model = kind(**settings).fit(X, y)
    top = X.max()
    at = top + np.concatenate([[0.0], np.geomspace(1e-9, 10.0, 60)])
    for latent in (False, True):
        mean, std = quiet(model, "predict", at[:, None], return_std=True, latent=latent)
        np.testing.assert_allclose(mean, mean[0], rtol=1e-12)
        assert std[1] == pytest.approx(std[0], rel=1e-6)
        assert (np.diff(std) >= 0).all()
        assert (std[at > top + 0.2] > y.std()).all()
        far = quiet(model, "predict", [[top + 20.0]], return_std=True, latent=latent)[1]
        assert far[0] == pytest.approx(2 * std[-1], rel=0.01)


@quickly
def test_inside_the_box_nothing_changes(kind, settings):
    X, y = line(80, n_features=2)
    widen, clip = (kind(**settings, outside=o).fit(X, y) for o in ("widen", "clip"))
    new = np.random.default_rng(2).uniform(X.min(axis=0), X.max(axis=0), (20, 2))
    for ask in (
        lambda m: m.predict(new, return_std=True),
        lambda m: m.predict(new, return_std=True, latent=True),
        lambda m: m.predict(new, return_cov=True)[1],
        lambda m: m.predict_quantiles(new),
        lambda m: m.sample_y(new, 3),
        lambda m: m.loo_predict(),
    ):
        np.testing.assert_array_equal(ask(widen), ask(clip))


@both
def test_a_feature_that_does_not_matter_adds_nothing(kind, settings):
    X, y = line(300, n_features=3)
    model = kind(**settings).fit(X, y)
    inside = model.predict([[0.5, 0.9, 0.5]], return_std=True)[1][0]
    idle = quiet(model, "predict", [[0.5, 50.0, 0.5]], return_std=True)[1][0]
    moved = quiet(model, "predict", [[50.0, 0.5, 0.5]], return_std=True)[1][0]
    assert idle < 2 * inside
    assert moved > 100 * y.std()


@both
def test_a_feature_adds_in_proportion_to_what_it_explains(kind, settings):
    rng = np.random.default_rng(0)
    X = rng.random((400, 2))
    y = 2 * X[:, 0] + X[:, 1] + 0.05 * rng.standard_normal(400)
    model = kind(**settings).fit(X, y)
    more, less = quiet(model, "predict", [[9.0, 0.5], [0.5, 9.0]], return_std=True)[1]
    assert 1.3 < more / less < 3.5  # the slopes are 2 and 1


@quickly
@pytest.mark.parametrize("outside", ["widen", "unrelated"])
def test_samples_and_covariances_agree_with_deviations(kind, settings, outside):
    X, y = line(60, n_features=2)
    model = kind(**settings, outside=outside).fit(X, y)
    new = np.array([[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [-1.0, 0.5]])
    for latent in (False, True):
        std = quiet(model, "predict", new, return_std=True, latent=latent)[1]
        cov = quiet(model, "predict", new, return_cov=True, latent=latent)[1]
        np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-3)
        draws = quiet(model, "sample_y", new, 2000, 0, latent=latent)
        np.testing.assert_allclose(draws.std(axis=1)[1:], std[1:], rtol=0.1)
        seen = np.corrcoef(draws)[1:, 1:]
        expected = (cov / std / std[:, None])[1:, 1:]
        np.testing.assert_allclose(seen, expected, atol=0.1)
    if outside == "widen" and not model._stream.fitted[0].goes_on:  # one line beyond each side
        assert expected[0, 1] > 0.95
        assert abs(expected[0, 2]) < 0.05


@quickly
def test_unrelated_rows_have_mean_and_deviation_of_y(kind, settings):
    X, y = line(80)
    model = kind(**settings, outside="unrelated").fit(X, y)
    found = model.predict_distribution([[2.0], [0.5]])
    assert found.mean()[0] == pytest.approx(y.mean())
    assert found.std()[0] == pytest.approx(y.std(ddof=1))
    low, high = model.predict_interval([[2.0]])[0]
    assert high - low == pytest.approx(2 * 1.6448536 * y.std(ddof=1))
    assert model.predict([[2.0]], return_std=True, latent=True)[1][0] <= y.std(ddof=1)


def test_unrelated_rows_of_a_forest_without_calibration():
    X, y = line(80)
    settings = QUICK[1][1] | {"outside": "unrelated", "calibrated": False}
    model = TrieGPRegressor(**settings).fit(X, y)
    mean, std = model.predict([[2.0]], return_std=True)
    assert mean[0] == pytest.approx(y.mean())
    assert std[0] == pytest.approx(y.std(ddof=1))


def test_each_target_has_its_own_slopes():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    y = np.stack([X[:, 0], X[:, 1]], axis=1) + 0.02 * rng.standard_normal((300, 2))
    model = BinaryTreeGPRegressor(**MIXTURE).fit(X, y)
    std = quiet(model, "predict", [[5.0, 0.5]], return_std=True)[1][0]
    assert std[0] > 3 * std[1]


# What users are told


def test_rows_outside_are_marked():
    X, y = line(50, n_features=2)
    model = BinaryTreeGPRegressor(**QUICK[0][1]).fit(X, y)
    new = np.array([[0.5, 0.5], [0.5, 1.5], [-3.0, 0.5], X[3], X.max(axis=0)])
    np.testing.assert_array_equal(model.outside_box(new), [False, True, True, False, False])
    assert model.outside_box([[0.5, np.nan]]).all()  # training has no gaps
    with pytest.raises(ValueError, match=r"finite"):
        model.outside_box([[0.5, np.inf]])


@quickly
def test_one_warning_names_share_and_columns(kind, settings):
    X, y = line(60, n_features=3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = kind(**settings).fit(frame, y)
    new = frame.iloc[:10].copy()
    new.iloc[0, 0], new.iloc[1, 2] = 7.0, -7.0
    said = r"20 % of the rows lie outside the training box, in columns 'a', 'c' \(0, 2\).*widen"
    with pytest.warns(UserWarning, match=said):
        model.predict(new)
    assert np.isfinite(model.predict_interval(new)).all()  # warnings are errors
    model.fit(X, y)
    with pytest.warns(UserWarning, match="in columns 0, 2:"):
        model.sample_y(new.to_numpy())


def test_rows_that_chance_puts_outside_are_not_told():
    X, y = line(200, n_features=4)
    model = BinaryTreeGPRegressor(**QUICK[0][1]).fit(X, y)
    new = np.random.default_rng(5).random((300, 4))
    assert 0 < model.outside_box(new).sum() < 40
    model.predict(new)


@pytest.mark.parametrize("outside", ["clip", "unrelated"])
def test_who_chose_is_not_told(outside):
    X, y = line(50)
    model = BinaryTreeGPRegressor(**QUICK[0][1], outside=outside).fit(X, y)
    assert np.isfinite(model.predict([[9.0]]))


@pytest.mark.parametrize(
    "model",
    [
        BinaryTreeGPRegressor(
            preset="paper-bte", n_members=2, n_candidates=2, max_iter=5, random_state=0
        ),
        TrieGPRegressor(n_trees=4, max_iter=2, calibrated=False, smooth=False, random_state=0),
    ],
    ids=["paper", "forest"],
)
def test_models_without_calibration_do_not_widen(model):
    X, y = line(50)
    model.fit(X, y)
    with pytest.warns(UserWarning, match="not calibrated"):
        far = model.predict([[9.0]], return_std=True)
    np.testing.assert_array_equal(far, model.predict([[X.max()]], return_std=True))


@quickly
@pytest.mark.parametrize("outside", ["widen", "unrelated"])
def test_saved_models_widen_the_same(kind, settings, outside, tmp_path):
    X, y = line(60, n_features=2)
    model = kind(**settings, outside=outside).fit(X, y)
    new = np.array([[0.5, 3.0], [1.1, 0.5], [-40.0, 40.0]])
    expected = quiet(model, "predict_quantiles", new)
    model.save(tmp_path / "m")
    for again in (triegp.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(quiet(again, "predict_quantiles", new), expected)


@quickly
def test_extreme_rows_and_boxes(kind, settings):
    X, y = line(60, n_features=3)
    X[:, 1] = 4.0  # constant: no width
    X[:, 2] = np.where(X[:, 2] > 0.5, 1e150, -1e150)
    model = kind(**settings).fit(X, y)
    new = np.array([[1e300, 4.0, 0.0], [0.5, 5.0, 1.7e308], [-1e308, -1e308, 0.0]])
    found = np.array(quiet(model, "predict", new, return_std=True))
    assert np.isfinite(found).all()
    assert (found[1] > 0).all()
