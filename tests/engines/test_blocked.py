"""Blocks of rows with shared neighbours: searches, sweeps and means against plain numpy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tolerances
from triegp.engines import blocked, cells, matern, nearest


def make_blocks(n=6_000, d=4, size=25):
    """Rows in blocks of close rows, in random order."""
    U, rng = np.random.default_rng(0).normal(size=(n, d)), np.random.default_rng(1)
    clustered = cells.make_cells(U, n // size, 1)
    parts = [part for part in np.split(clustered.rows, clustered.starts[1:-1]) if part.size]
    parts = [parts[b] for b in rng.permutation(len(parts))]
    return U[np.concatenate(parts)], np.append(0, np.cumsum([part.size for part in parts]))


def squares(U, centres):
    return ((U[:, :, None] - centres) ** 2).sum(axis=1)


def test_centres_are_means():
    U, starts = make_blocks(n=100)
    centres = nearest.find_centres(U, starts)
    wanted = [part.mean(axis=0) for part in np.split(U, starts[1:-1])]
    assert_allclose(centres.T, wanted, **tolerances.VALUE)
    later = nearest.find_centres(U[starts[1] :], starts[1:] - starts[1])
    assert_array_equal(later, centres[:, 1:])


@pytest.mark.parametrize("d", [1, 3, 9])
@pytest.mark.parametrize("n_centres", [1, 2, 40, 2_000])
def test_the_nearest_centre_is_found_however_they_are_grouped(d, n_centres):
    rng = np.random.default_rng(d)
    centres, U = rng.normal(size=(d, n_centres)), rng.normal(size=(300, d))
    U[:20] = 10.0 * U[:20]
    wanted = squares(U, centres).argmin(axis=1)
    for n_grouped in {n_centres, 1, n_centres // 2} - {0}:
        groups = nearest.group_centres(np.ascontiguousarray(centres[:, :n_grouped]), 1)
        assert_array_equal(np.sort(groups.blocks), np.arange(n_grouped))
        assert_array_equal(nearest.nearest_centres(centres, groups, U, 1), wanted)
        assert_array_equal(nearest.nearest_centres(centres, groups, U, 2), wanted)
        alone = [nearest.nearest_centres(centres, groups, U[i : i + 1], 1)[0] for i in range(30)]
        assert_array_equal(alone, wanted[:30])


def test_of_equal_centres_the_first_is_the_nearest():
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 3, (2, 500)).astype(float)
    groups = nearest.group_centres(np.ascontiguousarray(centres[:, :400]), 1)
    U = rng.integers(0, 3, (50, 2)).astype(float)
    wanted = squares(U, centres).argmin(axis=1)
    assert_array_equal(nearest.nearest_centres(centres, groups, U, 1), wanted)


def test_infinite_distances():
    centres = np.array([[0.0, 1.0, 2.0]])
    groups = nearest.group_centres(centres, 1)
    assert nearest.nearest_centres(centres, groups, np.array([[1e200]]), 1)[0] == 0


def test_places_near_a_centre():
    U, starts = make_blocks()
    centres, blocks = nearest.find_centres(U, starts), np.arange(starts.size - 1)
    found = nearest.nearest_places(U, starts, centres, blocks, blocks, 60, 1)
    two = nearest.nearest_places(U, starts, centres, blocks, blocks, 60, 2)
    some = nearest.nearest_places(U, starts, centres, blocks[7:9], blocks[7:9], 60, 1)
    assert_array_equal(found, two)
    assert_array_equal(found[7:9], some)
    assert (found < starts[:-1, None]).all()
    square, good = squares(U, centres).T, 0
    for b in blocks:
        places = nearest.used_places(found[b])
        assert np.unique(places).size == places.size == min(60, starts[b])
        assert (np.diff(square[b, places]) >= 0).all()
        good += np.isin(np.argsort(square[b, : starts[b]])[:60], places).sum()
    assert good > 0.9 * (found >= 0).sum()  # rows of near blocks alone are compared


def test_few_rows_are_compared_one_by_one():
    U, starts = make_blocks(n=200)
    centres = nearest.find_centres(U, starts)
    blocks, limits = np.array([3, 0]), np.array([starts.size - 1, 5])
    found = nearest.nearest_places(U, starts, centres, blocks, limits, 150, 1)
    square = squares(U, centres)
    for row, b, limit in zip(found, blocks, limits, strict=True):
        wanted = np.argsort(square[: starts[limit], b], kind="stable")[:150]
        assert_array_equal(row[: wanted.size], wanted)
        assert (row[wanted.size :] == -1).all()
    none = nearest.nearest_places(U, starts, centres, blocks, limits, 0, 1)
    assert none.shape == (2, 0)


def make_sweep(n_columns):
    """Stored numbers of three blocks, and B and the roots as dense matrices."""
    rng, starts = np.random.default_rng(2), np.array([0, 3, 4, 9])
    neighbours = np.array([[-1, -1], [2, -1], [1, 3]], np.int32)
    weights, roots = np.zeros((9, 2), np.float32), np.zeros((9, 5), np.float32)
    B, dense = np.eye(9), np.zeros((9, 9))
    for b in range(3):
        rows, near = slice(starts[b], starts[b + 1]), neighbours[b][neighbours[b] >= 0]
        size = starts[b + 1] - starts[b]
        weights[rows, : near.size] = rng.normal(size=(size, near.size))
        roots[rows, :size] = np.tril(rng.normal(size=(size, size))) + 3.0 * np.eye(size)
        B[rows, near], dense[rows, rows] = -weights[rows, : near.size], roots[rows, :size]
    x = rng.normal(size=(9, n_columns))
    return (starts, neighbours, weights, roots), np.linalg.solve(B, dense), x


@pytest.mark.parametrize("n_columns", [1, 3])
def test_sweeps(n_columns):
    stored, S, x = make_sweep(n_columns)
    for sweep, matrix in (
        (blocked.colour, S),
        (blocked.halve, S.T),
        (blocked.whiten, np.linalg.inv(S)),
        (blocked.unwhiten, np.linalg.inv(S).T),
    ):
        z = x.copy()
        sweep(*stored, z)
        assert_allclose(z, matrix @ x, **tolerances.VALUE)
        for c in range(n_columns):
            alone = x[:, [c]].copy()
            sweep(*stored, alone)
            assert_array_equal(alone[:, 0], z[:, c])


def test_means_are_sums_over_kernel_values():
    rng = np.random.default_rng(3)
    U, inducing, queries = (rng.normal(size=(n, 3)) for n in (30, 11, 40))
    members = np.full((4, 9), -1, np.int32)
    for b, size in enumerate((9, 0, 3, 8)):
        members[b, :size] = rng.permutation(30)[:size]
    by_inducing, by_member = rng.normal(size=(4, 2, 11)), rng.normal(size=(4, 2, 9))
    cell = rng.integers(0, 4, 40).astype(np.int32)
    wanted = np.empty((40, 2))
    for i, b in enumerate(cell):
        near = nearest.used_places(members[b])
        query = queries[i : i + 1]
        wanted[i] = matern.kernel_cross(1, 2.0, query, inducing, 1)[0] @ by_inducing[b].T
        wanted[i] += (
            matern.kernel_cross(1, 2.0, query, U[near], 1)[0] @ by_member[b, :, : near.size].T
        )
    lines = np.ascontiguousarray(inducing.T)
    given = (1, 2.0, lines, U, members, by_inducing, by_member, cell)
    out, other = np.empty((40, 2)), np.empty((40, 2))
    blocked.fill_means(*given, np.argsort(cell, kind="stable"), queries, out)
    assert_allclose(out, wanted, **tolerances.VALUE)
    for i in range(40):
        blocked.fill_means(*given, np.array([i]), queries, other)
    assert_array_equal(other, out)


@pytest.mark.parametrize("m", [0, 1, 2, 7, 32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections_do_not_depend_on_the_batch(m, dtype):
    rng = np.random.default_rng(2)
    U, inducing = rng.normal(size=(70, 3)), rng.normal(size=(m, 3))
    K = matern.kernel_cross(1, 2.0, inducing, inducing, 1)
    root = np.linalg.cholesky(K + 1e-10 * np.eye(m))
    phi, alone = np.empty((70, m), dtype), np.empty((70, m), dtype)
    blocked.project(1, 2.0, inducing, root, U, phi, 2)
    across = matern.kernel_cross(1, 2.0, U, inducing, 1)
    close = tolerances.VALUE if dtype == np.float64 else tolerances.ROUNDED_WEIGHTS
    assert_allclose(phi @ root.T, across, **close)
    for part in (slice(0, 1), slice(33, 36), slice(5, 60)):
        blocked.project(1, 2.0, inducing, root, U[part], alone[part], 1)
        assert_array_equal(alone[part], phi[part])


def test_rows_are_gathered():
    rng = np.random.default_rng(4)
    neighbours = np.array([[3, 0, -1], [-1, -1, -1], [2, 2, 1]], np.int32)
    weights, x, out = rng.normal(size=(3, 3)), rng.normal(size=(5, 2)), np.empty((3, 2))
    blocked.gather_rows(neighbours, weights, x, out)
    wanted = np.where((neighbours >= 0)[:, :, None], weights[:, :, None] * x[neighbours], 0.0)
    assert_allclose(out, wanted.sum(axis=1), **tolerances.VALUE)


@pytest.mark.parametrize("code", range(4))
def test_the_lower_triangle_of_a_kernel_matrix(code):
    U = np.random.default_rng(5).normal(size=(37, 3))
    lower = matern.kernel_triangle(code, 2.0, U)
    assert lower.flags.c_contiguous
    wanted = np.tril(matern.kernel_cross(code, 2.0, U, U, 1))
    assert_allclose(lower, wanted, **tolerances.VALUE)
    assert matern.kernel_triangle(code, 2.0, U[:0]).shape == (0, 0)
