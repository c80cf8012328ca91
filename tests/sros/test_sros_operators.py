"""SROS algebra against dense numpy, on nested partitions that are not tries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg

import oracle
from profiles import examples
from sros_problems import (
    CASES,
    SHARED,
    close,
    dense,
    dense_symmetric,
    nested_partition,
    random_symmetric,
    symmetric_operators,
)
from tolerances import SCIPY_CG, SCIPY_CG_RESIDUAL
from triegp import sros

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
    monkeypatch.setattr("triegp.sros.products._BLOCK", 300)
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
    assert np.linalg.norm(residual) <= SCIPY_CG_RESIDUAL * np.linalg.norm(b)
    inverse = sros.as_linear_operator(sros.invert(operator).symmetric, identity=1.0)
    np.testing.assert_allclose(inverse @ b, x, atol=SCIPY_CG * np.abs(b).max())


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


@given(symmetric_operators())
def test_inverse_times_matrix_is_identity(operator):
    n = len(operator.partition)
    matrix = np.eye(n) + dense_symmetric(operator)
    inverse = sros.as_linear_operator(sros.invert(operator).symmetric, identity=1.0)
    close(inverse @ matrix, np.eye(n))


@settings(max_examples=examples(40))
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


@settings(max_examples=examples(40))
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


@settings(max_examples=examples(40))
@given(symmetric_operators())
def test_level_traces_against_dense(operator):
    n = len(operator.partition)
    matrix = dense_symmetric(operator) + 1.5 * np.eye(n)
    ones = np.ones((n, 1))
    levels = [dense(p, p, ones, ones) for p in operator.partition.T[:, :, None]]
    expected = [np.trace(level @ matrix) for level in levels]
    close(sros.level_traces(operator, identity=1.5), expected)
    close(sros.level_traces(operator), np.array(expected) - 1.5 * n)


@settings(max_examples=examples(40))
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
