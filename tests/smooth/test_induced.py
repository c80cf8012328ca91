"""The smooth part in linear time against its definition in dense matrices."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tolerances
from triegp.smooth import (
    KERNELS,
    Kernel,
    blocks,
    columns,
    cross,
    draw,
    extend,
    make_induced,
    mean,
    multiply,
    own,
    prepare,
    read,
)
from triegp.smooth.induced import find_cells

ROUNDED = tolerances.ROUNDED_WEIGHTS


def dense_kernel(kernel, X, Z):
    U, V = X / kernel.lengthscale, Z / kernel.lengthscale
    r = np.sqrt(((U[:, None] - V) ** 2).sum(axis=2))
    rho = {
        "matern12": np.exp(-r),
        "matern32": (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "matern52": (1 + np.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-np.sqrt(5) * r),
        "rbf": np.exp(-0.5 * r**2),
    }
    return kernel.scale * rho[kernel.name]


class Dense:
    """The approximation by its definition: Phi, B and D as dense matrices, by row."""

    def __init__(self, induced, Z=None):
        kernel, X = induced.kernel, induced.X
        self.jitter = 1e-10 * kernel.scale
        self.k_uu = dense_kernel(kernel, X[induced.inducing], X[induced.inducing])
        self.k_uu += self.jitter * np.eye(len(self.k_uu))
        self.induced, self.U = induced, X / kernel.lengthscale
        self.phi = self.project(X)
        self.R = dense_kernel(kernel, X, X) - self.phi @ self.phi.T
        self.blocks = np.split(induced.order, induced.starts[1:-1])
        B, D, earlier = np.eye(len(X)), np.zeros((len(X), len(X))), np.empty(0, int)
        for rows in self.blocks:
            near = self.nearest(rows, earlier)
            weights = self.regress(near, self.R[near][:, rows]).T
            B[np.ix_(rows, near)] = -weights
            left = self.R[np.ix_(rows, rows)] - weights @ self.R[near][:, rows]
            D[np.ix_(rows, rows)] = left + self.jitter * np.eye(rows.size)
            earlier = np.append(earlier, rows)
        self.rest = np.linalg.solve(B, np.linalg.solve(B, D).T)
        self.K = self.phi @ self.phi.T + self.rest
        if Z is None:
            return
        self.new_phi = self.project(Z)
        R_new = dense_kernel(kernel, X, Z) - self.phi @ self.new_phi.T
        self.E, self.d = np.zeros((len(X), len(Z))), np.empty(len(Z))
        centres = np.array([self.U[rows].mean(axis=0) for rows in self.blocks])
        for i, z in enumerate(Z / kernel.lengthscale):
            cell = ((centres - z) ** 2).sum(axis=1).argmin()
            near = self.nearest(self.blocks[cell], induced.order)
            self.E[near, i] = self.regress(near, R_new[near, i])
            self.d[i] = kernel.scale - self.new_phi[i] @ self.new_phi[i]
            self.d[i] -= self.E[near, i] @ R_new[near, i]
        self.d = np.maximum(self.d, self.jitter)
        self.cross = self.phi @ self.new_phi.T + self.rest @ self.E
        self.own = self.new_phi @ self.new_phi.T + self.E.T @ self.rest @ self.E
        self.own += self.d * (Z[:, None] == Z).all(axis=2)

    def project(self, Z):
        induced = self.induced
        k_zu = dense_kernel(induced.kernel, Z, induced.X[induced.inducing])
        return np.linalg.solve(np.linalg.cholesky(self.k_uu), k_zu.T).T

    def nearest(self, rows, among):
        """Rows nearest to the centre of a block."""
        square = ((self.U[among] - self.U[rows].mean(axis=0)) ** 2).sum(axis=1)
        return among[np.argsort(square, kind="stable")[: self.induced.n_neighbours]]

    def regress(self, near, right):
        return np.linalg.solve(self.R[np.ix_(near, near)] + self.jitter * np.eye(near.size), right)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of at most eight rows, so that few rows have many of them."""
    monkeypatch.setattr("triegp.smooth.division.BLOCK_ROWS", 5)
    monkeypatch.setattr("triegp.smooth.division.MOST_ROWS", 8)


def make(n=60, d=3, name="matern32", n_inducing=12, n_neighbours=6, **changes):
    rng = np.random.default_rng(1)
    kernel = Kernel(name, np.linspace(1.0, 2.0, d), 2.5)
    X = changes.pop("X", rng.normal(size=(n, d)))
    return make_induced(kernel, X, n_inducing, n_neighbours, seed=3, **changes)


def new_rows(induced, m=9):
    """New rows, of which two are equal and one is a training row."""
    Z = np.random.default_rng(2).normal(size=(m, induced.X.shape[1]))
    Z[3], Z[5] = Z[1], induced.X[0]
    return Z


def with_copies():
    """Rows of which some are equal, also to inducing rows."""
    X = np.random.default_rng(5).normal(size=(40, 2))
    X[20:30] = X[:10]
    X[30:33] = X[0]
    return X


CASES = {
    **{name: {"name": name} for name in KERNELS},
    "one feature": {"d": 1},
    "constant feature": {"X": np.random.default_rng(4).normal(size=(50, 3)) * [1.0, 0.0, 1.0]},
    "one neighbour": {"n_neighbours": 1},
    "no neighbours": {"n_neighbours": 0},
    "no inducing rows": {"n_inducing": 0},
    "one inducing row": {"n_inducing": 1},
    "one row": {"n": 1},
    "fewer rows than a block": {"n": 3},
    "more neighbours than rows": {"n": 20, "n_neighbours": 30},
    "all rows equal": {"X": np.ones((20, 2)), "d": 2, "n_inducing": 1},
    "rows that come last": {"last": np.arange(5, 25)},
    "more inducing rows than rows": {"n": 20, "n_inducing": 30},
    "copies": {"X": with_copies(), "d": 2},
    "odd numbers": {"n_inducing": 13, "n_neighbours": 9},
}


@pytest.fixture(params=CASES, name="induced")
def cases(request):
    return make(**CASES[request.param])


def test_products_columns_and_blocks(induced):
    dense, n = Dense(induced), induced.n_rows
    x = np.random.default_rng(0).normal(size=(n, 3))
    assert_allclose(multiply(induced, x), dense.K @ x, **ROUNDED)
    assert_allclose(multiply(induced, x[:, 0]), dense.K @ x[:, 0], **ROUNDED)
    rows = np.array([n - 1, 0])
    assert_allclose(columns(induced, rows), dense.K[:, rows], **ROUNDED)
    members = np.array([[0, n // 2, -1], [n - 1, -1, -1]], dtype=np.int32)
    K = dense_kernel(induced.kernel, induced.X, induced.X)
    wanted = np.where(
        (members[:, :, None] >= 0) & (members[:, None] >= 0),
        K[members[:, :, None], members[:, None]],
        0.0,
    )
    assert_allclose(blocks(induced, members), wanted, **tolerances.VALUE)


def test_new_rows(induced):
    Z = new_rows(induced)
    dense, points = Dense(induced, Z), read(induced, Z)
    alpha = np.random.default_rng(0).normal(size=(induced.n_rows, 2))
    assert_allclose(cross(induced, points), dense.cross, **ROUNDED)
    assert_allclose(own(induced, points), dense.own, **ROUNDED)
    wanted = dense.cross.T @ alpha
    assert_allclose(mean(points, prepare(induced, alpha)), wanted, **ROUNDED)
    assert_allclose(mean(points, prepare(induced, alpha[:, 0])), wanted[:, 0], **ROUNDED)


def test_no_new_rows():
    induced = make()
    points = read(induced, np.empty((0, 3)))
    assert cross(induced, points).shape == (60, 0)
    assert own(induced, points).shape == (0, 0)
    assert mean(points, prepare(induced, np.ones((60, 2)))).shape == (0, 2)
    assert extend(induced, np.empty((0, 3))).n_rows == 60


def test_new_rows_do_not_depend_on_each_other():
    induced = make(n=300, n_inducing=30)
    Z = new_rows(induced, 50)
    alpha = np.random.default_rng(0).normal(size=(300, 2))
    together, prepared = read(induced, Z), prepare(induced, alpha)
    means = mean(together, prepared)
    for i in (0, 7, 49):
        alone = read(induced, Z[i : i + 1])
        assert alone.cell[0] == together.cell[i]
        for name in ("phi", "neighbours", "weights", "variances"):
            values = getattr(together.regressed, name)[i]
            assert_array_equal(getattr(alone.regressed, name)[0], values)
        assert_array_equal(mean(alone, prepared)[0], means[i])


@pytest.mark.parametrize("sizes", [(10, 60), (60, 0), (200, 6), (0, 60)])
@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_exact_with_all_rows(name, sizes):
    induced = make(name=name, n_inducing=sizes[0], n_neighbours=sizes[1])
    X, Z = induced.X, np.random.default_rng(2).normal(size=(5, 3))
    kernel, points = induced.kernel, read(induced, Z)
    assert_allclose(multiply(induced, np.eye(60)), dense_kernel(kernel, X, X), **ROUNDED)
    assert_allclose(cross(induced, points), dense_kernel(kernel, X, Z), **ROUNDED)
    # Given all training rows, new rows are independent.
    K, k = dense_kernel(kernel, X, X), dense_kernel(kernel, X, Z)
    wanted = k.T @ np.linalg.solve(K, k)
    wanted[np.diag_indices(5)] = kernel.scale
    assert_allclose(own(induced, points), wanted, **ROUNDED)


@pytest.mark.parametrize("n_neighbours", [6, 40])
def test_equal_rows_have_equal_values(n_neighbours):
    X = with_copies()
    induced = make(X=X, d=2, n_inducing=8, n_neighbours=n_neighbours)
    K = multiply(induced, np.eye(40))
    for i, j in ((0, 30), (0, 20), (31, 32), (9, 29)):
        assert_allclose(K[i], K[j], **ROUNDED)
        assert_allclose(K[i, j], K[i, i], **ROUNDED)
    if n_neighbours == 40:
        assert_allclose(K, dense_kernel(induced.kernel, X, X), **ROUNDED)
    points = read(induced, np.vstack([X[:3], X[:3]]))
    assert_allclose(cross(induced, points), K[:, [0, 1, 2, 0, 1, 2]], **ROUNDED)
    among = own(induced, points)
    assert_array_equal(among[:3, :3], among[3:, :3])


def test_rows_that_come_last_are_in_small_blocks(monkeypatch):
    monkeypatch.setattr("triegp.smooth.division.LAST_ROWS", 2)
    last = np.array([3, 50, 51, 7, 20, 21])
    induced = make(last=last)
    assert_array_equal(np.sort(induced.order[-6:]), np.sort(last))
    assert not np.isin(last, induced.inducing).any()
    assert 54 in induced.starts  # no block holds rows of both kinds
    assert induced.starts.size - 1 >= np.searchsorted(induced.starts, 54) + 3


def test_blocks_hold_close_rows_once_and_neighbours_before_them():
    induced = make(n=2_000)
    sizes = np.diff(induced.starts)
    assert_array_equal(np.sort(induced.order), np.arange(2_000))
    assert sizes.min() > 0
    assert sizes.max() <= 8
    assert (induced.neighbours < induced.starts[:-1, None]).all()
    within = np.repeat(induced.centres.T, sizes, axis=0) - induced.scaled
    assert np.square(within).sum() < 0.2 * np.square(induced.scaled).sum()


def test_a_row_has_its_value_as_a_new_row_if_it_is_among_its_neighbours():
    induced = make(n_neighbours=20)
    x = np.random.default_rng(4).normal(size=(60, 2))
    points = read(induced, induced.X)
    among = (points.regressed.neighbours == np.arange(60)[:, None]).any(axis=1)
    assert among.mean() > 0.9
    values = mean(points, prepare(induced, x))
    assert_allclose(values[among], multiply(induced, x)[among], **ROUNDED)
    at_rows, new = draw(induced, 3, np.random.default_rng(5), points)
    assert np.abs(new - at_rows)[among].max() < 1e-3


def test_projections_in_float32_leave_the_kernel(monkeypatch):
    monkeypatch.setattr("triegp.smooth.induced.DOUBLE_FLOATS", 60 * 12 - 1)
    induced = make(n_neighbours=60)
    assert induced.phi.dtype == np.float32
    K = dense_kernel(induced.kernel, induced.X, induced.X)
    assert_allclose(multiply(induced, np.eye(60)), K, **ROUNDED)
    grown = extend(induced, np.zeros((1, 3)))
    assert grown.phi.dtype == np.float32
    assert make(n=59).phi.dtype == np.float64


def test_features_may_be_permuted():
    one = make()
    kernel = replace(one.kernel, lengthscale=one.kernel.lengthscale[[2, 0, 1]])
    two = make_induced(kernel, one.X[:, [2, 0, 1]], 12, 6, seed=3)
    assert_array_equal(one.factor.neighbours, two.factor.neighbours)
    assert_allclose(multiply(one, np.eye(60)), multiply(two, np.eye(60)), **ROUNDED)


def test_draws_have_the_covariance():
    induced = make(n=15, n_inducing=4, n_neighbours=3)
    Z = new_rows(induced, 6)
    points, n_samples = read(induced, Z), 40_000
    both = np.vstack(draw(induced, n_samples, np.random.default_rng(6), points))
    across = cross(induced, points)
    wanted = np.block([[multiply(induced, np.eye(15)), across], [across.T, own(induced, points)]])
    error = np.abs(both @ both.T / n_samples - wanted)
    assert error.max() < 5.0 * np.sqrt(2.0 / n_samples) * induced.kernel.scale
    assert_allclose(both[15 + 3], both[15 + 1], rtol=tolerances.ROUNDING)  # equal new rows
    alone, none = draw(induced, 3, np.random.default_rng(6))
    assert alone.shape == (15, 3)
    assert none.shape == (0, 3)


@pytest.mark.parametrize("n_neighbours", [6, 0])
@pytest.mark.parametrize("made", [False, True])
def test_extending_is_making_the_same_blocks_at_once(made, n_neighbours):
    X = np.random.default_rng(8).normal(size=(90, 3))
    X[[50, 60, 61, 70, 72, 85]] = X[[2, 2, 3, 2, 71, 84]]  # copies of old rows and of new ones
    part = make(X=X[:60], n_neighbours=n_neighbours)
    if made:
        assert part.factor.roots.shape[0] == 60
    grown = part
    for first, last in ((60, 61), (61, 62), (62, 62), (62, 80), (80, 90)):
        grown = extend(grown, X[first:last])
        assert_array_equal(np.sort(grown.order[first:last]), np.arange(first, last))
    whole = pickle.loads(pickle.dumps(grown))
    assert ("factor" in grown.__dict__) == made
    assert "factor" not in whole.__dict__
    assert part.n_rows == 60
    Z = new_rows(whole)
    for name in ("neighbours", "weights", "roots"):
        assert_array_equal(getattr(grown.factor, name), getattr(whole.factor, name))
    assert_array_equal(grown.phi, whole.phi)
    assert_array_equal(read(grown, Z).cell, read(whole, Z).cell)
    assert_array_equal(cross(grown, read(grown, Z)), cross(whole, read(whole, Z)))


def test_one_record_is_extended_twice():
    induced = make()
    x = np.ones(60)
    before = multiply(induced, x)
    first = extend(induced, np.zeros((2, 3)))
    values = multiply(first, np.ones(62))
    second = extend(first, np.full((1, 3), 0.5))
    third = extend(first, np.full((1, 3), -0.5))
    assert_array_equal(second.X[62], [0.5, 0.5, 0.5])
    assert_array_equal(third.X[62], [-0.5, -0.5, -0.5])
    assert (second.phi[62] != third.phi[62]).any()
    assert_array_equal(multiply(first, np.ones(62)), values)
    assert_array_equal(multiply(induced, x), before)


def test_a_stream_groups_its_centres_again():
    rng = np.random.default_rng(9)
    induced = make(X=rng.normal(size=(300, 3)), n_inducing=5, n_neighbours=3)
    assert induced.factor.log_det < 0
    grown, sizes = induced, set()
    for _ in range(30):
        grown = extend(grown, rng.normal(size=(3, 3)))
        sizes.add(grown.groups.blocks.size)
        Z = rng.normal(size=(20, 3)) / grown.kernel.lengthscale
        square = ((grown.centres - Z[:, :, None]) ** 2).sum(axis=1)
        assert_array_equal(find_cells(grown, Z), square.argmin(axis=1))
    assert 1 < len(sizes) < 10


def test_results_do_not_depend_on_threads():
    X = np.random.default_rng(1).normal(size=(3000, 3))
    one, two = make(X=X), make(X=X, n_threads=2)
    Z, x = X[:50] + 0.1, np.ones(3000)
    assert_array_equal(one.order, two.order)
    assert_array_equal(one.phi, two.phi)
    assert_array_equal(one.factor.weights, two.factor.weights)
    assert_array_equal(one.factor.roots, two.factor.roots)
    means, draws = (
        [f(induced) for induced in (one, two)]
        for f in (
            lambda induced: mean(read(induced, Z), prepare(induced, x)),
            lambda induced: draw(induced, 2, np.random.default_rng(0), read(induced, Z))[1],
        )
    )
    assert_array_equal(*means)
    assert_array_equal(*draws)


def test_pickled_without_what_follows():
    induced = make()
    wanted = multiply(induced, np.ones(60))
    data = pickle.dumps(induced)
    assert len(data) < 10_000
    assert_array_equal(multiply(pickle.loads(data), np.ones(60)), wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.ones((0, 3))}, "at least one row"),
        ({"X": np.ones((4, 2))}, "one lengthscale per feature, got 3 for 2"),
        ({"n_inducing": -1}, "n_inducing must be at least 0, got -1"),
    ],
)
def test_arguments_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
