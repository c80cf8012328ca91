"""Functions drawn from fitted estimators: their law, and values that depend on the row only."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import triegp
from draw_problems import check_moments
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.estimators.draws import FunctionDraw, FunctionDraws

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 5, "random_state": 0}
FOREST = {"n_trees": 4, "max_iter": 3, "random_state": 0}
N_DRAWS = 8_000


def make_data(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, 20 + 5 * (np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.standard_normal(n))


def rows(X, m=9, seed=1):
    """New rows, training rows, and rows outside the box on two sides."""
    rng = np.random.default_rng(seed)
    outside = rng.random((4, 3)) + np.array([[1.1, 0, 0], [1.4, 0, 0], [0, -1.2, 0], [0, 0, 1.3]])
    return np.vstack([rng.random((m, 3)), X[:3], outside])


@pytest.fixture(scope="module")
def mixture():
    return BinaryTreeGPRegressor(**QUICK).fit(*make_data())


@pytest.fixture(scope="module")
def forest():
    return TrieGPRegressor(**FOREST).fit(*make_data())


@pytest.fixture(scope="module")
def large_forest():
    return TrieGPRegressor(**FOREST).fit(*make_data(2_300))


@pytest.fixture(params=["mixture", "forest", "large_forest"])
def model(request):
    return request.getfixturevalue(request.param)


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_draws_have_the_covariance_that_predict_returns(model):
    new = rows(make_data()[0])
    k = 1_000 if isinstance(model, TrieGPRegressor) else N_DRAWS  # one solve each
    mean, cov = model.predict(new, return_cov=True, latent=True)
    drawn = model.sample_functions(k, random_state=3)(new)
    assert drawn.shape == (16, k)
    # solves for draws of the forest end at 1e-2; their errors are below those of the estimates
    check_moments(drawn, mean, cov)


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_draws_have_the_law_of_sample_y(mixture):
    """Beyond two moments: quantiles of sums and differences of rows."""
    new, k = rows(make_data()[0]), 20_000
    one = mixture.sample_functions(k, random_state=1)(new)
    two = mixture.sample_y(new, k, random_state=2, latent=True)
    rng = np.random.default_rng(0)
    for _ in range(20):
        direction = rng.standard_normal(16) * (rng.random(16) < 0.3)
        a, b = np.sort(direction @ one), np.sort(direction @ two)
        distance = np.abs(np.searchsorted(b, a) - np.arange(k)).max() / k
        assert distance < 2.2 * np.sqrt(2 / k)  # Kolmogorov and Smirnov: 1 in 10,000


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_a_value_depends_on_its_row_only(model):
    new = np.vstack([rows(make_data()[0], m=100), rows(make_data()[0], m=3)[:3]])
    draws = model.sample_functions(5, random_state=4)
    whole = draws(new)
    rng = np.random.default_rng(0)
    for some in (rng.permutation(len(new)), [7], [101, 101, 3], np.arange(80)):
        np.testing.assert_array_equal(draws(new[some]), whole[some])
    for k, one in enumerate(draws):
        np.testing.assert_array_equal(one(new[::-1]), whole[::-1, k])
    np.testing.assert_array_equal(draws[1:4](new), whole[:, 1:4])
    np.testing.assert_array_equal(draws[-1](new[50:60]), whole[50:60, -1])


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_pickles_and_other_processes_have_the_same_values(model, tmp_path):
    new = rows(make_data()[0])
    draws = model.sample_functions(3, random_state=5)
    whole = draws(new)
    with open(tmp_path / "draws", "wb") as file:
        pickle.dump((draws, draws[1], new), file)
    program = (
        "import pickle, sys, warnings, numpy as np; warnings.simplefilter('ignore');"
        "draws, one, new = pickle.load(open(sys.argv[1], 'rb'));"
        "np.save(sys.argv[2], np.column_stack([draws(new[::-1])[::-1], one(new)]))"
    )
    command = [sys.executable, "-c", program, tmp_path / "draws", tmp_path / "found.npy"]
    subprocess.run(command, check=True)
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_array_equal(found, np.column_stack([whole, whole[:, 1]]))


def test_saved_models_and_the_same_seed_give_the_same_functions(mixture, tmp_path):
    new = rows(make_data()[0])[:12]
    mixture.save(tmp_path / "model")
    again = triegp.load(tmp_path / "model")
    whole = mixture.sample_functions(6, random_state=7)(new)
    np.testing.assert_array_equal(again.sample_functions(6, random_state=7)(new), whole)
    np.testing.assert_array_equal(mixture.sample_functions(2, random_state=7)(new), whole[:, :2])
    other = mixture.sample_functions(6, random_state=8)(new)
    assert (other != whole).all()


def test_threads_do_not_matter():
    X, y = make_data()
    values = []
    for n_jobs in (1, 2):
        for estimator in (BinaryTreeGPRegressor(**QUICK), TrieGPRegressor(**FOREST)):
            model = estimator.set_params(n_jobs=n_jobs).fit(X, y)
            values.append(model.sample_functions(3)(rows(X)[:12]))
    np.testing.assert_array_equal(values[0], values[2])
    np.testing.assert_array_equal(values[1], values[3])


def test_functions_of_different_seeds_are_independent(mixture):
    new = rows(make_data()[0])[:12]
    mean = mixture.predict(new, latent=True)[:, None]
    one, two = (mixture.sample_functions(N_DRAWS, random_state=k)(new) - mean for k in (0, 1))
    products = one[:, None] * two[None]
    error = products.std(axis=-1) / np.sqrt(N_DRAWS)
    assert np.abs(products.mean(axis=-1) / error).max() < 5.0


def test_several_targets_are_drawn_independently():
    X, y = make_data()
    both = np.column_stack([y, np.where(X[:, 0] > 0.5, 3.0, -2.0) * X[:, 2]])
    new = rows(X)[:12]
    for estimator in (BinaryTreeGPRegressor(**QUICK), TrieGPRegressor(**FOREST)):
        model = estimator.fit(X, both)
        draws = model.sample_functions(2_000, random_state=0)
        values = draws(new)
        assert values.shape == (12, 2, 2_000)
        np.testing.assert_array_equal(draws[5](new[:4]), values[:4, :, 5])
        mean, cov = model.predict(new, return_cov=True, latent=True)
        for t in range(2):
            check_moments(values[:, t], mean[:, t], cov[..., t])
        apart = values - mean[..., None]
        products = apart[:, None, 0] * apart[None, :, 1]
        error = products.std(axis=-1) / np.sqrt(2_000)
        assert np.abs(products.mean(axis=-1) / error).max() < 5.0


def test_transformed_targets_are_in_units_of_y():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, target_transform="log").fit(X, np.exp(y / 10))
    plain = BinaryTreeGPRegressor(**QUICK).fit(X, y / 10)
    new = rows(X)[:12]
    drawn = model.sample_functions(50)(new)
    np.testing.assert_allclose(drawn, np.exp(plain.sample_functions(50)(new)), rtol=1e-9)


def test_cells():
    X, y = make_data(600)
    model = BinaryTreeGPRegressor(**QUICK, max_cells=64).fit(X, y)
    new = np.random.default_rng(1).random((14, 3)) * 0.9 + 0.05
    mean, cov = model.predict(new, return_cov=True, latent=True)
    drawn = model.sample_functions(N_DRAWS)(new)
    check_moments(drawn, mean, cov)
    np.testing.assert_array_equal(model.sample_functions(3)(new[5:6]), drawn[5:6, :3])


@pytest.mark.parametrize("preset", ["paper-bt", "paper-bte"])
def test_presets_of_the_paper(preset):
    X, y = make_data(60)
    few = {"n_candidates": 2, "max_iter": 3, "random_state": 0}
    model = BinaryTreeGPRegressor(preset=preset, outside="clip", **few).fit(X, y)
    new = rows(X)[:12]
    mean, cov = model.predict(new, return_cov=True, latent=True)
    check_moments(model.sample_functions(N_DRAWS)(new), mean, cov)


@pytest.mark.parametrize("outside", ["clip", "unrelated"])
@pytest.mark.parametrize(
    "estimator", [BinaryTreeGPRegressor(**QUICK), TrieGPRegressor(**FOREST)], ids=["mix", "forest"]
)
def test_other_choices_outside_the_box(estimator, outside):
    X, y = make_data()
    model = estimator.set_params(outside=outside).fit(X, y)
    new = rows(X)
    mean, cov = model.predict(new, return_cov=True, latent=True)
    draws = model.sample_functions(2_000)
    check_moments(draws(new), mean, cov)
    np.testing.assert_array_equal(draws(new[::-1]), draws(new)[::-1])


def test_outside_error_is_raised_by_draws():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK, outside="error").fit(X, y)
    with pytest.raises(ValueError, match="training box"):
        model.sample_functions(2)(rows(X))


def test_rows_outside_warn_once():
    model = BinaryTreeGPRegressor(**QUICK).fit(*make_data())
    draws = model.sample_functions(2)
    with pytest.warns(UserWarning, match="outside the training box") as told:
        draws(rows(make_data()[0]))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws(rows(make_data()[0]))


def table(n, seed):
    rng = np.random.default_rng(seed)
    color, size = rng.choice(["red", "green", "blue"], n), rng.random(n)
    y = size + (color == "red") + 0.1 * rng.standard_normal(n)
    return pd.DataFrame({"color": color, "size": size}), y


def test_unknown_categories_and_gaps():
    """One variant per function and category; names do not depend on codes in a batch."""
    model = BinaryTreeGPRegressor(**QUICK).fit(*table(150, 0))
    new = pd.DataFrame(
        {
            "color": ["red", "pink", "pink", "teal", "green", "blue"],
            "size": [0.3, 0.2, 0.6, 0.6, np.nan, np.nan],
        }
    )
    draws = model.sample_functions(4_000, random_state=1)
    whole = draws(new)
    for some in ([3], [3, 2], [5, 4, 1], [2, 3, 0], [4]):
        np.testing.assert_array_equal(draws(new.iloc[some]), whole[some])
    mean, cov = model.predict(new, return_cov=True, latent=True)
    check_moments(whole, mean, cov)


def test_missing_values_that_training_has_seen():
    X, y = table(150, 0)
    X.loc[::7, "size"] = np.nan
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    new = X.iloc[:20]
    draws = model.sample_functions(40)
    np.testing.assert_array_equal(draws(new.iloc[::-1]), draws(new)[::-1])


def test_rows_added_later_do_not_change_functions():
    X, y = make_data()
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    new = rows(X)[:12]
    draws = model.sample_functions(3)
    before = draws(new)
    model.partial_fit(new[:9], np.full(9, 40.0))
    model.predict(new)
    np.testing.assert_array_equal(draws(new), before)
    assert not (model.sample_functions(3)(new) == before).any()


def test_repeated_measurements_keep_one_value_per_input():
    X, y = make_data(60)
    rng = np.random.default_rng(0)
    model = BinaryTreeGPRegressor(**QUICK)
    model.fit(np.vstack([X, X]), np.append(y, y + 0.5 * rng.standard_normal(60)))
    draws = model.sample_functions(2_000)
    values = draws(np.vstack([X[:5], X[:5]]))
    np.testing.assert_array_equal(values[:5], values[5:])
    mean, cov = model.predict(X[:5], return_cov=True, latent=True)
    check_moments(values[:5], mean, cov)


def test_one_training_row():
    model = BinaryTreeGPRegressor(**QUICK).fit([[0.5, 1.0]], [3.0])
    assert np.isfinite(model.sample_functions(4)([[0.5, 1.0], [0.5, 1.0]])).all()


def test_sequence_and_arguments(mixture):
    draws = mixture.sample_functions(4)
    assert isinstance(draws, FunctionDraws)
    assert isinstance(draws[0], FunctionDraw)
    assert len(draws) == 4
    assert len(draws[::2]) == 2
    assert "4 functions" in repr(draws)
    assert "one function" in repr(draws[0])
    with pytest.raises(IndexError):
        draws[4]
    with pytest.raises(ValueError, match="n_functions"):
        mixture.sample_functions(0)
    with pytest.raises(ValueError, match="random_state"):
        mixture.sample_functions(1, random_state="dice")
    with pytest.raises(ValueError, match="features"):
        draws(np.zeros((3, 5)))
