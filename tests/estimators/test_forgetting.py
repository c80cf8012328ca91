"""Rows that are forgotten, against dense algebra and against models that never had them."""

import copy

import numpy as np
import pytest

from forgetting_problems import PLAIN, QUICK, assert_dense, draw
from tolerances import VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor, load
from triegp.tree import build_trie, condition
from triegp.tree.trie import select_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*outside the training box"),
    pytest.mark.filterwarnings("ignore:.*copies of others"),
]


@pytest.mark.parametrize("nugget", ["row", "bit"])
def test_a_window_against_dense_algebra(nugget):
    X, y = draw(120)
    model = BinaryTreeGPRegressor(**PLAIN, nugget=nugget).fit(X[20:], y[20:])
    model.partial_fit(X[:20], y[:20])
    model.forget(keep_last=70)
    left = np.r_[70:120, :20]
    assert model.n_rows_ == 70
    np.testing.assert_array_equal(model.rows_.X, X[left])
    assert_dense(model, X[left], y[left], np.ones(70), draw(15, 1)[0])
    np.testing.assert_allclose(model.loo_targets(), y[left], **VALUE)


@pytest.mark.parametrize("repeated", [False, True])
def test_weights_that_fade_against_dense_algebra(repeated):
    """Observations of one input, of which the model makes one row, fade each at its own time."""
    X, y = draw(120)
    X = np.round(5 * X) / 5 if repeated else X
    model = BinaryTreeGPRegressor(**PLAIN).fit(X[40:], y[40:]).forget(factor=0.5)
    model.partial_fit(X[:20], y[:20]).forget(factor=0.8)
    model.partial_fit(X[20:40], y[20:40])
    weight = np.repeat([0.4, 0.8, 1.0], [80, 20, 20])
    order = np.r_[40:120, :40]
    np.testing.assert_allclose(model.rows_.weight, weight, **VALUE)
    assert_dense(model, X[order], y[order], weight, draw(15, 1)[0])


CASES = {
    "calibrated": {},
    "weighted": {"sample_weight": True},
    "precisions": {"sample_weight": True, "weights": "precision"},
    "known": {"known_noise": True},
    "repeated": {"repeated": True},
    "copies": {"copies": True},
    "two targets": {"both": True},
    "shared": {"both": True, "multi_target": "shared"},
}


class Rows:
    """Rows of a case, and its options for the estimator."""

    def __init__(self, options):
        options = dict(options)
        X, y = draw(700)
        if options.pop("repeated", False):
            X = np.round(6 * X) / 6
        if options.pop("copies", False):
            X[100:250], y[100:250] = X[400:550], y[400:550]
        if options.pop("both", False):
            y = np.stack([y, y[::-1]], axis=1)
        known, weigh = options.pop("known_noise", False), options.pop("sample_weight", False)
        self.X, self.y = X, y
        self.known = np.linspace(0.0, 1.0, 700) if known else None
        self.weight = np.arange(700) % 4 / 2.0 if weigh else None
        self.options = QUICK | {"refit": False} | options

    def take(self, some):
        parts = (self.X, self.y, self.weight, self.known)
        return [None if part is None else part[some] for part in parts]


@pytest.fixture(params=CASES)
def rows(request):
    return Rows(CASES[request.param])


def ask(model, X):
    return [
        *model.predict(X, return_std=True),
        *model.predict(X, return_std=True, latent=True),
        model.predict_quantiles(X),
    ]


def test_forgotten_rows_are_as_if_they_had_never_been_added(rows):
    """The fitted rows stay first; those added later are dropped one window after another."""
    model = BinaryTreeGPRegressor(**rows.options).fit(*rows.take(slice(0, 600)))
    other = copy.deepcopy(model).partial_fit(*rows.take(slice(650, 700))).forget(keep_last=300)
    model.partial_fit(*rows.take(slice(600, 650))).forget(keep_last=300)
    model.partial_fit(*rows.take(slice(650, 700))).forget(keep_last=50)
    other.forget(keep_last=50)
    new = np.vstack([draw(30, 3)[0], rows.X[650:], rows.X[:20]])
    for one, two in zip(ask(model, new), ask(other, new), strict=True):
        np.testing.assert_allclose(one, two, **VALUE)
    # Deviations keep the local noise of when a row was inserted.
    left = model.loo_predict()[0]
    assert left.shape[0] == 50
    np.testing.assert_allclose(left, other.loo_predict()[0], **VALUE)


def test_a_factor_of_all_weights_is_a_factor_of_the_noise(rows):
    """Dense algebra knows weights only by noise / weight, so the noise takes the factor, too."""
    model = BinaryTreeGPRegressor(**rows.options).fit(*rows.take(slice(None)))
    before = copy.deepcopy(model)
    model.forget(factor=0.25)
    for old, new in zip(before.ensembles_, model.ensembles_, strict=True):
        for one, two in zip(old.members, new.members, strict=True):
            for first, second in zip(one.posteriors, two.posteriors, strict=True):
                variance = np.broadcast_to(4.0 * first.rows.variance, second.rows.y.shape)
                np.testing.assert_allclose(second.rows.variance, variance, **VALUE)
                np.testing.assert_allclose(second.rows.y, first.rows.y, **VALUE)


def test_nothing_forgotten_changes_nothing(rows):
    model = BinaryTreeGPRegressor(**rows.options).fit(*rows.take(slice(None)))
    before, loo = ask(model, rows.X[:50]), model.loo_predict()
    model.forget(keep_last=10_000, factor=1.0)
    for one, two in zip(ask(model, rows.X[:50]), before, strict=True):
        np.testing.assert_allclose(one, two, **VALUE)
    for one, two in zip(model.loo_predict(), loo, strict=True):
        np.testing.assert_allclose(one, two, **VALUE)


def test_refits_use_what_is_left_with_its_weights():
    X, y = draw(400)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:200], y[:200])
    model.partial_fit(X[200:300], y[200:300]).forget(keep_last=200, factor=0.5)
    assert model._stream.plan.n_fit == 100
    model.partial_fit(X[300:], y[300:])  # 300 rows, of which the fit saw 100
    weight = np.repeat([0.5, 1.0], [200, 100])
    fresh = BinaryTreeGPRegressor(**QUICK).fit(X[100:], y[100:], weight)
    new = draw(30, 3)[0]
    for one, two in zip(ask(model, new), ask(fresh, new), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_box_of_the_next_fit_is_that_of_what_is_left():
    X, y = draw(200)
    X[0] = 30.0
    model = BinaryTreeGPRegressor(**QUICK).fit(X, y).forget(keep_last=150)
    assert model._stream.plan.highest.max() <= 1.0
    assert model._stream.plan.high.max() == 30.0


def test_rows_that_fade_away_are_dropped():
    X, y = draw(100)
    model = BinaryTreeGPRegressor(**PLAIN).fit(X[:60], y[:60]).forget(factor=1e-7)
    model.partial_fit(X[60:], y[60:]).forget(factor=1e-7)
    assert model.n_rows_ == 40


def test_rows_that_were_set_aside_are_forgotten_too():
    X, y = draw(300)
    model = BinaryTreeGPRegressor(**QUICK, refit=False).fit(X[20:], y[20:])
    with pytest.warns(UserWarning, match="set aside"):
        model.partial_fit(X[:20] + np.array([5.0, 0.0]), y[:20])
    model.forget(keep_last=100)
    assert model._stream.plan.n_aside == 20
    np.testing.assert_array_equal(np.isnan(model.loo_targets()), np.arange(100) >= 80)
    with pytest.raises(ValueError, match="must leave a row"):
        model.forget(keep_last=20)


@pytest.mark.parametrize("keep_last", [40, 8])
def test_a_model_that_forgot_its_corners_is_saved(tmp_path, keep_last):
    """What is left spans less than the box of the fit; with 8 rows, none of that fit is left."""
    X, y = (values[::-1] for values in draw(200))
    first = BinaryTreeGPRegressor(**QUICK).fit(X, y)
    model = first.partial_fit(0.25 + 0.5 * X[:10], y[:10]).forget(keep_last=keep_last)
    model.save(tmp_path / "model", training_data=True)
    loaded, again = load(tmp_path / "model"), copy.copy(model)
    for one in (model, loaded, again):
        np.testing.assert_array_equal(one.predict(X[:50]), model.predict(X[:50]))
    for one in (model, loaded, again):
        one.partial_fit(X[:3], y[:3])
        assert one.n_rows_ == keep_last + 3
        np.testing.assert_array_equal(one.predict(X[:50]), model.predict(X[:50]))


def test_a_model_that_forgot_is_saved(tmp_path):
    X, y = draw(700)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[:600], y[:600])
    model.partial_fit(X[600:], y[600:]).forget(keep_last=500, factor=0.7)
    model.save(tmp_path / "model", training_data=True)
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X[:50]), model.predict(X[:50]))
    for one in (model, loaded):
        one.partial_fit(X[:3], y[:3]).forget(keep_last=100)
    np.testing.assert_array_equal(loaded.predict(X[:50]), model.predict(X[:50]))


@pytest.mark.parametrize("refit", ["auto", False])
def test_a_model_without_a_row_of_its_fit_is_copied_and_saved(tmp_path, refit):
    """The rows that are left lie in a smaller box than those of the fit."""
    X, y = draw(200)
    X[100:] = 0.2 + 0.6 * X[100:]
    model = BinaryTreeGPRegressor(**QUICK | {"refit": refit}).fit(X[:150], y[:150])
    model.partial_fit(X[150:], y[150:]).forget(keep_last=40)
    assert model._stream.plan.n_fit == 0
    model.save(tmp_path / "model", training_data=True)
    twins = load(tmp_path / "model"), copy.deepcopy(model)
    expected = model.partial_fit(X[:60], y[:60]).predict(X)
    for twin in twins:
        np.testing.assert_array_equal(twin.partial_fit(X[:60], y[:60]).predict(X), expected)


def test_some_rows_of_a_trie():
    from problems import make_problem, take

    problem = make_problem(0, n=60, precision=(3, 2), shape="twins")
    trie = build_trie(problem.codes, problem.order)
    keys = condition(trie, problem.codes, problem.order, problem.y, problem.noise).keys
    for rows in (np.arange(60), np.arange(20, 60), np.array([7]), np.r_[3:9, 40:60]):
        found, left = select_rows(trie, keys, rows)
        codes = take(problem.codes, rows)
        expected = build_trie(codes, problem.order)
        np.testing.assert_array_equal(found.row_idx, expected.row_idx)
        np.testing.assert_array_equal(found.links.lcp, expected.links.lcp)
        y = problem.y[rows]
        fresh = condition(expected, codes, problem.order, y, problem.noise)
        np.testing.assert_array_equal(left, fresh.keys)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keep_last": 0}, "keep_last must be an integer, 1 or more"),
        ({"keep_last": 2.5}, "keep_last must be an integer"),
        ({"factor": 0.0}, "factor must be"),
        ({"factor": 1.5}, r"factor must lie in \(0, 1\], got 1.5"),
        ({"factor": np.nan}, "factor must be"),
    ],
)
def test_bad_arguments_are_refused(given, said):
    X, y = draw(50)
    model = BinaryTreeGPRegressor(**PLAIN).fit(X, y)
    with pytest.raises(ValueError, match=said):
        model.forget(**given)
    assert model.n_rows_ == 50


def test_models_that_cannot_forget_say_so():
    X, y = draw(10_500)
    model = BinaryTreeGPRegressor(**PLAIN, keep_rows=False).fit(X[:50], y[:50])
    with pytest.raises(ValueError, match="keep_rows=True"):
        model.forget(keep_last=10)
    cells = BinaryTreeGPRegressor(**QUICK, max_cells=100).fit(X, y)
    assert cells.ensembles_[0].held is not None
    with pytest.raises(ValueError, match="cannot forget"):
        cells.forget(keep_last=10)
    assert not hasattr(TrieGPRegressor(), "forget")


@pytest.mark.filterwarnings("ignore:.* are copies of others")
@pytest.mark.parametrize("weights", ["frequency", "precision"])
def test_forgetting_nothing_changes_nothing_after_weighted_rows_were_added(weights):
    """Weights in units of their mean are those of one observation, when rows are added, too."""
    rng = np.random.default_rng(1)
    X, more = rng.random((150, 2)), 0.1 + 0.8 * rng.random((20, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(150)
    model = BinaryTreeGPRegressor(
        n_members=3, n_candidates=4, refit=False, weights=weights, random_state=0
    )
    model.fit(X, y, 3 * rng.random(150) + 0.1)
    model.partial_fit(more, np.sin(6 * more[:, 0]), np.full(20, 3.0))
    before = model.predict(more, return_std=True)
    model.forget(keep_last=10**6)
    for here, there in zip(model.predict(more, return_std=True), before, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-9)


def test_a_model_that_has_forgotten_its_outermost_rows_can_be_saved(tmp_path):
    X, y = draw(80)
    model = BinaryTreeGPRegressor(**QUICK).fit(X[::-1], y[::-1]).forget(keep_last=40)
    assert (model._stream.plan.lowest > model._stream.plan.low).all()
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))
