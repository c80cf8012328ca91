"""A window and a half life as parameters: against dense algebra, and fits to the rows left."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone

from forgetting_problems import PLAIN, QUICK, assert_dense, draw
from tolerances import VALUE
from triegp import BinaryTreeGPRegressor, TrieGPRegressor, load, serving
from triegp.estimators import streaming
from triegp.estimators.memory import Memory, memory_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*outside the training box"),
    pytest.mark.filterwarnings("ignore:.*copies of others"),
]


def known_rows(n_rows, window=None, half_life=None):
    """Indices and weights of the rows that are known after n rows, by their definition."""
    weight = np.ones(n_rows)
    most = np.inf if window is None else window
    if half_life is not None:
        s = max(1, int(half_life) // 8)
        for i in range(n_rows):
            weight[i] = 2.0 ** (-s * ((n_rows - 1) // s - i // s) / half_life)
        most = min(most, int(np.ceil(10 * half_life)))
    first = 0
    while n_rows - first >= most + max(1, most // 16):  # one step after another
        first += max(1, int(most) // 16)
    return np.arange(first, n_rows), weight[first:]


def stream(model, X, y, sizes, *extras, ask=False):
    """Add rows in batches of these sizes, again and again; questions in between if asked."""
    first, k = 0, 0
    while first < len(X):
        some = slice(first, first + sizes[k % len(sizes)])
        model.partial_fit(X[some], y[some], *(None if e is None else e[some] for e in extras))
        if ask and k % 3 == 1:
            model.predict(X[:5], return_std=True)
        first, k = some.stop, k + 1
    return model


def in_box(n, seed=0):
    """Rows whose corners come first and again and again, so that every window has the same box."""
    X, y = draw(n, seed)
    X[::20], X[1::20] = 0.0, 1.0
    X[::20, 1] += 1e-3 * np.arange(X[::20].shape[0])
    X[1::20, 1] -= 1e-3 * np.arange(X[1::20].shape[0])
    return X, y


WINDOW, HALF_LIFE = {"window": 70}, {"half_life": 24.0}
FORGETTING = [WINDOW, HALF_LIFE, {"half_life": 30.5, "window": 100}, {"window": 5}]


@pytest.mark.parametrize("forgetting", FORGETTING, ids=str)
@pytest.mark.parametrize("sizes", [[2, 1], [7, 1, 30], [500]], ids=str)
def test_what_is_known_against_dense_algebra(forgetting, sizes):
    """Parameters are held: the posterior is that of exactly these rows and weights."""
    X, y = draw(300)
    X[58:60] = [[0.0, 0.0], [1.0, 1.0]]
    model = BinaryTreeGPRegressor(**PLAIN, **forgetting).fit(X[:60], y[:60])
    stream(model, X[60:], y[60:], sizes, ask=True)
    rows, weight = known_rows(300, **forgetting)
    np.testing.assert_array_equal(model.rows_.X, X[rows])
    found = np.ones(rows.size) if model.rows_.weight is None else model.rows_.weight
    np.testing.assert_allclose(found, weight, **VALUE)
    assert_dense(model, X[rows], y[rows], weight, draw(15, 1)[0])
    assert model.n_rows_ == rows.size


def test_what_fit_remembers_is_what_a_stream_would_know():
    X, y = draw(300)
    for forgetting in FORGETTING[:3]:
        model = BinaryTreeGPRegressor(**QUICK, **forgetting).fit(X, y)
        rows, weight = known_rows(300, **forgetting)
        given = model.rows_.weight
        np.testing.assert_allclose(np.ones(rows.size) if given is None else given, weight, **VALUE)
        fresh = BinaryTreeGPRegressor(**QUICK).fit(X[rows], y[rows], given)
        np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
        model.partial_fit(X[:1], y[:1])
        rows, weight = known_rows(301, **forgetting)
        found = np.ones(rows.size) if model.rows_.weight is None else model.rows_.weight
        np.testing.assert_allclose(found, weight, **VALUE)


OPTIONS = {
    "window": WINDOW,
    "half life": HALF_LIFE,
    "weighted": WINDOW | {"weight": True},
    "weighted, half life": HALF_LIFE | {"weight": True},
    "precision": WINDOW | {"weight": True, "weights": "precision"},
    "known noise": HALF_LIFE | {"known": True},
    "both": HALF_LIFE | {"both": True},
    "shared": WINDOW | {"both": True, "multi_target": "shared"},
    "log": HALF_LIFE | {"target_transform": "log"},
    "paper": WINDOW | {"preset": "paper-bte", "n_candidates": 4},
    "repeated": HALF_LIFE | {"repeated": True},
}


class Case:
    """Rows of a case, and the options of its estimator."""

    def __init__(self, options, n=400):
        options = dict(options)
        self.X, y = in_box(n)
        if options.pop("repeated", False):
            self.X = np.round(6 * self.X) / 6
        y = np.exp(y) if "target_transform" in options else y
        self.y = np.stack([y, y[::-1]], axis=1) if options.pop("both", False) else y
        self.weight = np.arange(n) % 4 / 2.0 + 0.25 if options.pop("weight", False) else None
        self.known = np.linspace(0.0, 1.0, n) if options.pop("known", False) else None
        names = {"window", "half_life"} & options.keys()
        self.forgetting = {name: options.pop(name) for name in names}
        self.options = QUICK | options

    def take(self, some):
        parts = (self.X, self.y, self.weight, self.known)
        return [None if part is None else part[some] for part in parts]


@pytest.fixture(params=OPTIONS)
def case(request):
    return Case(OPTIONS[request.param])


def ask(model, X):
    return [*model.predict(X, return_std=True), model.predict_quantiles(X)]


def test_a_fit_that_is_due_is_a_fit_to_the_rows_left_with_their_weights(case):
    """To the last bit, and whenever predictions are asked for."""
    models = [BinaryTreeGPRegressor(**case.options, **case.forgetting) for _ in range(2)]
    for model in models:
        model.fit(*case.take(slice(0, 60)))
    last, n_fits = 60, 0
    while n_fits < 2:
        for model in models:
            model.partial_fit(*case.take(slice(last, last + 10)))
        last += 10
        n_fits += models[1]._stream.plan.fit_at == models[1]._stream.plan.n_rows
        if last % 30 == 0:
            models[1].predict(case.X[:5])
    left = models[0].rows_
    rows, weight = known_rows(last, **case.forgetting)
    np.testing.assert_array_equal(left.X, case.X[rows])
    if "half_life" in case.forgetting:
        given = weight if case.weight is None else weight * case.weight[rows]
        np.testing.assert_allclose(left.weight, given, **VALUE)
    y = left.y[:, 0] if case.y.ndim == 1 else left.y
    fresh = BinaryTreeGPRegressor(**case.options).fit(left.X, y, left.weight, left.known_noise)
    expected = ask(fresh, case.X[:40])
    for model in models:
        for one, two in zip(ask(model, case.X[:40]), expected, strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_stream_is_the_sum_of_what_forget_does(case):
    """With parameters held: a second route, one fit to the same first rows and explicit calls."""
    forgetting, n_rows = case.forgetting, 240
    options = case.options | {"refit": False}
    model = BinaryTreeGPRegressor(**options, **forgetting).fit(*case.take(slice(0, 60)))
    other = copy.deepcopy(model).set_params(window=None, half_life=None)
    for first in range(60, n_rows, 4):
        model.partial_fit(*case.take(slice(first, first + 4)))
        if "half_life" in forgetting:  # s is 3: each row by itself, so that no batch fades inside
            for i in range(first, first + 4):
                if i % 3 == 0:
                    other.forget(factor=2.0 ** (-3 / 24))
                other.partial_fit(*case.take(slice(i, i + 1)))
        else:
            other.partial_fit(*case.take(slice(first, first + 4)))
    rows, _ = known_rows(n_rows, **forgetting)
    other.forget(keep_last=rows.size)
    np.testing.assert_array_equal(model.rows_.X, other.rows_.X)
    for one, two in zip(ask(model, case.X[:40]), ask(other, case.X[:40]), strict=True):
        np.testing.assert_allclose(one, two, **VALUE)
    np.testing.assert_allclose(model.loo_predict()[0], other.loo_predict()[0], **VALUE)
    np.testing.assert_allclose(
        model.log_marginal_likelihood_, other.log_marginal_likelihood_, **VALUE
    )


@pytest.mark.parametrize("forgetting", [WINDOW, HALF_LIFE], ids=str)
@pytest.mark.parametrize("refit", ["auto", False])
def test_questions_do_not_change_what_is_forgotten(forgetting, refit):
    X, y = in_box(400)
    models = [
        BinaryTreeGPRegressor(**QUICK | {"refit": refit}, **forgetting).fit(X[:60], y[:60])
        for _ in range(2)
    ]
    stream(models[0], X[60:], y[60:], [3, 11, 40])
    stream(models[1], X[60:], y[60:], [3, 11, 40], ask=True)
    for name in ("n_rows", "n_fit", "n_calibrated", "n_aside", "n_newest"):
        assert getattr(models[0]._stream.plan, name) == getattr(models[1]._stream.plan, name), name
    for one, two in zip(ask(models[0], X[:40]), ask(models[1], X[:40]), strict=True):
        np.testing.assert_allclose(one, two, **VALUE)
    np.testing.assert_array_equal(models[0].rows_.X, models[1].rows_.X)


def test_a_window_is_fitted_anew_when_half_of_it_is_new():
    X, y = in_box(500)
    model, fits = BinaryTreeGPRegressor(**QUICK, window=160).fit(X[:160], y[:160]), []
    for i in range(160, 500):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        if model._stream.plan.fit_at:
            fits.append(i + 1)
            model.predict(X[:1])
    assert set(np.diff(fits)) == {80}


def test_faded_rows_are_fitted_anew_after_a_half_life():
    """When the rows of the last fit have half of all weight; not when they are half of all rows."""
    X, y = in_box(500)
    model, fits = BinaryTreeGPRegressor(**QUICK, half_life=40).fit(X[:300], y[:300]), []
    for i in range(300, 500):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
        if model._stream.plan.fit_at:
            fits.append(i + 1)
            model.predict(X[:1])
    assert set(np.diff(fits)) == {40}


@pytest.mark.parametrize("size", [10, 30])
def test_error_bars_are_calibrated_again_between_fits(monkeypatch, size):
    """Between the steps of a window, which are 30 rows, or by a step."""
    X, y = in_box(840)
    model = BinaryTreeGPRegressor(**QUICK, window=480).fit(X[:480], y[:480])
    calls, real = [], streaming._recalibrate

    def count(part, stream, *args):
        calls.append(stream.n_rows)
        return real(part, stream, *args)

    monkeypatch.setattr(streaming, "_recalibrate", count)
    stream(model, X[480:], y[480:], [size])
    assert len(calls) >= 2
    assert max(calls) < 480 + 30


def test_rows_between_steps_wait_for_a_prediction():
    """Only a sixteenth of a window is inserted at once; single rows are added along paths."""
    X, y = in_box(900)
    model = BinaryTreeGPRegressor(**QUICK, refit=False, window=800).fit(X[:800], y[:800])
    for i in range(800, 849):
        model.partial_fit(X[i : i + 1], y[i : i + 1]).predict(X[:1])
    assert model._stream.n_ahead == 49
    assert model._stream.n_rows == 800
    model.partial_fit(X[849:850], y[849:850])
    assert not model._stream.waiting
    assert not model._stream.ahead
    assert model._stream.n_rows == 800


@pytest.mark.parametrize("forgetting", FORGETTING[2:3], ids=str)
def test_saved_pickled_and_cloned_models_go_on_alike(tmp_path, forgetting):
    X, y = in_box(400)
    model = BinaryTreeGPRegressor(**QUICK, **forgetting).fit(X[:60], y[:60])
    stream(model, X[60:231], y[60:231], [9])
    model.save(tmp_path / "model", training_data=True)
    twins = [load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), copy.copy(model)]
    served = serving.load(tmp_path / "model")
    np.testing.assert_allclose(served.predict(X), model.predict(X), **VALUE)
    assert served.n_rows_ == model.n_rows_
    stream(model, X[231:], y[231:], [11], ask=True)
    for twin in twins:
        assert twin.get_params() == model.get_params()
        stream(twin, X[231:], y[231:], [11], ask=True)
        np.testing.assert_array_equal(twin.rows_.X, model.rows_.X)
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    fresh = clone(model)
    assert (fresh.window, fresh.half_life) == (model.window, model.half_life)


def test_refresh_fits_to_what_is_known_and_weights_fade_on():
    X, y = in_box(300)
    model = BinaryTreeGPRegressor(**QUICK, half_life=24).fit(X[:200], y[:200])
    model.partial_fit(X[200:220], y[200:220])
    weight = model.rows_.weight
    model.refresh()
    np.testing.assert_array_equal(model.rows_.weight, weight)
    stream(model, X[220:], y[220:], [7])
    rows, weight = known_rows(300, half_life=24)
    np.testing.assert_array_equal(model.rows_.X, X[rows])
    np.testing.assert_allclose(model.rows_.weight, weight, **VALUE)


def test_categories_that_left_the_window_are_as_if_they_had_never_been():
    X, y = in_box(300)
    names = np.array(["old", "a", "b", "c", "new"])
    kinds = names[np.where(np.arange(300) < 50, 0, 1 + np.arange(300) % 3)]
    kinds[250::7] = "new"
    table = pd.DataFrame({"x": X[:, 0], "kind": kinds})
    model = BinaryTreeGPRegressor(**QUICK, window=100)
    for first in range(0, 300, 20):
        model.partial_fit(table[first : first + 20], y[first : first + 20])
    model.refresh()
    left = slice(300 - model.n_rows_, 300)
    fresh = BinaryTreeGPRegressor(**QUICK).fit(table[left], y[left])
    np.testing.assert_array_equal(model.predict(table[left]), fresh.predict(table[left]))
    whole = BinaryTreeGPRegressor(**QUICK, window=100).fit(table, y)
    np.testing.assert_array_equal(whole.predict(table[left]), fresh.predict(table[left]))


def test_rows_outside_the_box_leave_the_window_too():
    X, y = in_box(300)
    model = BinaryTreeGPRegressor(**QUICK, refit=False, window=100).fit(X[:150], y[:150])
    assert model.n_rows_ == 102
    with pytest.warns(UserWarning, match="set aside"):
        model.partial_fit(X[150:190] + np.array([5.0, 0.0]), y[150:190])
    assert model._stream.plan.n_aside == 40
    assert np.isnan(model.loo_targets()).sum() == 40
    model.partial_fit(X[190:270], y[190:270])
    assert model._stream.plan.n_aside == 22
    stream(model, X[:150], y[:150], [10])
    assert model._stream.plan.n_aside == 0


@pytest.mark.parametrize("weight", [None, np.zeros(120)], ids=["outside", "weight 0"])
def test_a_window_without_a_row_to_use_is_refused_and_nothing_changes(weight):
    X, y = in_box(120)
    model = BinaryTreeGPRegressor(**QUICK, refit=False, window=100).fit(X[:100], y[:100])
    before = model.predict(X)
    with pytest.raises(ValueError, match="must leave a row that the model uses"):
        model.partial_fit(X + (5.0 if weight is None else 0.0), y, weight)
    assert model.n_rows_ == 100
    np.testing.assert_array_equal(model.predict(X), before)
    model.set_params(refit="auto")
    if weight is None:
        assert model.partial_fit(X + 5.0, y).n_rows_ == 100
    else:
        with pytest.raises(ValueError, match="must leave a row that the model uses"):
            model.partial_fit(X, y, weight)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": 0}, "window must be an integer, 1 or more, got 0"),
        ({"window": 2.5}, "window must be an integer"),
        ({"window": True}, "window must be an integer"),
        ({"window": "10"}, "window must be an integer"),
        ({"half_life": 0.5}, "half_life must be a finite number of rows, 1 or more, got 0.5"),
        ({"half_life": 10**400}, "half_life must be a finite number of rows, 1 or more, got 1000"),
        ({"half_life": 9, "weights": "precision"}, 'half_life needs weights="frequency", got'),
        ({"half_life": np.nan}, "half_life must be a finite number"),
        ({"half_life": np.inf}, "half_life must be a finite number"),
        ({"half_life": "5"}, "half_life must be a finite number"),
        ({"half_life": True}, "half_life must be a finite number"),
        ({"window": 10, "keep_rows": False}, "window and half_life need keep_rows=True"),
        ({"half_life": 10, "keep_rows": False}, "window and half_life need keep_rows=True"),
    ],
    ids=str,
)
def test_bad_values_are_refused(given, said):
    X, y = draw(50)
    with pytest.raises(ValueError, match=said):
        BinaryTreeGPRegressor(**PLAIN, **given).fit(X, y)
    model = BinaryTreeGPRegressor(**PLAIN).fit(X, y)
    with pytest.raises(ValueError, match=said):
        model.set_params(**given).partial_fit(X, y)
    assert model.n_rows_ == 50


def test_models_without_rows_and_models_of_cells_cannot_forget(tmp_path):
    X, y = draw(10_500)
    model = BinaryTreeGPRegressor(**PLAIN, window=60).fit(X[:50], y[:50])
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"window needs the training rows.*training_data=True"):
        load(tmp_path / "model").partial_fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="window must be at most max_cells, 100, got 10,200"):
        BinaryTreeGPRegressor(**QUICK, max_cells=100, window=10_200).fit(X, y)
    few = BinaryTreeGPRegressor(**QUICK, max_cells=100, window=90).fit(X, y)
    assert few.n_rows_ == 90
    cells = BinaryTreeGPRegressor(**QUICK, max_cells=100).fit(X, y)
    with pytest.raises(ValueError, match=r"half_life is not possible here.*max_cells"):
        cells.set_params(half_life=50).partial_fit(X[:1], y[:1])
    assert not {"window", "half_life"} & TrieGPRegressor().get_params().keys()


def test_pieces_cannot_be_forgotten(tmp_path):
    from triegp.pieces import parquet_pieces

    X, y = draw(50)
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_parquet(tmp_path / "rows.parquet")
    pieces = parquet_pieces([tmp_path / "rows.parquet"], "y")
    with pytest.raises(ValueError, match="need rows in memory, got 50 rows in pieces"):
        BinaryTreeGPRegressor(**QUICK, window=10).fit_pieces(pieces)


def test_parameters_that_change_later_count_from_then_on():
    X, y = in_box(300)
    model = BinaryTreeGPRegressor(**PLAIN).fit(X[:200], y[:200])
    model.set_params(half_life=80).partial_fit(X[200:205], y[200:205])
    assert model.rows_.weight is None
    model.partial_fit(X[205:230], y[205:230])  # ten at a time
    weight = 2.0 ** (-10 * np.repeat([2, 1, 0], [210, 10, 10]) / 80)
    np.testing.assert_allclose(model.rows_.weight, weight, **VALUE)
    model.set_params(half_life=8).partial_fit(X[230:231], y[230:231])
    assert model.n_rows_ == 81
    weight = np.append(weight / 2.0 ** (1 / 8), 1.0)[-81:]
    np.testing.assert_allclose(model.rows_.weight, weight, **VALUE)
    model.set_params(half_life=None, window=None).partial_fit(X[231:], y[231:])
    assert model.n_rows_ == 150


def test_huge_memories_forget_nothing():
    for memory in (memory_of(10**30, None, keep_rows=True), memory_of(None, 1e308, keep_rows=True)):
        assert not memory.is_due(10**9, 10**9, 10**6)
    assert Memory(1).step == 1
    assert memory_of(None, 1, keep_rows=True) == Memory(10, 1.0)
    assert memory_of(5, 1, keep_rows=True) == Memory(5, 1.0)
    assert memory_of(None, None, keep_rows=False) is None


@given(
    window=st.none() | st.integers(1, 200),
    half_life=st.none() | st.floats(1.0, 60.0),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=12),
)
def test_batches_do_not_matter(window, half_life, sizes):
    """What is known by counting batches is what the definition says of the number of rows."""
    memory = memory_of(window, half_life, keep_rows=True)
    assume(memory is not None)
    rows, weight, n_newest, n_rows = np.zeros(0, np.int64), np.zeros(0), 0, 0
    for size in sizes:
        fade = memory.fade(n_newest, size)
        own = np.ones(size) if fade.own is None else fade.own
        weight = np.append(fade.before * weight, own)
        rows = np.append(rows, n_rows + np.arange(size))
        n_known = rows.size - size
        gone = memory.count_dropped(rows.size)
        assert memory.is_due(n_known, n_newest, size) == (gone > 0 or fade.before < 1.0)
        rows, weight, n_newest, n_rows = rows[gone:], weight[gone:], fade.n_newest, n_rows + size
        expected, faded = known_rows(n_rows, window, half_life)
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_allclose(weight, faded, **VALUE)
