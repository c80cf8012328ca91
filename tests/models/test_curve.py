"""Nll per row during training: what is recorded, how long it is, and that files hold it."""

import pickle

import numpy as np
import pytest

import triegp
from model_files import edited, parts_of, refused, write_parts
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.mixture.parts import LEAST_ROWS
from triegp.models.curve import MOST_POINTS, join_curves, join_lines, make_curve, make_line

rng = np.random.default_rng(5)
X = rng.random((1_200, 3))
Y = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(1_200)
Y2 = np.stack([Y, X[:, 2] + 0.3 * rng.standard_normal(1_200)], axis=1)


def mixture(**options):
    settings = {"n_members": 3, "n_candidates": 3, "max_iter": 6, "random_state": 0, "n_jobs": 1}
    return BinaryTreeGPRegressor(**(settings | options))


def forest(**options):
    settings = {"n_trees": 4, "max_iter": 6, "random_state": 0, "n_jobs": 1}
    return TrieGPRegressor(**(settings | options))


def check(curve):
    """What every curve promises."""
    lines = [*zip(curve.step, curve.nll, strict=True), *(curve.held_out or ())]
    assert len(curve.step) == len(curve.names) == len(set(curve.names))
    assert curve.held_out is None or len(curve.held_out) == len(curve.names)
    for step, nll in lines:
        assert step.dtype == np.int64
        assert nll.dtype == np.float64
        assert step.shape == nll.shape
        assert 0 < step.size <= MOST_POINTS
        assert step[0] == 0
        assert (np.diff(step) >= 0).all()
        assert np.isfinite(nll).all()


def same(one, other):
    for mine, theirs in zip(one.step + one.nll, other.step + other.nll, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(one.held_out or (), other.held_out or (), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one.names == other.names
    assert (one.held_out is None) == (other.held_out is None)


def test_a_mixture_has_a_line_for_every_member():
    model = mixture().fit(X, Y)
    curve, members = model.training_curve_, model.ensembles_[0].members
    check(curve)
    assert curve.held_out is None
    assert curve.names == tuple(f"member {k}" for k in range(len(members)))
    for step, nll, member in zip(curve.step, curve.nll, members, strict=True):
        np.testing.assert_array_equal(step, np.arange(member.trained.n_iter + 1))
        assert nll[-1] == pytest.approx(member.trained.nll_per_row, abs=1e-12)
        assert nll[-1] < nll[0]


@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
def test_the_values_are_those_of_the_steps(optimizer):
    """A training that ends after k steps has the nll that a longer one recorded at step k."""
    longer = mixture(optimizer=optimizer, n_members=1, n_candidates=1, mixture="best").fit(X, Y)
    for k in (1, 3, 5):
        shorter = mixture(
            optimizer=optimizer, n_members=1, n_candidates=1, mixture="best", max_iter=k
        ).fit(X, Y)
        (member,) = shorter.ensembles_[0].members
        assert longer.training_curve_.nll[0][k] == member.trained.nll_per_row


def test_several_targets():
    check(own := mixture().fit(X, Y2).training_curve_)
    assert own.names[0] == "target 0, member 0"
    assert own.names[-1].startswith("target 1, member ")
    check(shared := mixture(multi_target="shared").fit(X, Y2).training_curve_)
    assert shared.names[0] == "member 0"
    check(both := forest().fit(X, Y2).training_curve_)
    assert both.names == ("target 0", "target 1")
    check(together := forest(multi_target="shared").fit(X, Y2).training_curve_)
    assert together.names == ("all targets",)


def test_a_sum_of_trees_records_its_steps_and_its_held_out_rows():
    model = forest().fit(X, Y)
    curve = model.training_curve_
    check(curve)
    assert curve.names == ("target 0",)
    assert 3 <= model.n_iter_ <= 6  # steps end soon after two looks without gain
    np.testing.assert_array_equal(curve.step[0], np.arange(model.n_iter_))
    ((steps, nll),) = curve.held_out
    assert steps[-1] == model.n_iter_
    np.testing.assert_array_equal(nll, model.forests_[0].nll_per_row)


def test_no_rows_are_held_out_of_few():
    model = forest().fit(X[:300], Y[:300])
    check(model.training_curve_)
    assert model.training_curve_.held_out is None


@pytest.mark.parametrize("model", [mixture(), forest()], ids=["mixture", "forest"])
def test_files_and_pickles_hold_the_curve(model, tmp_path):
    model.fit(X, Y)
    model.save(tmp_path / "m")
    same(triegp.load(tmp_path / "m").training_curve_, model.training_curve_)
    same(pickle.loads(pickle.dumps(model)).training_curve_, model.training_curve_)


def test_edited_curves_are_refused(tmp_path):
    parts = parts_of(forest().fit(X, Y))
    falls, late = np.array([0, 2, 1, 3, 4, 5]), np.array([0, 1, 2, 3, 4, 1 << 60])
    extreme = np.array([0, 2**63 - 1, -(2**63), 3, 4, 5])
    edits = {
        "curve.step.0": [-np.ones(6, np.int64), falls, late, extreme, np.arange(6.0)],
        "curve.nll.0": [np.full(6, np.nan), np.full(6, np.inf), np.zeros(5), np.zeros(6, int)],
        "curve.held_out.0.0": [np.zeros(300, np.int64), np.zeros(0, np.int64)],
        "curve.held_out.0.1": [np.zeros((7, 1))],
        "curve.held_out": [[], [[True]]],
        "curve.names": [[], ["a", "b"]],
    }
    for place, values in edits.items():
        for value in values:
            refused(write_parts(tmp_path / "m", *edited(parts, place, value)), "curve")


def test_adding_rows_keeps_the_curve_and_a_fit_replaces_it():
    model = mixture().fit(X[:300], Y[:300])
    before = model.training_curve_
    model.partial_fit(X[300:310], Y[300:310])
    model.predict(X[:1])
    assert model.training_curve_ is before
    model.fit(X[:400], Y[:400])
    assert model.training_curve_ is not before


def test_growing_parts_meet_where_the_larger_one_begins():
    n = 5 * LEAST_ROWS  # a fifth is held out
    features = rng.random((n, 2))
    y = np.sin(20 * features[:, 0]) * np.sin(15 * features[:, 1])
    curve = mixture(max_iter=4, n_members=2, n_candidates=2).fit(features, y).training_curve_
    check(curve)
    for step in curve.step:
        assert np.bincount(step).max() == 2  # the value on both parts
        assert step.size == step[-1] + 2


def test_long_lines_are_thinned_and_infinite_values_left_out():
    line = make_line((step, float(-step)) for step in range(1_001))
    assert line.step.size == MOST_POINTS
    assert (line.step[0], line.step[-1]) == (0, 1_000)
    np.testing.assert_array_equal(line.nll, -line.step)
    assert np.diff(line.step).max() <= 6
    holes = make_line([(0, np.inf), (1, 2.0), (2, np.nan), (3, 1.0)])
    np.testing.assert_array_equal(holes.step, [1, 3])
    joined = join_lines(line, line, 1_000)
    assert joined.step.size == MOST_POINTS
    assert (joined.step[0], joined.step[-1]) == (0, 2_000)


def test_curves_of_which_one_is_missing():
    one = make_curve([make_line([(0, 1.0)])], ["member 0"])
    assert join_curves([one]) is one
    assert join_curves([one, None]) is None
    assert join_curves([one, one]).names == ("target 0, member 0", "target 1, member 0")
