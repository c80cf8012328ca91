"""Predictions that know the waiting rows without inserting them, against inserting them."""

import copy
import threading
from itertools import pairwise

import numpy as np
import pytest

from tolerances import VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.calibration.model import CalibratedModel
from triegp.estimators import streaming
from triegp.mixture import members

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 3, "random_state": 0}
N_FIRST = 600

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*outside the training box"),
    pytest.mark.filterwarnings("ignore:.*are copies of others"),
]


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    y = np.sin(5 * X[:, 0]) + (0.1 + X[:, 1]) * rng.standard_normal(n)
    X[:2] = [[0.0] * 3, [1.0] * 3]
    return X, y


def cells(X):
    """Few distinct inputs, several observations at each."""
    return np.round(6 * X) / 6


def positive(y):
    return np.exp(y)


def both(y):
    return np.stack([y, y[::-1]], axis=1)


def uneven(n):
    return np.random.default_rng(9).integers(0, 4, n).astype(float)


CASES = {
    "calibrated": {},
    "bit": {"nugget": "bit"},
    "mixture": {"mixture": "stacking"},
    "paper": {"preset": "paper-bte", "n_members": 3, "n_candidates": 4},
    "unrelated": {"outside": "unrelated"},
    "clipped": {"outside": "clip"},
    "precisions": {"weights": "precision", "sample_weight": uneven},
    "weighted": {"sample_weight": uneven},
    "known": {"known_noise": lambda n: np.linspace(0.0, 2.0, n)},
    "own": {"y": both},
    "shared": {"y": both, "multi_target": "shared"},
    "repeated": {"X": cells},
    "repeated and shared": {"X": cells, "y": both, "multi_target": "shared"},
    "log": {"y": positive, "target_transform": "log"},
    "coarse": {"precision": 2},
}


class Case:
    """A fitted model, rows to add, and new rows to predict."""

    def __init__(self, options):
        options = dict(options)
        weigh, know = options.pop("sample_weight", None), options.pop("known_noise", None)
        X, y = draw(N_FIRST + 60)
        self.X, self.y = options.pop("X", np.copy)(X), options.pop("y", np.copy)(y)
        self.extras = {}
        if weigh is not None:
            self.extras["sample_weight"] = weigh(len(X))
        if know is not None:
            self.extras["known_noise"] = know(len(X))
        self.new = np.vstack([draw(20, seed=2)[0], self.X[-25:], self.X[:15]])
        if options.get("outside") != "clip":
            self.new = np.vstack([self.new, [[1.5, 0.5, 0.5]]])
        self.model = BinaryTreeGPRegressor(**QUICK | options).fit(*self.rows(slice(0, N_FIRST)))

    def rows(self, some):
        return self.X[some], self.y[some], *self.named(some).values()

    def named(self, some):
        names = ("sample_weight", "known_noise")
        return {n: self.extras[n][some] if n in self.extras else None for n in names}

    def ask(self, model):
        return [
            model.predict(self.new),
            *model.predict(self.new, return_std=True),
            *model.predict(self.new, return_std=True, latent=True),
            model.predict_quantiles(self.new),
        ]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return Case(CASES[request.param])


def never(*_):
    raise AssertionError("rows must not be inserted")


def generous(monkeypatch):
    """Any number of rows may wait or be predicted."""
    monkeypatch.setattr(streaming, "FEWEST_AHEAD", 1)
    for name in ("AHEAD_SHARE", "ASKED_SHARE"):
        monkeypatch.setattr(streaming, name, 1e9)


def test_waiting_rows_are_known_as_if_they_were_inserted(case, monkeypatch):
    generous(monkeypatch)
    model, inserted = copy.deepcopy(case.model), copy.deepcopy(case.model)
    bounds = [600, 601, 602, 603, 610, 640, 660]
    for first, last in pairwise(bounds):
        for one in (model, inserted):
            one.partial_fit(*case.rows(slice(first, last)))
        with monkeypatch.context() as patched:
            patched.setattr(members.Ensemble, "insert", never)
            found = case.ask(model)
        assert inserted.n_rows_ == last  # inserts
        for one, other in zip(found, case.ask(inserted), strict=True):
            np.testing.assert_allclose(one, other, **VALUE)
    assert model.n_rows_ == 660
    for one, other in zip(case.ask(model), case.ask(inserted), strict=True):
        np.testing.assert_allclose(one, other, **VALUE)


def test_repeated_inputs_have_their_own_calibration():
    """Otherwise the cases above do not test them."""
    assert Case(CASES["repeated"]).model._stream.fitted[0].inputs is not None


@pytest.fixture(scope="module")
def model():
    return Case({}).model


@pytest.mark.parametrize("seed", range(3))
def test_batches_with_questions_equal_batches_without(model, seed):
    """Rows outside the box are among them, and calibrations and fits in between."""
    X, y = draw(1500, seed=5)
    X[20] = 3.0
    rng = np.random.default_rng(seed)
    asked, quiet = copy.deepcopy(model), copy.deepcopy(model)
    first, n_ahead = 0, 0
    while first < 1500:
        last = min(first + int(rng.choice([1, 2, 5, 30, 200])), 1500)
        for one in (asked, quiet):
            one.partial_fit(X[first:last], y[first:last])
        asked.predict(X[rng.integers(1500, size=3)], return_std=True)
        n_ahead += bool(asked._stream.ahead)
        first = last
    assert n_ahead > 5
    assert asked._stream.plan.n_fit == quiet._stream.plan.n_fit > N_FIRST
    new = draw(50, seed=6)[0]
    for one, other in zip(
        asked.predict(new, return_std=True), quiet.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, **VALUE)


@pytest.mark.parametrize("seed", range(3))
def test_any_batches_equal_one_if_parameters_stay(model, seed):
    X, y = draw(1500, seed=7)
    rng = np.random.default_rng(seed)
    asked = copy.deepcopy(model).set_params(refit=False)
    quiet = copy.deepcopy(asked).partial_fit(X, y)
    first = 0
    while first < 1500:
        last = min(first + int(rng.choice([1, 2, 5, 30, 200])), 1500)
        asked.partial_fit(X[first:last], y[first:last])
        asked.predict(X[rng.integers(1500, size=3)])
        first = last
    for one, other in zip(
        asked.predict(X[:80], return_std=True), quiet.predict(X[:80], return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, **VALUE)
    assert asked.log_marginal_likelihood_ == pytest.approx(quiet.log_marginal_likelihood_, 1e-12)
    np.testing.assert_array_equal(asked.rows_.X, quiet.rows_.X)


def test_rows_that_are_set_aside_stay_aside(monkeypatch):
    """Rows outside the box, and a category that training has not seen."""
    generous(monkeypatch)
    X, y = draw(N_FIRST + 9)
    X[:, 2] = np.round(3 * X[:, 2])
    model = BinaryTreeGPRegressor(**QUICK, categorical_features=[2], refit=False)
    model.fit(X[:N_FIRST], y[:N_FIRST])
    late, late_y = X[N_FIRST:], y[N_FIRST:]
    late[2, 2], late[4, 0] = 9.0, 7.0
    other = copy.deepcopy(model)
    for one in (model, other):
        with pytest.warns(UserWarning, match="set aside"):
            one.partial_fit(late[:5], late_y[:5])
    model.predict(X[:3])
    assert model._stream.ahead[0].n_rows == N_FIRST + 3
    for one in (model, other):
        one.partial_fit(late[5:], late_y[5:])
    assert other.n_rows_ == N_FIRST + 9  # inserts
    new = np.vstack([late, X[:20]])
    found, expected = (one.predict(new, return_std=True) for one in (model, other))
    np.testing.assert_allclose(found, expected, **VALUE)
    assert model._stream.ahead[0].n_rows == N_FIRST + 7


def test_many_waiting_rows_are_inserted(model, monkeypatch):
    X, y = draw(80, seed=1)
    one = copy.deepcopy(model).partial_fit(X[:64], y[:64])
    one.predict(X[:1])
    assert one._stream.n_ahead == 64
    one.partial_fit(X[64:], y[64:]).predict(X[:1])
    assert not one._stream.waiting
    assert not one._stream.ahead


def test_rows_are_inserted_when_many_are_predicted(model):
    X, y = draw(80, seed=1)
    one = copy.deepcopy(model).partial_fit(X[:1], y[:1])
    for k in range(64):
        one.predict(X[k : k + 1])
    assert one._stream.n_ahead == 1
    one.predict(X[:1])
    assert not one._stream.waiting


@pytest.mark.parametrize("bad", [np.array(3.0), 3.0, [0.5] * 3, [[0.5] * 2], [[np.inf] * 3]])
def test_new_rows_are_refused_as_without_waiting_rows(model, bad):
    X, y = draw(3, seed=1)
    one = copy.deepcopy(model).partial_fit(X, y)
    said = []
    for each in (one, model):
        with pytest.raises(ValueError, match=r"2D|2-d|dimension|features|finite") as told:
            each.predict(bad)
        said.append(str(told.value))
    assert said[0] == said[1]


def test_joint_questions_insert_rows(model):
    X, y = draw(8, seed=1)
    for ask in (
        lambda m: m.predict(X, return_cov=True),
        lambda m: m.sample_y(X),
        lambda m: m.sample_functions(1),
        lambda m: m.predict_groups(X, [[0, 1]]),
    ):
        one = copy.deepcopy(model).partial_fit(X, y)
        one.predict(X)
        assert one._stream.ahead
        ask(one)
        assert not one._stream.waiting


def test_what_is_asked_of_models_that_look_ahead_beside_predictions(model):
    """The mixture inserts its rows then."""
    X, y = draw(8, seed=1)
    one, other = (copy.deepcopy(model).partial_fit(X, y) for _ in range(2))
    one.predict(X)
    growing, whole = one._stream.ahead[0].base, other.ensembles_[0]
    points = whole.read(X, var=True)
    for name, given in (
        ("n_targets", None),
        ("n_rows", None),
        ("n_summed", None),
        ("n_observations", None),
        ("on_host", None),
        ("goes_on", None),
        ("draw_rows", None),
        ("quick_residuals", None),
        ("noise", (0,)),
        ("log_evidence", (0,)),
    ):
        pair = [getattr(each, name) for each in (growing, whole)]
        assert pair[0] == pair[1] if given is None else pair[0](*given) == pair[1](*given)
    seeds = np.arange(3, dtype=np.uint64)
    names = np.arange(8, dtype=np.uint64)
    for ask in (
        lambda m: m.predict_covariance(points, 0, latent=False)[1],
        lambda m: m.group_covariance(points, 0, np.array([[0, 1]]))[1],
        lambda m: m.sample(points, 0, 2, np.random.default_rng(0), latent=True),
        lambda m: m.evaluate_draws(points, 0, m.prepare_draws(0, seeds), names),
        lambda m: m.leave_one_out(0).mean(),
        lambda m: m.residuals(0).mean,
        lambda m: m.observed(0)[0],
        lambda m: m.stand(apart=False).predict(points, 0, var=True, latent=True).var(),
    ):
        np.testing.assert_allclose(ask(growing), ask(whole), **VALUE)
    with pytest.raises(ValueError, match="y must be at most"):
        growing.check(streaming.Rows(np.full((1, 1), 1e200)))


def test_other_models_insert_their_rows():
    X, y = draw(N_FIRST + 1)
    many = TrieGPRegressor(n_trees=4, max_iter=2, random_state=0).fit(X[:-1], y[:-1])
    cells = BinaryTreeGPRegressor(**QUICK, max_cells=100)
    cells.fit(*draw(10_500))
    assert cells.ensembles_[0].held is not None
    for one in (many, cells):
        one.partial_fit(X[-1:], y[-1:]).predict(X[:1])
        assert not one._stream.waiting


def test_readers_see_the_model_before_or_after(model):
    """Every answer is one that the model gives without threads."""
    X, y = draw(60, seed=1)
    new = draw(5, seed=2)[0]
    quiet, shared = copy.deepcopy(model), copy.deepcopy(model)
    possible = [quiet.predict(new).tobytes()]
    for k in range(60):
        possible.append(quiet.partial_fit(X[k : k + 1], y[k : k + 1]).predict(new).tobytes())
    ended, seen = threading.Event(), []

    def read():
        while not ended.is_set():
            seen.append(shared.predict(new).tobytes())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for k in range(60):
        shared.partial_fit(X[k : k + 1], y[k : k + 1])
    ended.set()
    for reader in readers:
        reader.join()
    seen.append(shared.predict(new).tobytes())
    assert set(seen) <= set(possible)
    assert seen[-1] == possible[-1]


def test_a_calibrated_model_grows_without_local_noise_of_its_rows(model):
    """Predictions do not need it, and nothing else is asked before rows are inserted."""
    X, y = draw(3, seed=1)
    one = copy.deepcopy(model).partial_fit(X, y)
    one.predict(X)
    ahead, before = one._stream.ahead[0], one._stream.fitted[0]
    assert isinstance(ahead, CalibratedModel)
    assert ahead.stages is before.stages
    assert ahead.n_rows == before.n_rows + 3
