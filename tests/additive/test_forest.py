"""Linear algebra of trees and a smooth part, against dense algebra."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import oracle
from forest_problems import SMOOTH, make_problem
from tolerances import CHAINED, DENSE, LANCZOS, REGRESSED, SOLVED_DIRECTLY, SUMMED, VALUE
from triegp.additive import (
    Forest,
    NotConverged,
    forest_evidence,
    forest_level_products,
    forest_product,
    make_preconditioner,
    precondition_neighbours,
    preconditioner,
    solve_forest,
)
from triegp.additive.conditioning import process_of
from triegp.additive.forest import build_forest
from triegp.encoding import pack_codes
from triegp.engines import CpuEngine
from triegp.smooth import make_induced
from triegp.smooth.linear import Linear
from triegp.tree import BitOrder, build_trie, level_products, likelihood, product, random_bits
from triegp.tree.rows import Rows
from triegp.tree.trie import link_rows, trie_keys


def make_forest(n=60, n_trees=5, d=2, p=4, seed=0, n_threads=0):
    """Trees on codes of their own, and the dense kernel of their sum."""
    rng = np.random.default_rng(seed)
    tries, levels, dense = [], [], np.zeros((n, n))
    for _ in range(n_trees):
        codes = pack_codes(rng.integers(0, 2**p, (n, d)), precision=p)
        weights = rng.dirichlet(np.ones(d * p))
        order = BitOrder.from_weights(
            random_bits(codes.precision, rng),
            weights,
            scale=float(rng.uniform(0.5, 2)),
            nugget="bit",
        )
        tries.append(build_trie(codes, order, engine=CpuEngine(n_threads)))
        levels.append(order.levels)
        bits = oracle.unpack_bits(codes, order.key_bits)
        dense += oracle.kernel(bits, bits, order.weights * order.scale)
    return Forest.of(tries, levels), dense


@pytest.mark.parametrize("shape", [(60,), (60, 1), (60, 3), (60, 0)])
@pytest.mark.parametrize("n_trees", [1, 5, 11])
def test_a_product_is_the_dense_one(shape, n_trees):
    forest, dense = make_forest(n_trees=n_trees)
    x = np.random.default_rng(1).standard_normal(shape)
    np.testing.assert_allclose(forest_product(forest, x), dense @ x, **VALUE)


@pytest.mark.parametrize("width", [1, 3, 8, 13])
def test_level_products_are_those_of_the_trees(width):
    forest, _ = make_forest(n_trees=3)
    x, z = np.random.default_rng(1).standard_normal((2, 60, width))
    for trie, found in zip(forest.tries, forest_level_products(forest, x, z), strict=True):
        np.testing.assert_allclose(found, level_products(trie, x, z).sum(axis=1), **VALUE)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("shape", [(60,), (60, 3)])
def test_a_product_with_a_smooth_part_is_the_dense_one(smooth, shape):
    problem = make_problem(n=60, smooth=smooth)
    x = np.random.default_rng(1).standard_normal(shape)
    found = forest_product(problem.forest(), x)
    np.testing.assert_allclose(found, problem.kernel() @ x, **REGRESSED)
    assert problem.forest().prior_variance == pytest.approx(problem.kernel()[0, 0], rel=DENSE)


def test_products_over_several_shards_are_the_same():
    forest, dense = make_forest()
    cut = [
        link_rows(t.bits, t.row_idx, t.links.lcp, t.engine, cuts=[0, 13, 40]) for t in forest.tries
    ]
    x, z = np.random.default_rng(1).standard_normal((2, 60, 9))
    parts = Forest.of(cut, forest.levels)
    np.testing.assert_allclose(forest_product(parts, x), dense @ x, **VALUE)
    pairs = zip(
        forest_level_products(parts, x, z), forest_level_products(forest, x, z), strict=True
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, **VALUE)


def test_one_tree_is_that_tree():
    forest, _ = make_forest(n_trees=1)
    x = np.random.default_rng(1).standard_normal((60, 2))
    alone = product(forest.tries[0], forest.levels[0], x)
    np.testing.assert_array_equal(forest_product(forest, x), alone)


def test_the_result_does_not_depend_on_the_threads():
    x = np.random.default_rng(1).standard_normal((60, 2))
    one, two = (forest_product(make_forest(n_threads=k, n_trees=9)[0], x) for k in (1, 3))
    np.testing.assert_array_equal(one, two)


def test_the_order_of_the_trees_changes_nothing():
    forest, _ = make_forest()
    other = Forest.of(forest.tries[::-1], forest.levels[::-1])
    x = np.random.default_rng(1).standard_normal(60)
    np.testing.assert_allclose(forest_product(forest, x), forest_product(other, x), **VALUE)
    a, b = (solve_forest(f, 0.1, x, tolerance=1e-12).x for f in (forest, other))
    np.testing.assert_allclose(a, b, rtol=CHAINED)


@pytest.mark.parametrize("rank", [1, 10, 60, 500])
@pytest.mark.parametrize("block_rows", [7, 64])
def test_the_preconditioner_is_what_it_says(rank, block_rows, monkeypatch):
    monkeypatch.setattr(preconditioner, "BLOCK_ROWS", block_rows)
    forest, dense = make_forest()
    noise = np.linspace(0.1, 0.5, 60)
    found = make_preconditioner(forest, noise, rank, np.random.default_rng(0))
    matrix = np.linalg.inv(found.apply(np.eye(60)))
    assert found.log_det == pytest.approx(np.linalg.slogdet(matrix)[1], rel=SUMMED)
    # Within blocks it is the kernel; elsewhere what goes through the chosen rows.
    full = dense + np.diag(noise)
    chosen = np.sort(np.random.default_rng(0).choice(60, size=min(rank, 60), replace=False))
    expected = dense[:, chosen] @ np.linalg.pinv(dense[np.ix_(chosen, chosen)]) @ dense[chosen]
    for first in range(0, 60, block_rows):
        block = found.rows[first : first + block_rows]
        expected[np.ix_(block, block)] = full[np.ix_(block, block)]
    np.testing.assert_allclose(matrix, expected, atol=SOLVED_DIRECTLY)
    draws = found.draw(20_000, np.random.default_rng(1))
    error = np.abs(draws @ draws.T / 20_000 - matrix) / np.diag(matrix).max()
    assert error.max() < 0.06


def test_a_preconditioner_from_neighbours_knows_the_scale_of_the_smooth_part():
    problem = make_problem(n=60, smooth="inducing")
    plain = Linear(make_induced(problem.parameters.smooth, problem.inputs, 10, 6))
    larger = problem.parameters.smooth.rescaled(3.0)
    fresh = Linear(make_induced(larger, problem.inputs, 10, 6))
    found = []
    for smooth in (plain.rescaled(3.0), fresh):
        forest = build_forest(problem.codes, problem.orders, CpuEngine(), smooth)
        noise, rng = np.full(60, 0.1), np.random.default_rng(0)
        keys = [trie_keys(*pair) for pair in zip(forest.tries, problem.codes, strict=True)]
        rows = Rows(np.zeros(60), noise=noise)
        process = process_of(forest, keys, problem.inputs, rows)
        made = precondition_neighbours(forest, process, smooth.induced, noise, 8, rng)
        found.append((made.apply(np.eye(60)), made.log_det))
    np.testing.assert_allclose(found[0][0], found[1][0], **REGRESSED)
    assert found[0][1] == pytest.approx(found[1][1], rel=SUMMED)


@pytest.mark.parametrize("smooth", SMOOTH)
@pytest.mark.parametrize("rank", [None, 20, 60])
@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-4])
def test_a_solve_is_the_dense_one(rank, noise, smooth):
    forest, dense = make_forest()
    if smooth:
        problem = make_problem(n=60, smooth=smooth)
        forest, dense = problem.forest(), problem.kernel()
    b = np.random.default_rng(2).standard_normal((60, 3))
    b[:, 1] = 0.0
    made = (
        None if rank is None else make_preconditioner(forest, noise, rank, np.random.default_rng(0))
    )
    found = solve_forest(forest, noise, b, preconditioner=made, tolerance=1e-11)
    expected = np.linalg.solve(dense + noise * np.eye(60), b)
    # A smooth part by inducing rows has a jitter of 1e-10.
    bar = SOLVED_DIRECTLY * np.abs(expected).max()
    np.testing.assert_allclose(found.x, expected, rtol=SOLVED_DIRECTLY, atol=bar)
    assert found.converged
    assert (found.residual <= 1e-11).all()
    assert not found.x[:, 1].any()


def test_a_preconditioner_saves_steps_and_a_warm_start_all_of_them():
    forest, _ = make_forest(n=300, n_trees=8, p=8)
    b = np.random.default_rng(2).standard_normal(300)
    plain = solve_forest(forest, 1e-2, b)
    nystrom = make_preconditioner(forest, 1e-2, 150, np.random.default_rng(0))
    fast = solve_forest(forest, 1e-2, b, preconditioner=nystrom)
    assert fast.n_steps < 0.7 * plain.n_steps
    again = solve_forest(forest, 1e-2, b, start=fast.x)
    assert again.n_steps == 0
    np.testing.assert_array_equal(again.x, fast.x)


def test_each_right_hand_side_has_its_own_tolerance():
    """Each column is the one that it is alone, at its own tolerance."""
    forest, _ = make_forest(n=300, n_trees=8, p=8)
    b = np.repeat(np.random.default_rng(2).standard_normal((300, 1)), 3, axis=1)
    wanted = np.array([1e-2, 1e-9, 1e-5])
    found = solve_forest(forest, 1e-2, b, tolerance=wanted)
    alone = [solve_forest(forest, 1e-2, b[:, 0], tolerance=float(limit)) for limit in wanted]
    assert found.converged
    assert (found.residual <= wanted).all()
    for column, one in enumerate(alone):
        np.testing.assert_allclose(found.x[:, column], one.x, rtol=SUMMED, atol=SUMMED)
    assert found.n_steps == alone[1].n_steps > alone[2].n_steps > alone[0].n_steps
    again = solve_forest(forest, 1e-2, b, tolerance=wanted, start=found.x)
    assert again.n_steps == 0


def test_a_column_short_of_its_own_tolerance_is_told():
    forest, _ = make_forest()
    b = np.random.default_rng(2).standard_normal((60, 2))
    with pytest.warns(NotConverged, match="above the tolerance of 1e-10"):
        found = solve_forest(forest, 1e-2, b, tolerance=np.array([0.5, 1e-10]), max_steps=4)
    assert not found.converged
    assert found.residual[0] <= 0.5
    assert found.residual[1] > 1e-10


def test_duplicated_trees_and_rows():
    forest, dense = make_forest(n=40, p=1)  # 40 rows on four cells
    twice = Forest.of(forest.tries * 2, forest.levels * 2)
    b = np.random.default_rng(2).standard_normal(40)
    made = make_preconditioner(twice, 0.05, 30, np.random.default_rng(0))
    found = solve_forest(twice, 0.05, b, preconditioner=made, tolerance=1e-10)
    np.testing.assert_allclose(
        found.x,
        np.linalg.solve(2 * dense + 0.05 * np.eye(40), b),
        rtol=SOLVED_DIRECTLY,
        atol=SUMMED,
    )


def test_a_solve_that_does_not_converge_says_so():
    forest, _ = make_forest()
    b = np.random.default_rng(2).standard_normal(60)
    with pytest.warns(NotConverged, match="after 3 steps at a relative residual"):
        found = solve_forest(forest, 1e-6, b, max_steps=3)
    assert not found.converged
    rest = b - forest_product(forest, found.x) - 1e-6 * found.x
    assert found.residual[0] == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(b))
    with pytest.warns(NotConverged, match="residual"):  # beyond what float64 can do
        solve_forest(forest, 1e-12, b, tolerance=1e-17, max_steps=5_000)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda f: Forest.of([], []), "tries must not be empty"),
        (lambda f: Forest.of(f.tries, f.levels[:1]), "levels must be one per trie"),
        (lambda f: Forest.of(f.tries, [x[::-1] for x in f.levels]), "levels must never rise"),
        (
            lambda f: Forest.of(
                (*f.tries, *make_forest(n=7)[0].tries), (*f.levels, *make_forest(n=7)[0].levels)
            ),
            "same number of rows",
        ),
        (lambda f: forest_product(f, np.ones(3)), "x must have shape"),
        (lambda f: solve_forest(f, 0.0, np.ones(60)), "noise must be positive"),
        (lambda f: solve_forest(f, -1.0, np.ones(60)), "noise"),
        (lambda f: solve_forest(f, 1.0, np.full(60, np.nan)), "b must be finite"),
        (lambda f: solve_forest(f, 1.0, np.ones(60), start=np.ones((60, 2))), "start must have"),
        (lambda f: solve_forest(f, 1.0, np.ones(60), tolerance=0), "tolerance"),
        (
            lambda f: solve_forest(f, 1.0, np.ones((60, 2)), tolerance=np.array([1e-3, -1.0])),
            "tolerance must be",
        ),
        (lambda f: solve_forest(f, 1.0, np.ones(60), max_steps=0), "max_steps"),
        (
            lambda f: solve_forest(
                f,
                1.0,
                np.ones(60),
                preconditioner=make_preconditioner(
                    make_forest(n=7)[0], 1.0, 3, np.random.default_rng(0)
                ),
            ),
            "preconditioner must be for 60 rows, got 7",
        ),
        (
            lambda f: make_preconditioner(f, -1.0, 3, np.random.default_rng(0)),
            "noise must not be negative",
        ),
        (lambda f: make_preconditioner(f, 1.0, 0, np.random.default_rng(0)), "rank"),
    ],
)
def test_bad_input_is_named(work, said):
    with pytest.raises(ValueError, match=said):
        work(make_forest()[0])


# The likelihood


def dense_evidence(dense, noise, y):
    return multivariate_normal(np.zeros(y.size), dense + np.diag(noise)).logpdf(y)


@pytest.mark.parametrize("smooth", SMOOTH)
def test_the_likelihood_of_few_rows_is_exact(smooth):
    problem = make_problem(n=60, smooth=smooth)
    forest, dense = problem.forest(), problem.kernel()
    noise, y = np.linspace(0.1, 0.5, 60), np.random.default_rng(3).standard_normal(60)
    found = forest_evidence(forest, noise, y, np.random.default_rng(0))
    assert found.exact
    assert found.error == 0
    assert found.log_likelihood == pytest.approx(
        dense_evidence(dense, noise, y), rel=SUMMED if smooth else DENSE
    )


def test_the_likelihood_of_one_tree_is_the_tries():
    rng = np.random.default_rng(0)
    codes = pack_codes(rng.integers(0, 16, (80, 2)), precision=4)
    order = BitOrder.from_weights(
        random_bits(codes.precision, rng), np.full(8, 1 / 8), nugget="bit"
    )
    trie, y = build_trie(codes, order), rng.standard_normal(80)
    found = forest_evidence(Forest.of([trie], [order.levels]), 0.3, y, rng)
    assert found.log_likelihood == pytest.approx(-likelihood(trie, order, y, 0.3).nll, rel=DENSE)


@pytest.mark.parametrize("smooth", [None, "inducing"])
@pytest.mark.parametrize("rank", [1, 40])
@pytest.mark.parametrize("noise", [0.3, 0.01])
def test_the_error_bar_of_the_likelihood_holds(rank, noise, smooth):
    forest, dense = make_forest(n=200, n_trees=6, p=6)
    if smooth:
        problem = make_problem(n=200, n_trees=6, precision=6, smooth=smooth)
        forest, dense = problem.forest(), problem.kernel()
    y = np.random.default_rng(3).multivariate_normal(np.zeros(200), dense + noise * np.eye(200))
    exact = dense_evidence(dense, np.full(200, noise), y)
    off, bars = [], []
    for seed in range(12):
        found = forest_evidence(
            forest, noise, y, np.random.default_rng(seed), exact_rows=0, rank=rank, n_steps=200
        )
        assert not found.exact
        off.append(found.log_likelihood - exact)
        bars.append(found.error)
    assert np.abs(off).max() < 5 * np.mean(bars) + 1e-6
    assert np.sqrt(np.mean(np.square(off))) < 1.8 * np.mean(bars) + 1e-6
    assert abs(np.mean(off)) < 3.5 * np.mean(bars) / np.sqrt(12) + 1e-6


@pytest.mark.parametrize("smooth", SMOOTH)
def test_a_full_preconditioner_leaves_no_error(smooth):
    forest, dense = make_forest()
    if smooth:
        problem = make_problem(n=60, smooth=smooth)
        forest, dense = problem.forest(), problem.kernel()
    y = np.random.default_rng(3).standard_normal(60)
    found = forest_evidence(forest, 0.1, y, np.random.default_rng(0), exact_rows=0, rank=60)
    assert found.log_likelihood == pytest.approx(
        dense_evidence(dense, np.full(60, 0.1), y), abs=LANCZOS
    )
    assert found.error < 1e-5


def test_more_probes_and_better_preconditioners_make_the_error_smaller():
    forest, _ = make_forest(n=200, n_trees=6, p=6)
    y = np.random.default_rng(3).standard_normal(200)

    def error(rank, n_probes):
        return forest_evidence(
            forest,
            0.05,
            y,
            np.random.default_rng(1),
            exact_rows=0,
            rank=rank,
            n_probes=n_probes,
        ).error

    assert error(100, 64) < 0.5 * error(1, 64)
    assert error(20, 64) < 0.7 * error(20, 8)


def test_probes_that_do_not_converge_are_told():
    forest, _ = make_forest(n=200, n_trees=6, p=6)
    y = np.random.default_rng(3).standard_normal(200)
    with pytest.warns(NotConverged, match="16 of 17 solves for the likelihood"):
        forest_evidence(forest, 0.01, y, np.random.default_rng(0), exact_rows=0, rank=5, n_steps=3)


@pytest.mark.parametrize(("name", "value"), [("n_probes", 1), ("n_steps", 0), ("n_probes", 2.5)])
def test_bad_settings_of_the_likelihood_are_named(name, value):
    forest, _ = make_forest()
    with pytest.raises(ValueError, match=name):
        forest_evidence(forest, 1.0, np.ones(60), np.random.default_rng(0), **{name: value})
