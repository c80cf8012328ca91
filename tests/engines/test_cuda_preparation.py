"""Features that are prepared on the CUDA engine: boxes, percentiles, precision, repeats."""

import contextlib

import numpy as np
import pytest

from on_card import ON_CARD
from simulated_card import strict_card
from tolerances import FITS
from triegp import BinaryTreeGPRegressor
from triegp.calibration.border import learn_slopes
from triegp.devices import on_device, to_host
from triegp.encoding import BitEncoder
from triegp.encoding.columns import plain_columns
from triegp.encoding.held import fit_held, hash_held, held_layout
from triegp.encoding.layout import fit_layout
from triegp.engines.cuda import CudaEngine
from triegp.estimators import mixture_regressor, repeats
from triegp.estimators.held import count_shared_cells, order_distinct, scale_features
from triegp.models.repeats import hash_inputs
from triegp.tree.rows import Rows

CUDA = CudaEngine()
N_ROWS = 20_001 if ON_CARD else 41


@pytest.fixture(scope="module", autouse=True)
def strict():
    with contextlib.nullcontext() if ON_CARD else strict_card():
        yield


def table(seed=0, kind=np.float64):
    """Rows that need many bits in one feature; with a constant one, and one with few values."""
    rng = np.random.default_rng(seed)
    X = np.stack(
        [
            rng.standard_normal(N_ROWS),
            0.5 + 1e-5 * rng.random(N_ROWS),
            np.full(N_ROWS, 3.0),
            rng.integers(0, 3, N_ROWS) - 0.0,
        ],
        axis=1,
    )
    X[0, 1], X[1, 1], X[2, 3] = 0.0, 1.0, -0.0
    X[:, 0] = np.round(X[:, 0], 1)
    return X.astype(kind)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("scaling", ["minmax", "ecdf"])
@pytest.mark.parametrize("precision", ["auto", "paper", [4, 5, 1, 2]])
def test_encoders(kind, scaling, precision):
    X = table(kind=kind)
    expected = BitEncoder(scaling=scaling, precision=precision, margin=1e-3).fit(X)
    found = fit_held(
        CUDA.hold(X), scaling=scaling, precision=precision, outside="clip", margin=1e-3
    )
    for name in ("low_", "high_", "knots_", "precision_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.n_bits_ == expected.n_bits_
    assert found.n_working == expected.n_working
    for name in ("scaling", "outside", "margin"):
        assert getattr(found, name) == getattr(expected, name)
    if isinstance(precision, str) and precision == "auto" and scaling == "minmax":
        assert expected.precision_.max() > 8  # some rows had to be separated


def test_layouts():
    X = table()
    expected, _ = fit_layout(X, plain_columns(4), None)
    found = held_layout(CUDA.hold(X))
    assert found.plain
    assert found.roles == expected.roles
    for name in ("source", "gaps", "fill", "grid", "n_known"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_hashes_and_the_order_of_distinct_rows(kind):
    X = np.unique(table(kind=kind), axis=0)
    np.testing.assert_array_equal(to_host(hash_held(CUDA.hold(X))), hash_inputs(X))
    np.testing.assert_array_equal(
        order_distinct(CUDA.hold(X)), np.argsort(hash_inputs(X.astype(np.float32)))
    )
    X[7] = X[3]
    assert order_distinct(CUDA.hold(X)) is None


def test_cells_that_rows_share():
    X = table()[:, [0, 1, 3]]
    last = len(X) // 4 * 4
    X[0:last:4] = X[1:last:4] + 1e-9
    size, sd = scale_features(CUDA.hold(X))
    np.testing.assert_array_equal(to_host(size), np.abs(X).max(axis=0))
    np.testing.assert_allclose(to_host(sd), (X / np.abs(X).max(axis=0)).std(axis=0))
    scaled = X / np.abs(X).max(axis=0) / to_host(sd)
    for radius in (1e-6, 0.01, 0.3):
        expected = repeats._count_shared_cells(scaled, radius)
        assert count_shared_cells(CUDA.hold(X), size, sd, radius) == expected
    assert repeats._count_shared_cells(scaled, 1e-6) > 0


def test_rows_that_repeat_are_folded_on_the_host():
    rng = np.random.default_rng(0)
    X, y = rng.random((N_ROWS, 3)), rng.standard_normal((N_ROWS, 1))
    held, there = (repeats.fold_rows(Rows(y, X=own), "frequency") for own in (X, CUDA.hold(X)))
    assert on_device(there.rows.features)
    np.testing.assert_array_equal(there.index, held.index)
    np.testing.assert_array_equal(to_host(there.rows.features), held.rows.features)
    np.testing.assert_array_equal(there.rows.y, held.rows.y)
    X[5] = X[4]
    one, two = (repeats.fold_rows(Rows(y, X=own), "frequency") for own in (X, CUDA.hold(X)))
    np.testing.assert_array_equal(two.rows.features, one.rows.features)
    np.testing.assert_array_equal(two.index, one.index)
    twins = np.repeat(rng.random((N_ROWS, 3)), 2, axis=0)
    twins[1::2] += 1e-7
    y = np.repeat(y, 2, axis=0)
    one, two = (repeats.fold_rows(Rows(y, X=own), "frequency") for own in (twins, CUDA.hold(twins)))
    assert one.copies
    np.testing.assert_array_equal(two.index, one.index)


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_beyond_the_box(weighted):
    X = table()
    rng = np.random.default_rng(1)
    weight = rng.random(N_ROWS) if weighted else None
    y, share = rng.standard_normal(N_ROWS), np.array([0.5, 0.2, 0.2, 0.1])
    one, two = (learn_slopes(own, weight, y, share, 0.8) for own in (X, CUDA.hold(X)))
    assert one.any()
    np.testing.assert_allclose(two, one, **FITS)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_fit_with_features_on_the_device(monkeypatch, kind, repeated):
    monkeypatch.setattr(mixture_regressor, "HELD_ROWS", 10)
    monkeypatch.setattr("triegp.calibration.train.FEW_ROWS", 0)
    monkeypatch.setattr("triegp.calibration.folds.TREND_ROWS", 0)
    monkeypatch.setattr("triegp.calibration.stage.LINE_FEWEST", 10)
    monkeypatch.setattr("triegp.calibration.stage.TREES_FEWEST", 10)
    rng, n = np.random.default_rng(1), 2_000 if ON_CARD else 24
    X = rng.random((n, 2)).astype(kind)
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    if repeated:
        X[1::2] = X[::2]
    asked = []
    real = mixture_regressor.fit_encoders

    def note(X, *rest, **options):
        asked.append(on_device(X))
        return real(X, *rest, **options)

    monkeypatch.setattr(mixture_regressor, "fit_encoders", note)
    few = {"n_members": 2, "n_candidates": 2, "max_iter": 1, "random_state": 0}
    cpu, cuda = (BinaryTreeGPRegressor(engine=e, **few).fit(X, y) for e in ("cpu", "cuda"))
    assert asked == [False, not repeated]
    new = rng.random((9, 2)).astype(kind)
    for one, two in zip(
        cpu.predict(new, return_std=True), cuda.predict(new, return_std=True), strict=True
    ):
        assert type(two) is np.ndarray
        np.testing.assert_allclose(two, one, **FITS)
    assert type(cuda.rows_.X) is np.ndarray


def test_features_with_gaps_are_prepared_on_the_host(monkeypatch):
    monkeypatch.setattr(mixture_regressor, "HELD_ROWS", 10)
    rng = np.random.default_rng(1)
    X, y = rng.random((24, 2)), rng.standard_normal(24)
    X[3, 1] = np.nan
    few = {"n_members": 2, "n_candidates": 2, "max_iter": 1, "random_state": 0, "precision": 3}
    cpu, cuda = (BinaryTreeGPRegressor(engine=e, **few).fit(X, y) for e in ("cpu", "cuda"))
    np.testing.assert_allclose(cuda.predict(X), cpu.predict(X), **FITS)


def test_features_come_back_if_the_cpu_trains(monkeypatch):
    """With "auto", memory may suffice for the features but not for the model."""
    monkeypatch.setattr(mixture_regressor, "HELD_ROWS", 10)
    monkeypatch.setattr(mixture_regressor, "choose", lambda *_: CUDA)
    monkeypatch.setattr("triegp.calibration.train.FEW_ROWS", 0)
    monkeypatch.setattr("triegp.calibration.folds.TREND_ROWS", 0)
    monkeypatch.setattr("triegp.calibration.stage.LINE_FEWEST", 10)
    monkeypatch.setattr("triegp.calibration.stage.TREES_FEWEST", 10)
    rng = np.random.default_rng(1)
    X, y = rng.random((24, 2)), rng.standard_normal(24)
    few = {"n_members": 2, "n_candidates": 2, "max_iter": 1, "random_state": 0, "precision": 3}
    model = BinaryTreeGPRegressor(engine="auto", **few).fit(X, y)
    assert model.ensembles_[0].on_host
    expected = BinaryTreeGPRegressor(engine="cpu", **few).fit(X, y).predict(X, return_std=True)
    for one, two in zip(model.predict(X, return_std=True), expected, strict=True):
        np.testing.assert_allclose(one, two, **FITS)
