"""Fitting rows in pieces: cells of all rows, the same for any pieces, close to the rows."""

import pickle

import numpy as np
import pandas as pd
import pytest

import triegp.estimators.pieces as pieces_module
import triegp.estimators.whole as whole
from triegp import BinaryTreeGPRegressor, load
from triegp.estimators.pieces import concat_tables, table_pieces
from triegp.estimators.seeds import draw_seeds, generator_of
from triegp.models.pieces import LocalPieces, Piece

N_ROWS = 4_000


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Cells from 1,000 rows on, learned from a half and held from a quarter of them."""
    for name, value in (("FEWEST_ROWS", 1_000), ("SAMPLE_ROWS", 2_000), ("HELD_ROWS", 1_000)):
        monkeypatch.setattr(pieces_module, name, value)


def problem(n_rows=N_ROWS, seed=0, n_targets=None):
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, 3))
    y = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.2 * rng.standard_normal(n_rows)
    if n_targets:
        y = np.stack([y, X[:, 2] + 0.1 * rng.standard_normal(n_rows)], axis=1)
    return X, y


def quick(**parameters):
    usual = {"n_members": 4, "n_candidates": 2, "max_iter": 20, "random_state": 0, "n_jobs": 1}
    return BinaryTreeGPRegressor(**usual | {"max_cells": 300} | parameters)


def mixed_table(n_rows=N_ROWS):
    X, y = problem(n_rows)
    rng = np.random.default_rng(1)
    town = rng.choice(["ulm", "bonn", "kiel"], n_rows)
    gap = np.where(rng.random(n_rows) < 0.1, np.nan, X[:, 1])
    y = y + np.where(town == "ulm", 1.0, 0.0)
    return pd.DataFrame({"a": X[:, 0], "b": gap, "town": town}), y


def assert_same(one, other, X):
    for left, right in zip(
        one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(left, right)


@pytest.mark.filterwarnings("ignore:.*copies of others")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_targets", [None, 2])
def test_any_pieces_give_the_same_bits(n_targets, weighted):
    X, y = problem(n_targets=n_targets)
    weight = np.random.default_rng(3).integers(0, 3, N_ROWS).astype(float) if weighted else None
    one = quick().fit(X, y, sample_weight=weight)
    new, _ = problem(200, seed=5)
    for piece_rows in (137, 1_000, 3_999):
        pieces = table_pieces(X, y, weight, 2, piece_rows)
        assert_same(quick(n_jobs=2).fit_pieces(pieces), one, new)


def test_tables_in_pieces_give_the_same_bits():
    X, y = mixed_table()
    one = quick().fit(X, y)
    new, _ = mixed_table(100)
    other = quick().fit_pieces(table_pieces(X, y, None, 1, 611))
    assert_same(one, other, new)
    np.testing.assert_array_equal(one.feature_importances_, other.feature_importances_)
    assert list(one.feature_names_in_) == ["a", "b", "town"]


def test_cells_predict_nearly_as_well_as_rows():
    X, y = problem(8_000)
    new, target = problem(2_000, seed=9)
    cells = quick(n_members=8).fit(X, y)
    rows = quick(n_members=8, max_cells=10**6).fit(X, y)
    assert max(m.posteriors[0].n_rows for m in cells.ensembles_[0].members) <= 300
    assert rows.ensembles_[0].members[0].posteriors[0].n_rows == 8_000
    score = [-np.mean(model.log_density(new, target)) for model in (cells, rows)]
    assert score[0] < score[1] + 0.03
    low, high = cells.predict_interval(new, 0.9).T
    assert 0.87 < np.mean((low < target) & (target < high)) < 0.93


def test_a_model_with_cells_says_what_it_holds():
    X, y = problem()
    model = quick().fit(X, y)
    assert "4,000 rows" in repr(model)
    assert model.rows_ is None
    assert model.ensembles_[0].n_rows + model.ensembles_[0].n_summed == N_ROWS
    assert 700 < model.ensembles_[0].n_rows < 1_300
    assert model.ensembles_[0].n_observations == N_ROWS
    assert np.isfinite(model.loo_score_)
    assert np.isfinite(model.log_marginal_likelihood_)
    with pytest.raises(ValueError, match=r"fitted to 4,000 rows and holds"):
        model.loo_predict()
    for method in (model.loo_distribution, model.loo_targets, model.loo_weights):
        with pytest.raises(ValueError, match=r"leave-one-out of every row is not"):
            method()
    with pytest.raises(ValueError, match="refresh needs the training rows"):
        model.refresh()


def test_the_box_is_that_of_all_rows():
    X, y = problem()
    X[7] = [-5.0, 0.5, 9.0]
    model = quick().fit(X, y)
    np.testing.assert_array_equal(model.encoders_[0].low_, X.min(axis=0))
    np.testing.assert_array_equal(model.encoders_[1].high_, X.max(axis=0))
    assert not model.outside_box(X).any()


def test_rows_can_be_added_to_cells():
    X, y = problem(6_000)
    model = quick(refit=False).fit(X[:4_000], y[:4_000])
    box = (X[:4_000].min(axis=0) <= X).all(axis=1) & (X[:4_000].max(axis=0) >= X).all(axis=1)
    inner = box & (np.arange(6_000) >= 4_000)
    whole_set = inner | (np.arange(6_000) < 4_000)
    before = model.predict(X[:50])
    model.partial_fit(X[inner], y[inner])
    assert model.ensembles_[0].n_observations == whole_set.sum()
    assert not np.array_equal(before, model.predict(X[:50]))
    new, target = problem(1_000, seed=9)
    assert np.mean(np.square(model.predict(new) - target)) < 0.06


def test_files_and_pickles_hold_cells(tmp_path):
    X, y = problem(n_targets=2)
    model = quick(multi_target="shared").fit(X, y)
    model.save(tmp_path / "model.tgp")
    new, _ = problem(100, seed=5)
    for copy in (load(tmp_path / "model.tgp"), pickle.loads(pickle.dumps(model))):
        assert_same(model, copy, new)
        assert copy.loo_score_ == model.loo_score_
        assert repr(copy)[:200] == repr(model)[:200]
        copy.partial_fit(X[:30], y[:30])
        assert copy.ensembles_[0].n_observations == N_ROWS + 30


def test_repeated_inputs_are_leaves_if_they_are_few():
    X, y = problem()
    X = np.round(X * 5) / 5  # 216 inputs
    model = quick().fit(X, y)
    assert model.ensembles_[0].held is None
    assert model.ensembles_[0].n_observations == N_ROWS
    assert_same(model, quick(max_cells=10**6).fit(X, y), X[:100])


def test_repeated_inputs_are_left_out_together():
    X, y = problem(1_500)
    rng = np.random.default_rng(2)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3) + 0.3 * rng.standard_normal(4_500)
    mixed = rng.permutation(4_500)
    model = quick().fit(X[mixed], y[mixed])
    held = model.ensembles_[0].held
    np.testing.assert_array_equal(held.weight, 3.0)
    new, target = problem(1_000, seed=9)
    target = target + 0.3 * rng.standard_normal(1_000)
    low, high = model.predict_interval(new, 0.9).T
    assert 0.86 < np.mean((low < target) & (target < high)) < 0.94


def test_precisions_divide_the_noise():
    X, y = problem()
    weight = np.random.default_rng(4).uniform(0.5, 2.0, N_ROWS)
    model = quick(weights="precision").fit(X, y, sample_weight=weight)
    assert model.ensembles_[0].n_observations == N_ROWS
    again = quick(weights="precision").fit(X, y, sample_weight=8.0 * weight)
    np.testing.assert_allclose(model.predict(X[:50]), again.predict(X[:50]), rtol=1e-6)


def test_values_that_the_sample_has_not_are_left_out_with_a_warning():
    X, y = mixed_table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces_module, "SAMPLE_ROWS", 1_300)
        for seed in range(9):  # find one whose sample has no "jena"
            salt = int(generator_of(draw_seeds(seed, 1)[0]).integers(2**63))
            X.loc[X.index[17], "town"] = "jena"
            if whole.input_places(Piece(0, X, y, None), quick(), salt)[17] > 1_300 / N_ROWS:
                break
        with pytest.warns(UserWarning, match="1 of 4,000 rows are left out"):
            model = quick(random_state=seed).fit(X, y)
    assert model.ensembles_[0].n_observations == N_ROWS - 1
    assert np.isfinite(model.predict(X[15:20])).all()


def test_errors_name_the_place():
    X, y = problem()
    bad = X.copy()
    bad[3_500, 1] = np.inf
    with pytest.raises(ValueError, match=r"column 1 at row 500.*rows are counted from row 3,000"):
        quick().fit_pieces(table_pieces(bad, y, None, 1, 1_000))
    with pytest.raises(ValueError, match="same number of rows, got 4000 and 3999"):
        quick().fit(X, y[:-1])
    with pytest.raises(ValueError, match="max_cells must be an integer, 2 or more, got 1"):
        quick(max_cells=1).fit(X, y)
    with pytest.raises(ValueError, match="y must be finite"):
        quick().fit(X, np.where(np.arange(N_ROWS) == 5, np.nan, y))


def test_targets_outside_the_domain_of_a_transform_are_refused():
    X, y = problem()
    y = np.exp(y)
    model = quick(target_transform="log").fit(X, y)
    assert (model.predict_quantiles(X[:50], 0.01) > 0).all()
    y[::2] = -1.0  # half of them: some are in the sample, and all in the survey
    with pytest.raises(ValueError, match="log"):
        quick(target_transform="log").fit(X, y)


def test_added_rows_without_weight_change_nothing():
    X, y = problem()
    model = quick(refit=False).fit(X, y)
    before = model.predict(X[:50], return_std=True)
    model.partial_fit(X[:20] * 0.999 + 5e-4, y[:20], sample_weight=np.zeros(20))
    for one, other in zip(model.predict(X[:50], return_std=True), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(model.loo_score_)


def test_known_noise_of_added_rows_is_refused():
    X, y = problem()
    model = quick().fit(X, y)
    with pytest.raises(ValueError, match="known_noise is not possible here"):
        model.partial_fit(X[:5], y[:5], known_noise=np.ones(5))


def test_masked_values_and_lost_weights_are_refused():
    X, y = problem()
    mask = np.arange(N_ROWS) == 3
    with pytest.raises(ValueError, match="y must not have masked"):
        quick().fit(X, np.ma.masked_array(y, mask))
    with pytest.raises(ValueError, match="differ by more than a factor of 1e"):
        quick().fit(X, y, sample_weight=np.where(mask, 1e-18, 1.0))


@pytest.mark.filterwarnings("ignore:.*copies of others")
@pytest.mark.parametrize("weights", ["frequency", "precision"])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_repeats_are_calibrated_as_without_cells(weights, noise):
    X, y = problem(1_500)
    rng = np.random.default_rng(2)
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2) + noise * rng.standard_normal(3_000)
    weight = rng.uniform(0.5, 1.5, 3_000) if weights == "precision" else None
    cells = quick(weights=weights, max_cells=1_200).fit(X, y, sample_weight=weight)
    rows = quick(weights=weights, max_cells=10**6).fit(X, y, sample_weight=weight)
    assert cells.ensembles_[0].held is not None
    assert cells.loo_score_ == pytest.approx(rows.loo_score_, abs=0.06)
    new, _ = problem(500, seed=9)
    ratio = cells.predict(new, return_std=True)[1] / rows.predict(new, return_std=True)[1]
    assert 0.93 < np.median(ratio) < 1.07


def test_orders_whose_last_bit_is_read_hold_all_rows():
    X, y = problem(1_200)
    assert quick(nugget="bit").fit(X, y).ensembles_[0].held is None


def test_plain_mixtures_and_known_noise_hold_all_rows():
    X, y = problem(1_200)
    for parameters in ({"mixture": "softmax"}, {"mixture": "best"}):
        assert quick(**parameters).fit(X, y).ensembles_[0].held is None
    model = quick().fit(X, y, known_noise=np.full(1_200, 0.01))
    assert model.ensembles_[0].held is None


def test_stacking_of_cells():
    X, y = problem()
    model = quick(mixture="stacking").fit(X, y)
    assert model.ensembles_[0].held is not None
    assert np.mean(np.square(model.predict(X[:500]) - y[:500])) < 0.06


def test_joint_answers_of_cells():
    X, y = problem()
    model = quick().fit(X, y)
    mean, cov = model.predict(X[:20], return_cov=True)
    np.testing.assert_allclose(mean, model.predict(X[:20]), atol=1e-9)
    assert np.linalg.eigvalsh(cov).min() > 0
    draws = model.sample_y(X[:20], 200)
    assert np.abs(draws.mean(axis=1) - mean).max() < 0.5


def test_local_pieces_raise_what_a_piece_raises():
    def read(k):
        raise OSError(f"piece {k} cannot be read")

    pieces = LocalPieces([0, 10], 20, read, concat_tables, 2)
    with pytest.raises(OSError, match="cannot be read"):
        pieces.collect(lambda piece: piece.first)
