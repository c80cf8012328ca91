"""SROS algebra against dense numpy, on nested partitions that are not tries, and GP regression."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg

import oracle
from tolerances import DIFFERENCE, GRADIENT, VALUE
from triegp import sros

TOLERANCE = {
    "value": VALUE["rtol"],
    "gradient": GRADIENT["rtol"],
    "difference": DIFFERENCE["rtol"],
}


def close(actual, expected, kind="value"):
    """Compare to a relative tolerance, scaled by the largest entry."""
    expected = np.asarray(expected, dtype=float)
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE[kind] * scale)


def dense(rows, cols, u, v):
    """L(P, P', U, U') by its definition."""
    meet = np.asarray(rows)[:, None, :] == np.asarray(cols)[None, :, :]
    return np.einsum("abi,ai,bi->ab", meet, u, v)


def dense_symmetric(operator):
    p, c, u = operator.partition, operator.coefficient, operator.factor
    return dense(p, p, u, c * u)


def nested_partition(rng, n, q, children):
    """Nested labels (n, q): some columns repeat, all are relabelled at random and shuffled."""
    columns = [rng.integers(0, children, n)]
    while len(columns) < q:
        split = rng.integers(0, children, n) if rng.random() < 0.7 else 0
        columns.append(np.unique(columns[-1] * children + split, return_inverse=True)[1])
    for k, column in enumerate(columns):
        top = rng.choice([n + 1, 10**15])
        names = rng.permutation(n + 1) * (top // (n + 1)) + rng.integers(0, 2)
        columns[k] = names[np.unique(column, return_inverse=True)[1]]
    return np.stack(columns, axis=1)[:, rng.permutation(q)]


def random_symmetric(rng, n, q, children=3, shared=False):
    """Return L(P, C, U) with I + L positive definite, condition number at most 200."""
    p = nested_partition(rng, n, q, children)
    u = rng.normal(size=(n, 1 if shared else q)) + np.zeros(q)
    c = np.empty((n, q))
    for k in range(q):
        cell = np.unique(p[:, k], return_inverse=True)[1]
        size = np.bincount(cell, u[:, k] ** 2) + 1e-3
        c[:, k] = (rng.uniform(-0.9, 19.0, size.size) / (q * size))[cell]
    return sros.SymmetricSros(p, c, u)


CASES = [
    pytest.param(n, q, children, id=f"n{n}-q{q}-children{children}")
    for n, q, children in [(1, 1, 3), (1, 4, 2), (2, 1, 1), (9, 4, 1), (12, 1, 4), (40, 6, 3)]
]
SHARED = pytest.mark.parametrize("shared", [False, True], ids=["general", "shared"])


@st.composite
def symmetric_operators(draw, shared=None):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, q, children = draw(st.integers(1, 25)), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    return random_symmetric(rng, n, q, children, draw(st.booleans()) if shared is None else shared)


# Partitions


@pytest.mark.parametrize(("n", "q", "children"), CASES)
def test_nest_makes_every_cell_a_run(n, q, children):
    rng = np.random.default_rng(n + q)
    p = nested_partition(rng, n, q, children)
    nesting = sros.nest(p)
    assert sorted(nesting.order) == list(range(n))
    assert sorted(nesting.columns) == list(range(q))
    for i, k in enumerate(nesting.columns):
        column = p[nesting.order, k]
        starts, sizes = nesting.cells(i)
        assert len(starts) == len(np.unique(column))
        np.testing.assert_array_equal(np.repeat(column[starts], sizes), column)
    assert (np.diff([len(s) for s in nesting.starts]) > 0).all()


def test_kernel_partitions_are_shared_prefixes():
    rng = np.random.default_rng(0)
    for n, q in [(1, 1), (7, 1), (30, 5), (30, 64), (30, 70), (30, 140)]:
        bits = rng.random((n, q)) < 0.2
        bits[n // 2 :] = bits[: n - n // 2]  # duplicates
        p = sros.kernel_partitions(bits)
        shared = oracle.shared_prefix(bits, bits)
        same = p[:, None, :] == p[None, :, :]
        np.testing.assert_array_equal(same, shared[:, :, None] > np.arange(q))
        order = np.lexsort(bits.T[::-1])
        assert (np.diff(p[order], axis=0) >= 0).all()
        assert (p.min(axis=0) == 0).all()
        np.testing.assert_array_equal(p.max(axis=0) + 1, [len(set(p[:, i])) for i in range(q)])


# Operators


@pytest.mark.parametrize(("n", "m", "q"), [(1, 1, 1), (6, 9, 4), (9, 6, 3), (5, 5, 2), (4, 3, 0)])
@pytest.mark.parametrize("top", [3, 10**17])
def test_general_operator_against_dense(n, m, q, top):
    rng = np.random.default_rng(n * m + q)
    p, p2 = (rng.integers(0, 3, (k, q)) * (top // 3) for k in (n, m))  # not nested, not square
    u, v = rng.normal(size=(n, q)), rng.normal(size=(m, q))
    operator = sros.Sros(p, p2, u, v)
    expected = dense(p, p2, u, v)
    assert operator.shape == (n, m)
    close(sros.to_dense(operator), expected)
    close(sros.to_dense(sros.transpose(operator)), expected.T)
    close(sros.diagonal(operator), np.diagonal(expected))
    x = rng.normal(size=(m, 3))
    close(sros.matvec(operator, x), expected @ x)
    close(sros.matvec(operator, x[:, 0]), expected @ x[:, 0])

    other = sros.Sros(p[:, :1], p2[:, :1], 2.0, -1.0)
    total = expected + dense(p[:, :1], p2[:, :1], 2.0 + 0 * u[:, :1], -1.0 + 0 * v[:, :1])
    close(sros.to_dense(sros.add(operator, other)), total)


def test_many_vectors_in_blocks(monkeypatch):
    rng = np.random.default_rng(3)
    operator = random_symmetric(rng, 20, 3)
    x = rng.normal(size=(20, 11))
    monkeypatch.setattr("triegp.sros.operators._BLOCK", 300)
    close(sros.matvec(operator, x), dense_symmetric(operator) @ x)


@SHARED
@pytest.mark.parametrize(("n", "q", "children"), CASES)
def test_symmetric_operator_against_dense(n, q, children, shared):
    rng = np.random.default_rng(n * q)
    operator = random_symmetric(rng, n, q, children, shared)
    expected = dense_symmetric(operator)
    general = sros.to_sros(operator)
    assert operator.shape == (n, n)
    assert sros.to_sros(general) is general
    assert sros.transpose(operator) is operator
    close(sros.to_dense(operator), expected)
    close(sros.to_dense(general), expected)
    close(sros.diagonal(operator), np.diagonal(expected))
    x = rng.normal(size=n)
    close(sros.matvec(operator, x), expected @ x)

    other = random_symmetric(rng, n, q, children)
    total = sros.add(operator, other)
    assert isinstance(total, sros.SymmetricSros)
    close(sros.to_dense(total), expected + dense_symmetric(other))
    mixed = sros.add(general, other)
    assert isinstance(mixed, sros.Sros)
    close(sros.to_dense(mixed), expected + dense_symmetric(other))


def test_linear_operator():
    rng = np.random.default_rng(5)
    p, p2 = rng.integers(0, 3, (6, 4)), rng.integers(0, 3, (8, 4))
    u, v = rng.normal(size=(6, 4)), rng.normal(size=(8, 4))
    expected = dense(p, p2, u, v)
    operator = sros.as_linear_operator(sros.Sros(p, p2, u, v))
    assert operator.shape == (6, 8)
    assert operator.dtype == np.float64
    close(operator @ np.eye(8), expected)
    close(operator.T @ np.eye(6), expected.T)
    close(operator.matvec(np.arange(8.0)), expected @ np.arange(8.0))
    close(operator.rmatvec(np.arange(6.0)), expected.T @ np.arange(6.0))
    close(operator.rmatmat(np.eye(6)), expected.T)

    square = random_symmetric(rng, 6, 3)
    shifted = sros.as_linear_operator(square, identity=2.5)
    close(shifted @ np.eye(6), dense_symmetric(square) + 2.5 * np.eye(6))
    close(shifted.rmatvec(np.ones(6)), dense_symmetric(square).sum(axis=0) + 2.5)


def test_conjugate_gradients():
    rng = np.random.default_rng(6)
    operator = random_symmetric(rng, 60, 5)
    b = rng.normal(size=60)
    x, status = cg(sros.as_linear_operator(operator, identity=1.0), b, atol=0.0)
    assert status == 0
    residual = b - x - dense_symmetric(operator) @ x
    assert np.linalg.norm(residual) <= 1.1e-5 * np.linalg.norm(b)
    inverse = sros.as_linear_operator(sros.invert(operator).symmetric, identity=1.0)
    np.testing.assert_allclose(inverse @ b, x, atol=1e-4 * np.abs(b).max())


# Inverse, determinant, traces


@SHARED
@pytest.mark.parametrize(("n", "q", "children"), CASES)
def test_inverse_and_log_det(n, q, children, shared):
    operator = random_symmetric(np.random.default_rng(n + 10 * q), n, q, children, shared)
    matrix = np.eye(n) + dense_symmetric(operator)
    inverse = sros.invert(operator)
    np.testing.assert_array_equal(inverse.symmetric.partition, operator.partition)
    close(np.eye(n) + dense_symmetric(inverse.symmetric), np.linalg.inv(matrix))
    sign, log_det = np.linalg.slogdet(matrix)
    assert sign == 1
    close(inverse.log_det, log_det)


@pytest.mark.parametrize(("n", "q", "children"), CASES)
def test_both_inversion_algorithms_agree(n, q, children, monkeypatch):
    operator = random_symmetric(np.random.default_rng(n), n, q, children, shared=True)
    monkeypatch.setattr("triegp.sros.inversion._BLOCK", 2 * n)  # two columns at a time
    fast, slow = sros.invert_shared(operator), sros.invert_general(operator)
    close(fast.symmetric.coefficient, slow.symmetric.coefficient)
    close(fast.symmetric.factor, slow.symmetric.factor)
    close(fast.log_det, slow.log_det)


def test_invert_takes_the_shared_algorithm_when_columns_agree(monkeypatch):
    monkeypatch.setattr("triegp.sros.inversion.invert_general", None)
    operator = random_symmetric(np.random.default_rng(1), 8, 3, shared=True)
    assert sros.invert(operator).log_det == sros.invert_shared(operator).log_det


def test_broadcast_arrays_equal_full_ones():
    rng = np.random.default_rng(2)
    p = nested_partition(rng, 20, 6, 3)
    c, u = rng.exponential(size=6), rng.normal(size=(20, 1))
    full = sros.SymmetricSros(p, c + np.zeros((20, 6)), u + np.zeros(6))
    for brief in (sros.SymmetricSros(p, c, u), sros.SymmetricSros(p, c, full.factor)):
        for invert in (sros.invert_general, sros.invert_shared):
            inverse = invert(brief, sros.nest(p))
            expected = np.linalg.inv(np.eye(20) + dense_symmetric(full)) - np.eye(20)
            close(sros.to_dense(inverse.symmetric), expected)
        close(sros.level_traces(brief), sros.level_traces(full))


def test_no_columns_is_the_zero_operator():
    nothing = sros.SymmetricSros(np.zeros((3, 0), int), 1.0, np.zeros((3, 0)))
    inverse = sros.invert(nothing)
    assert inverse.log_det == 0
    np.testing.assert_array_equal(sros.to_dense(inverse.symmetric), np.zeros((3, 3)))
    assert sros.level_traces(nothing, identity=1.0).shape == (0,)


@settings(max_examples=60, deadline=None)
@given(symmetric_operators())
def test_inverse_times_matrix_is_identity(operator):
    n = len(operator.partition)
    matrix = np.eye(n) + dense_symmetric(operator)
    inverse = sros.as_linear_operator(sros.invert(operator).symmetric, identity=1.0)
    close(inverse @ matrix, np.eye(n))


@settings(max_examples=40, deadline=None)
@given(symmetric_operators(), st.integers(0, 2**32 - 1))
def test_order_of_rows_and_columns_and_names_of_cells_do_not_matter(operator, seed):
    rng = np.random.default_rng(seed)
    n, q = operator.partition.shape
    rows, columns = rng.permutation(n), rng.permutation(q)
    labels = operator.partition.astype(np.int64)
    renamed = 7 * (labels.max() - labels) + 10**12
    moved = sros.SymmetricSros(
        renamed[rows][:, columns],
        operator.coefficient[rows][:, columns],
        operator.factor[rows][:, columns],
    )
    before, after = sros.invert(operator), sros.invert(moved)
    expected = sros.to_dense(before.symmetric)[np.ix_(rows, rows)]
    close(sros.to_dense(after.symmetric), expected)
    close(after.log_det, before.log_det)
    close(sros.level_traces(moved, 0.5), sros.level_traces(operator, 0.5)[columns])


@settings(max_examples=40, deadline=None)
@given(symmetric_operators(shared=True))
def test_a_zero_column_does_not_matter_and_a_column_may_be_split(operator):
    n = len(operator.partition)
    finest = np.arange(n)[:, None]
    zero = sros.SymmetricSros(finest, 0.0, operator.factor[:, :1])
    half = sros.SymmetricSros(operator.partition, operator.coefficient / 2, operator.factor)
    before = sros.invert(operator)
    for same in (sros.add(operator, zero), sros.add(half, half)):
        after = sros.invert(same)
        close(sros.to_dense(after.symmetric), sros.to_dense(before.symmetric))
        close(after.log_det, before.log_det)


@settings(max_examples=40, deadline=None)
@given(symmetric_operators())
def test_level_traces_against_dense(operator):
    n = len(operator.partition)
    matrix = dense_symmetric(operator) + 1.5 * np.eye(n)
    ones = np.ones((n, 1))
    levels = [dense(p, p, ones, ones) for p in operator.partition.T[:, :, None]]
    expected = [np.trace(level @ matrix) for level in levels]
    close(sros.level_traces(operator, identity=1.5), expected)
    close(sros.level_traces(operator), np.array(expected) - 1.5 * n)


@settings(max_examples=40, deadline=None)
@given(symmetric_operators(), st.integers(0, 2**32 - 1))
def test_trace_of_product_against_dense(left, seed):
    rng = np.random.default_rng(seed)
    n, q = left.partition.shape
    coarse = np.zeros((n, 1), int)
    right = sros.SymmetricSros(
        np.hstack([left.partition[:, rng.permutation(q)], coarse, np.arange(n)[:, None]]),
        rng.normal(size=(1, q + 2)),
        rng.normal(size=(n, q + 2)),
    )
    expected = np.trace(dense_symmetric(left) @ dense_symmetric(right))
    close(sros.trace_of_product(left, right), expected)
    close(sros.trace_of_product(right, left), expected)


def test_traces_need_no_positive_coefficients():
    operator = sros.SymmetricSros([[0, 0], [0, 0], [0, 1]], [-3.0, 2.0], [[1, -2], [4, 1], [-9, 1]])
    matrix = dense_symmetric(operator)
    traces = sros.level_traces(operator)
    assert traces.dtype == np.float64
    close(traces, [matrix.sum(), matrix[:2, :2].sum() + matrix[2, 2]])
    close(sros.trace_of_product(operator, operator), np.trace(matrix @ matrix))


# GP regression


def data_set(case, seed=0):
    """Key bits, new key bits, targets, weights of a named case."""
    rng = np.random.default_rng(seed)
    n, m, q, ones = {
        "usual": (30, 12, 9, 0.5),
        "one row": (1, 4, 6, 0.5),
        "one bit": (20, 5, 1, 0.5),
        "no bits": (5, 3, 0, 0.5),
        "all rows equal": (15, 4, 7, 0.0),
        "long chains": (30, 10, 40, 0.06),
        "more than 64 bits": (25, 8, 90, 0.3),
        "more than 128 bits": (25, 8, 150, 0.1),
    }[case]
    bits, new = (rng.random((k, q)) < ones for k in (n, m))
    bits[n - n // 3 :] = bits[: n // 3]  # duplicates
    new[0] = bits[0]
    weights = rng.exponential(size=q) * (rng.random(q) < 0.8)
    return bits, new, rng.normal(size=n), weights


GP_CASES = pytest.mark.parametrize(
    "case",
    [
        "usual",
        "one row",
        "one bit",
        "no bits",
        "all rows equal",
        "long chains",
        "more than 64 bits",
        "more than 128 bits",
    ],
)
NOISE = pytest.mark.parametrize("noise", [0.01, 0.3, 5.0])


@GP_CASES
def test_kernel_against_oracle(case):
    bits, _, _, weights = data_set(case)
    kernel = sros.kernel_sros(bits.astype(np.uint8), weights)
    close(sros.to_dense(kernel), oracle.kernel(bits, bits, weights))


@NOISE
@GP_CASES
def test_regression_against_oracle(case, noise):
    bits, new, y, weights = data_set(case)
    k_train, k_test = (oracle.kernel(b, b, weights) for b in (bits, new))
    k_cross = oracle.kernel(bits, new, weights)
    mean, covariance = oracle.posterior(k_train, noise, k_cross, k_test, y)
    result = sros.gp_regression(bits, y, new, weights, noise)
    close(result.mean, mean)
    close(result.var, np.diagonal(covariance) + noise)
    close(result.nll, oracle.nll(k_train + noise * np.eye(len(y)), y))


@NOISE
@GP_CASES
def test_likelihood_and_gradient_against_oracle(case, noise):
    bits, _, y, weights = data_set(case)
    covariance = oracle.kernel(bits, bits, weights) + noise * np.eye(len(y))
    result = sros.gp_likelihood(bits, y, weights, noise)
    close(result.nll, oracle.nll(covariance, y))
    levels = oracle.level_matrices(bits) if bits.shape[1] else []
    expected = [oracle.nll_gradient(covariance, y, level) for level in levels]
    close(result.weights_gradient, expected, "gradient")
    by_noise = oracle.nll_gradient(covariance, y, np.eye(len(y)))
    close(result.noise_gradient, by_noise, "gradient")


@pytest.mark.parametrize("case", ["usual", "one row", "all rows equal", "long chains"])
def test_gradient_against_central_differences(case):
    bits, _, y, weights = data_set(case, seed=1)
    weights, noise, step = weights + 0.01, 0.4, 1e-5

    def nll(w, s):
        return sros.gp_likelihood(bits, y, w, s, gradient=False).nll

    result = sros.gp_likelihood(bits, y, weights, noise)
    moves = step * np.eye(len(weights))
    by_weights = [(nll(weights + e, noise) - nll(weights - e, noise)) / (2 * step) for e in moves]
    by_noise = (nll(weights, noise + step) - nll(weights, noise - step)) / (2 * step)
    close(result.weights_gradient, by_weights, "difference")
    close(result.noise_gradient, by_noise, "difference")


def test_without_gradient():
    bits, _, y, weights = data_set("usual")
    result = sros.gp_likelihood(bits, y, weights, 0.1, gradient=False)
    assert result.weights_gradient is None
    assert result.noise_gradient is None
    assert result.nll == sros.gp_likelihood(bits, y, weights, 0.1).nll


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_weight_may_move_along_an_unbranched_run(seed):
    rng = np.random.default_rng(seed)
    bits = rng.random((12, 5)) < 0.5
    y, weights = rng.normal(size=12), rng.exponential(size=5)
    doubled, split = np.repeat(bits, 2, axis=1), np.zeros(10)
    share = rng.random(5)
    split[0::2], split[1::2] = share * weights, (1 - share) * weights
    before, after = (
        sros.gp_likelihood(b, y, w, 0.2) for b, w in ((bits, weights), (doubled, split))
    )
    close(after.nll, before.nll)
    close(after.weights_gradient, np.repeat(before.weights_gradient, 2), "gradient")
    close(after.noise_gradient, before.noise_gradient, "gradient")


# Errors


def symmetric(p=((0, 0), (0, 1)), c=1.0, u=1.0):
    return sros.SymmetricSros(np.array(p), c, u)


CROSSING = [[0, 0, 5], [0, 0, 6], [0, 1, 5], [0, 1, 6]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sros.nest(CROSSING), r"cells of columns 1 and 2 cross"),
        (lambda: sros.invert(symmetric(CROSSING)), r"cells of columns 1 and 2 cross"),
        (lambda: sros.level_traces(symmetric(CROSSING)), r"cells of columns 1 and 2 cross"),
        (
            lambda: sros.trace_of_product(
                symmetric([[0], [0], [1], [1]]), symmetric([[0], [1], [1], [0]])
            ),
            r"cells of columns 0 and 1 cross",
        ),
        (
            lambda: symmetric([[0, 30], [0, 10**18], [1, 10**18]], [[1, 1], [1, 2], [1, 3]]),
            r"coefficient must be constant .* got 2.0 and 3.0 in column 1 .* label 10{18}$",
        ),
        (lambda: symmetric([0, 1]), r"partition must be a two-dimensional integer array"),
        (lambda: symmetric([[0.5]]), r"partition must be .* integer array .* float64"),
        (lambda: symmetric(np.zeros((0, 2), int)), r"one row at least, got int64 \(0, 2\)"),
        (lambda: symmetric([[3, -2]]), r"partition must contain labels from 0 .* got -2"),
        (
            lambda: symmetric(np.array([[2**63]], dtype=np.uint64)),
            r"partition must contain labels from 0 .* got 9223372036854775808",
        ),
        (lambda: symmetric(c=[1.0, np.nan]), r"coefficient must be finite, got nan at .*\(1,\)"),
        (lambda: symmetric(c=np.ones((3, 2))), r"coefficient must have shape \(2, 2\) .* \(3, 2\)"),
        (lambda: symmetric(u=["a", "b"]), r"factor must be an array of real numbers, got <U1"),
        (lambda: symmetric(u=1j), r"factor must be an array of real numbers, got complex128"),
        (
            lambda: sros.Sros([[0, 1]], [[0]], 1.0, 1.0),
            r"row_partition and col_partition must have equally many columns, got 2 and 1",
        ),
        (lambda: sros.Sros([[0]], [[-1]], 1.0, 1.0), r"col_partition must contain labels .* -1"),
        (
            lambda: sros.Sros([[0]], [[0]], 1.0, [[1.0, 2.0]]),
            r"col_factor must have shape \(1, 1\)",
        ),
        (lambda: sros.matvec(symmetric(), [1.0]), r"x must have shape \(2,\) or \(2, k\)"),
        (lambda: sros.add(symmetric(), symmetric([[0]])), r"same shape, got \(2, 2\) and \(1, 1\)"),
        (lambda: sros.trace_of_product(symmetric(), symmetric([[0]])), r"same shape"),
        (
            lambda: sros.as_linear_operator(sros.Sros([[0]], [[0], [1]], 1.0, 1.0), identity=1.0),
            r"identity must be 0 for an operator of shape \(1, 2\)",
        ),
        (
            lambda: sros.invert_shared(symmetric(u=[[1.0, 1.0], [1.0, 2.0]])),
            r"columns that agree, but columns 0 and 1 differ",
        ),
        (lambda: sros.kernel_partitions([0, 1]), r"bits must be a two-dimensional array of 0s"),
        (lambda: sros.kernel_partitions([[0.0, 1.0]]), r"bits must be .* got float64 \(1, 2\)"),
        (lambda: sros.kernel_partitions([[0, 2]]), r"bits must contain 0s and 1s only, got 2"),
        (lambda: sros.kernel_partitions([[0, -1]]), r"bits must contain 0s and 1s only, got -1"),
        (lambda: sros.kernel_sros([[0, 1]], [1.0]), r"weights must have 2 entries, got 1"),
        (lambda: sros.kernel_sros([[0, 1]], [1.0, -2.0]), r"weights must not be negative"),
        (
            lambda: sros.gp_regression([[0, 1]], [1.0], [[1]], [0.5, 0.5], 1.0),
            r"new_bits must have 2 columns, got 1",
        ),
        (lambda: sros.gp_likelihood([[0]], [1.0, 2.0], [1.0], 1.0), r"y must have 1 entries"),
        (lambda: sros.gp_likelihood([[0]], [1.0], [1.0], 0.0), r"noise must be positive"),
        (lambda: sros.gp_likelihood([[0]], [1.0], [1.0], 1e-310), r"weights / noise must be fin"),
    ],
)
def test_errors_name_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("invert", [sros.invert_general, sros.invert_shared])
def test_not_positive_definite(invert):
    message = r"must be positive definite.* got 1 \+ z = {} in column {} on the cell of row {}$"
    for c, what in [([-0.25, -1.5], ("-0.5", 1, 0)), ([-2.0, 0.0], ("-1.0", 0, 0))]:
        with pytest.raises(np.linalg.LinAlgError, match=message.format(*what)):
            invert(symmetric([[0, 0]], c))
    with pytest.raises(np.linalg.LinAlgError, match=message.format("0.0", 0, 2)):
        invert(symmetric([[5, 1], [5, 0], [3, 2]], [[0.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]))
    with pytest.raises(np.linalg.LinAlgError, match=message.format("inf", 0, 0)):
        invert(symmetric([[0], [0]], 1e308))
