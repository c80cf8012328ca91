"""Orders learned from growing parts of the rows."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from triegp import BinaryTreeGPRegressor, BitEncoder
from triegp.mixture import learning, parts
from triegp.mixture.parts import Parts, part_sizes
from triegp.mixture.settings import members_for, settings_of
from triegp.mixture.train import train_ensemble
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows

FEW = {"n_members": 3, "n_candidates": 2, "random_state": 0}


def smooth_rows(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] + noise * rng.standard_normal(n)


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of at least 50 rows; returns the sizes and grids of each training."""
    seen = []
    real = learning._train_orders

    def note(starts, problems, *given):
        seen.append((next(iter(problems.values())).codes.n_rows, [grid for grid, _ in starts]))
        return real(starts, problems, *given)

    monkeypatch.setattr(parts, "LEAST_ROWS", 50)
    monkeypatch.setattr(learning, "_train_orders", note)
    return seen


@pytest.mark.parametrize(
    ("n_rows", "sizes"),
    [
        (1, [1]),
        (39_999, [39_999]),
        (40_000, [10_000, 40_000]),
        (1_000_000, [15_625, 62_500, 250_000, 1_000_000]),
    ],
)
def test_each_part_is_a_quarter_of_the_next(n_rows, sizes):
    assert part_sizes(n_rows) == sizes


def test_parts_are_nested_and_keep_the_order_of_the_rows():
    y = np.arange(100.0)[:, None]
    found = Parts(Rows(y, X=2 * y), [6, 25, 100], np.random.default_rng(0))
    few, more, every = (found.rows(k) for k in range(3))
    assert set(few.y[:, 0]) < set(more.y[:, 0]) < set(every.y[:, 0])
    for some in (few, more, every):
        assert (np.diff(some.y[:, 0]) > 0).all()
        np.testing.assert_array_equal(some.features, 2 * some.y)
    np.testing.assert_array_equal(every.y, y)


def test_orders_that_gain_nothing_are_not_trained_on_more_rows(small_parts, monkeypatch):
    X, y = smooth_rows(900)
    model = BinaryTreeGPRegressor(**FEW, mixture="stacking").fit(X, y)
    assert [size for size, _ in small_parts] == [56, 225, 900]
    assert model.ensembles_[0].n_rows == 900
    small_parts.clear()
    monkeypatch.setattr(learning, "LEAST_GAIN", np.inf)
    BinaryTreeGPRegressor(**FEW, mixture="stacking").fit(X, y)
    assert [size for size, _ in small_parts] == [56]


def test_members_go_on_independently_of_each_other(small_parts):
    """A member's order does not depend on how many others there are."""
    X, y = smooth_rows(900)
    few = {**FEW, "mixture": "softmax"}  # keeps all members
    orders = []
    for n_members in (3, 2):
        model = BinaryTreeGPRegressor(**{**few, "n_members": n_members})
        model._settings = lambda own=model._settings: replace(own(), by_parts=True)
        orders.append([member.order for member in model.fit(X, y).ensembles_[0].members])
    assert [len(part) for part in orders] == [3, 2]
    assert len(small_parts) == 6
    for one, two in zip(*orders, strict=False):
        np.testing.assert_array_equal(one.phi, two.phi)


def test_some_members_go_on_and_others_do_not(small_parts, monkeypatch):
    X, y = smooth_rows(900)
    monkeypatch.setattr(learning, "LEAST_GAIN", 0.0)
    BinaryTreeGPRegressor(**FEW, mixture="stacking").fit(X, y)
    assert [grids for _, grids in small_parts] == [[0, 1, 2]] * 3
    noted = learning._train_orders

    def gain_little(starts, *given):
        found = noted(starts, *given)
        return [
            replace(one, gain=1.0 if grid == 1 else -1.0)
            for (grid, _), one in zip(starts, found, strict=True)
        ]

    small_parts.clear()
    monkeypatch.setattr(learning, "_train_orders", gain_little)
    BinaryTreeGPRegressor(**FEW, mixture="stacking").fit(X, y)
    assert [grids for _, grids in small_parts] == [[0, 1, 2], [1], [1]]


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_stop_between_parts_is_told(small_parts, monkeypatch, interrupt):
    X, y = smooth_rows(900)
    noted = learning._train_orders

    def stop_after(starts, problems, settings, run, batches):
        found = noted(starts, problems, settings, run, batches)
        if interrupt:
            run.watch.interrupt()
        else:
            run.watch.halt()
        return [replace(one, converged=True) for one in found]

    monkeypatch.setattr(learning, "_train_orders", stop_after)
    model = BinaryTreeGPRegressor(**FEW, mixture="stacking", on_interrupt="keep")
    with pytest.warns(ConvergenceWarning, match="larger parts of the rows for 3 members"):
        model.fit(X, y)
    assert model.stopped_early_
    assert len(small_parts) == 1
    assert np.isfinite(model.predict(X)).all()


def test_progress_names_the_parts(small_parts):
    rows = Rows(smooth_rows(900)[1][:, None], X=smooth_rows(900)[0])
    told = []
    run = Run(np.random.default_rng(0), 1, Stopwatch(), lambda *stage: told.append(stage))
    settings = settings_of("default", {"n_members": 2, "n_candidates": 1, "max_iter": 5})
    encoder = BitEncoder(precision=6).fit(rows.features)
    train_ensemble([encoder], rows, settings, run)
    fits = {stage for stage, _, _ in told if stage.startswith("fits")}
    assert fits == {"fits on 56 rows", "fits on 225 rows", "fits on 900 rows"}


@pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning")
@pytest.mark.parametrize("extra", ["weights", "known noise", "targets"])
def test_parts_take_all_kinds_of_rows(small_parts, extra):
    X, y = smooth_rows(900)
    given = {}
    if extra == "weights":
        given["sample_weight"] = np.random.default_rng(0).integers(0, 3, 900)
    if extra == "known noise":
        given["known_noise"] = np.full(900, 1e-3)
    if extra == "targets":
        y = np.stack([y, -y], axis=1)
    model = BinaryTreeGPRegressor(**FEW, multi_target="shared").fit(X, y, **given)
    assert len(small_parts) > 1
    assert model.score(X, y) > 0.8


def test_parts_are_as_good_as_all_rows(small_parts, monkeypatch):
    X, y = smooth_rows(2_000)
    new, truth = smooth_rows(500, seed=1)
    by_parts = BinaryTreeGPRegressor(random_state=0, n_members=8).fit(X, y)
    assert len(small_parts) > 1
    monkeypatch.setattr(parts, "LEAST_ROWS", 10_000)
    whole = BinaryTreeGPRegressor(random_state=0, n_members=8).fit(X, y)
    scores = [model.log_density(new, truth).mean() for model in (by_parts, whole)]
    assert scores[0] > scores[1] - 0.05


def test_threads_make_no_difference(small_parts):
    X, y = smooth_rows(900)
    one, two = (BinaryTreeGPRegressor(**FEW, n_jobs=k).fit(X, y) for k in (1, 2))
    for a, b in zip(one.predict(X, True), two.predict(X, True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_of_softmax_compare_all_rows():
    assert settings_of("default", {}).by_parts
    assert not settings_of("default", {"mixture": "best"}).by_parts
    assert not settings_of("paper-bte", {}).by_parts


@pytest.mark.parametrize(
    ("n_rows", "members"), [(0, 24), (2_000_000, 24), (3_000_000, 16), (6_000_000, 8), (10**8, 8)]
)
def test_very_many_rows_have_fewer_members(n_rows, members):
    assert members_for(n_rows, 24) == members
    assert members_for(n_rows, 3) == 3


def test_fewer_members_only_by_default(monkeypatch):
    monkeypatch.setattr("triegp.mixture.settings.MANY_ROWS", 100)
    monkeypatch.setattr("triegp.mixture.settings.LEAST_MEMBERS", 2)
    X, y = smooth_rows(1_200)
    seen = []
    real = learning.learn_orders

    def note(grids, *given):
        seen.append(len(grids))
        return real(grids, *given)

    monkeypatch.setattr("triegp.mixture.train.learn_orders", note)
    quick = {"n_candidates": 1, "max_iter": 3, "random_state": 0}
    BinaryTreeGPRegressor(**quick).fit(X, y)
    assert seen[0] == 2
    seen.clear()
    BinaryTreeGPRegressor(**quick, n_members=5).fit(X, y)
    assert seen[0] == 5


def test_messages_of_very_many_rows_are_float32(monkeypatch):
    X, y = smooth_rows(1_200)
    quick = {"n_candidates": 1, "max_iter": 10, "random_state": 0, "n_members": 3}
    exact = BinaryTreeGPRegressor(**quick).fit(X, y)
    monkeypatch.setattr("triegp.mixture.train.MANY_ROWS", 1_000)
    short = BinaryTreeGPRegressor(**quick).fit(X, y)
    part = short.ensembles_[0].members[0].posteriors[0]
    assert part.inside[0].dtype == part.messages.outside[0].dtype == np.float32
    for one, two in zip(exact.predict(X, True), short.predict(X, True), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    grown = short.partial_fit(X[:5] + 1e-3, y[:5])
    assert grown.ensembles_[0].members[0].posteriors[0].inside[0].dtype == np.float32


def test_members_share_their_targets_and_nobody_else_does():
    X, y = smooth_rows(300)
    rows = Rows(y[:, None], weight=np.ones(300), X=X)
    run = Run(np.random.default_rng(0), 1, Stopwatch())
    settings = settings_of("default", {"n_members": 2, "n_candidates": 1, "mixture": "softmax"})
    trained = train_ensemble([BitEncoder(precision=6).fit(X)], rows, settings, run)
    one, two = (member.posteriors[0].rows for member in trained.fitted.members)
    assert one.y is two.y
    assert one.weight is two.weight
    assert not np.shares_memory(one.y, rows.y)
    assert not np.shares_memory(one.weight, rows.weight)


def test_short_messages_keep_their_range(monkeypatch):
    X, y = smooth_rows(600)
    monkeypatch.setattr("triegp.mixture.train.MANY_ROWS", 500)
    model = BinaryTreeGPRegressor(**FEW, mixture="stacking", max_iter=5).fit(X, y)
    assert model.ensembles_[0].members[0].posteriors[0].inside[0].dtype == np.float32
    with pytest.raises(ValueError, match="y must be at most 1e"):
        model.partial_fit(X[:1], [1e40])
    assert np.isfinite(model.predict(X)).all()
    for given in ({"noise": 1e-31}, {"preset": "paper-bte", "n_candidates": 4, "max_iter": 3}):
        exact = BinaryTreeGPRegressor(**{**FEW, "max_iter": 3, **given}).fit(X, y)
        assert exact.ensembles_[0].members[0].posteriors[0].inside[0].dtype == np.float64
