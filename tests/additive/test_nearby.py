"""Variances from nearby rows, against dense algebra on the same rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import (
    dense_posterior,
    make_problem,
    own_kernel,
    solve_tightly,
    variance_at,
)
from tolerances import DENSE, FACTOR, SAMPLED, SINGLE, SOLVED, VALUE
from triegp.additive import conditioning
from triegp.additive import nearby as nearby_module
from triegp.additive.conditioning import solve_targets
from triegp.additive.insertion import insert_into_forest
from triegp.additive.nearby import (
    insert_nearby,
    learn_factor,
    left_out_variance,
    make_nearby,
    nearby_variance,
    nearby_weights,
    rows_of_cells,
    stack_keys,
)
from triegp.additive.points import new_keys, read_points
from triegp.additive.probes import Probes, draw_probes, read_probes
from triegp.additive.settings import Settings
from triegp.additive.solve import Solution
from triegp.additive.start import row_noise
from triegp.additive.variance import Known, with_factor
from triegp.engines import nearby as engine
from triegp.engines.cpu.cells import find_cells, make_cells
from triegp.tree.rows import Rows

KINDS = [None, "inducing"]


@pytest.fixture
def double(monkeypatch):
    """Factors in float64, whatever the noise."""
    monkeypatch.setattr(nearby_module, "SINGLE_NOISE", np.inf)


@pytest.fixture
def small_cells(monkeypatch):
    monkeypatch.setattr(nearby_module, "CELL_ROWS", 5)


def conditioned(n=150, smooth=None, n_nearby=256, **options):
    problem = make_problem(n=n, d=3, smooth=smooth, **options)
    return problem, problem.condition(Settings(n_nearby=n_nearby))


def cells_over(found, n_members):
    """The rows of a model in cells, as the model makes them, with fewer members."""
    pairs = zip(found.forest.tries, found.keys, strict=True)
    keys = [keys[np.argsort(trie.row_idx)] for trie, keys in pairs]
    keys = stack_keys(keys, found.rows.n_rows, found.key_bits.n_words)
    kernel = None if found.smooth is None else found.smooth.kernel
    inputs = found.scale_inputs(found.inputs)
    return make_nearby(
        inputs, keys, found.forest.levels, found.variance, kernel, n_members=n_members, n_threads=1
    )


def asked(found, new):
    points = read_points(found, new)
    return found.scale_inputs(points.inputs), new_keys(found, points)


def dense_variance(found, X, members, x):
    """Variance of f at one row given some training rows."""
    k = own_kernel(found, X[members], X[members])
    cross, own = own_kernel(found, X[members], x), own_kernel(found, x, x)
    noise = found.variance[members]
    return oracle.posterior(k, noise, cross, own, found.rows.y[members])[1][0, 0]


# Variances


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.parametrize("n_members", [1, 2, 7, 30, 33])
@pytest.mark.usefixtures("double", "small_cells")
def test_a_variance_is_the_dense_one_given_the_members(smooth, n_members):
    problem, found = conditioned(smooth=smooth)
    near = cells_over(found, n_members)
    inputs, keys = asked(found, problem.new)
    var = nearby_variance(near, inputs, keys, n_threads=1)
    cell = find_cells(near.cells, inputs, 1)
    assert np.unique(cell).size > 5
    for i in range(problem.new.shape[0]):
        block = near.blocks[int(cell[i])]
        assert block.members.size == n_members
        expected = dense_variance(found, problem.X, block.members, problem.new[[i]])
        np.testing.assert_allclose(var[i], expected, **VALUE)


@pytest.mark.usefixtures("small_cells")
def test_members_are_the_rows_nearest_to_the_centre():
    problem, found = conditioned(smooth="inducing")
    near = cells_over(found, 20)
    nearby_variance(near, *asked(found, problem.new), n_threads=1)
    inputs = near.process.inputs
    for b, block in near.blocks.items():
        square = np.square(inputs - near.cells.centres[b]).sum(axis=1)
        nearest = np.sort(np.argsort(square, kind="stable")[:20])
        np.testing.assert_array_equal(block.members, nearest)
        assert block.radius == pytest.approx(np.sort(square)[19], rel=DENSE)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("double")
def test_a_variance_is_exact_if_all_rows_are_members(smooth, weighted, monkeypatch):
    solve_tightly(monkeypatch)
    problem, found = conditioned(smooth=smooth, weighted=weighted, known=weighted)
    exact = np.diag(dense_posterior(found, problem.X, problem.new)[1])
    np.testing.assert_allclose(variance_at(found, problem.new, "nearby"), exact, **SOLVED)
    np.testing.assert_allclose(variance_at(found, problem.new, "exact"), exact, **SOLVED)
    assert found.factor == 1.0


@pytest.mark.parametrize("smooth", KINDS)
def test_fewer_members_are_an_upper_bound(smooth):
    problem, found = conditioned(smooth=smooth)
    exact = np.diag(dense_posterior(found, problem.X, problem.new)[1])
    before = np.full(problem.new.shape[0], found.forest.prior_variance)
    for n_members in (1, 10, 40, 150):
        var = nearby_variance(cells_over(found, n_members), *asked(found, problem.new))
        assert (var >= exact - SINGLE["atol"]).all()
        assert var.mean() <= before.mean()
        before = var
    np.testing.assert_allclose(before, exact, **SINGLE)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("double", "small_cells")
def test_left_out_variances_are_the_dense_ones(smooth):
    problem, found = conditioned(smooth=smooth, n=80)
    near = cells_over(found, 12)
    var = left_out_variance(near, n_threads=1)
    cell = np.empty(80, int)
    cell[near.cells.rows] = np.repeat(np.arange(len(near.blocks)), np.diff(near.cells.starts))
    for i in range(80):
        rest = np.setdiff1d(near.blocks[int(cell[i])].members, [i])
        expected = dense_variance(found, problem.X, rest, problem.X[[i]])
        np.testing.assert_allclose(var[i], expected, **VALUE)
    some = np.array([17, 3, 60])
    np.testing.assert_array_equal(left_out_variance(near, some, n_threads=1), var[some])


@pytest.mark.usefixtures("small_cells")
def test_a_row_that_is_no_member_of_its_own_cells_block():
    """Of one centre with more rows at it than members, some rows are none."""
    problem, found = conditioned(n=40)
    same = replace(problem, X=np.repeat(problem.X[:2], 20, axis=0))
    found = same.condition()
    near = cells_over(found, 4)
    var = left_out_variance(near, n_threads=1)
    for i in range(40):
        members = near.blocks[int(find_cells(near.cells, near.process.inputs[[i]], 1)[0])].members
        rest = np.setdiff1d(members, [i])
        expected = dense_variance(found, same.X, rest, same.X[[i]])
        np.testing.assert_allclose(var[i], expected, **SINGLE)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("double")
def test_keys_of_several_words(smooth):
    """Keys of 96 bits share more than a word."""
    problem = make_problem(n=40, d=3, precision=31, smooth=smooth)
    inner = np.sort(problem.X.max(axis=1).argsort()[:20])
    close = np.vstack([problem.X[inner], problem.X[inner] + 1e-9])
    problem = replace(problem, X=close)
    found = problem.condition()
    assert found.keys[0].shape[1] == 2
    new = np.vstack([problem.new, close[:5] + 1e-10])
    exact = np.diag(dense_posterior(found, close, new)[1])
    np.testing.assert_allclose(variance_at(found, new, "nearby"), exact, **SOLVED)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("double")
def test_trees_that_fade(smooth):
    problem, found = conditioned(smooth=smooth, n=60)
    inputs, keys = asked(found, problem.new)
    fade = np.linspace(0.0, 1.0, problem.new.shape[0])
    var = nearby_variance(cells_over(found, 60), inputs, keys, fade, n_threads=1)
    among = own_kernel(found, problem.X, problem.X)
    trees = replace(found, forest=replace(found.forest, smooth=None))
    by_trees = own_kernel(trees, problem.X, problem.new)
    cross = own_kernel(found, problem.X, problem.new) - (1.0 - fade) * by_trees
    own = own_kernel(found, problem.new, problem.new)
    cov = oracle.posterior(among, found.variance, cross, own, found.rows.y)[1]
    np.testing.assert_allclose(var, np.diag(cov), **VALUE)


@pytest.mark.parametrize("smooth", KINDS)
def test_float32_is_close_to_float64(smooth, monkeypatch):
    problem, found = conditioned(smooth=smooth, noise=0.3)
    single = cells_over(found, 64)
    assert single.dtype is np.float32
    one = nearby_variance(single, *asked(found, problem.new))
    monkeypatch.setattr(nearby_module, "SINGLE_NOISE", np.inf)
    double = cells_over(found, 64)
    assert double.dtype is np.float64
    np.testing.assert_allclose(one, nearby_variance(double, *asked(found, problem.new)), **SINGLE)


# The same whatever else is asked


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("small_cells")
def test_a_row_has_the_same_variance_whatever_is_asked_with_it(smooth):
    problem, found = conditioned(smooth=smooth)
    inputs, keys = asked(found, problem.new)

    def answer(rows, near):
        return nearby_variance(near, inputs[rows], keys[rows], n_threads=1)

    together = answer(np.arange(30), cells_over(found, 30))
    near = cells_over(found, 30)
    for i in range(30):
        assert answer(np.array([i]), near)[0] == together[i]
    turned = np.random.default_rng(0).permutation(30)
    np.testing.assert_array_equal(answer(turned, near), together[turned])
    assert answer(np.empty(0, int), near).shape == (0,)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("small_cells")
def test_the_number_of_threads_changes_no_bit(smooth):
    problem, found = conditioned(smooth=smooth)
    given = asked(found, problem.new)
    one, three = cells_over(found, 30), cells_over(found, 30)
    np.testing.assert_array_equal(
        nearby_variance(one, *given, n_threads=1), nearby_variance(three, *given, n_threads=3)
    )
    np.testing.assert_array_equal(
        left_out_variance(one, n_threads=1), left_out_variance(three, n_threads=3)
    )
    cells = [make_cells(one.process.inputs, 20, n_threads) for n_threads in (1, 3)]
    for a, b in zip(*cells, strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_are_kept_but_not_pickled():
    problem, found = conditioned()
    near = cells_over(found, 30)
    first = nearby_variance(near, *asked(found, problem.new))
    assert near.n_bytes > 0
    kept = dict(near.blocks)
    nearby_variance(near, *asked(found, problem.new))
    assert all(near.blocks[b] is block for b, block in kept.items())
    copied = pickle.loads(pickle.dumps(near))
    assert copied.blocks == {}
    np.testing.assert_array_equal(nearby_variance(copied, *asked(found, problem.new)), first)


# Cells


@pytest.mark.parametrize("n_cells", [1, 2, 7, 40, 200])
def test_cells_hold_every_row_once(n_cells):
    inputs = np.random.default_rng(0).standard_normal((200, 3))
    cells = make_cells(inputs, n_cells, 1)
    np.testing.assert_array_equal(np.sort(cells.rows), np.arange(200))
    assert cells.starts[0] == 0
    assert cells.starts[-1] == 200
    assert (np.diff(cells.starts) >= 0).all()
    cell = np.repeat(np.arange(n_cells), np.diff(cells.starts))
    np.testing.assert_array_equal(find_cells(cells, inputs, 1)[cells.rows], cell)


@pytest.mark.parametrize("rows", ["equal", "two values", "one far", "constant features", "one row"])
def test_cells_of_hostile_rows(rows):
    rng = np.random.default_rng(0)
    inputs = {
        "equal": np.ones((100, 2)),
        "two values": rng.integers(0, 2, (100, 2)).astype(float),
        "one far": np.append(np.zeros((99, 2)), [[1e6, 0.0]], axis=0),
        "constant features": np.column_stack([rng.random(100), np.ones((100, 3))]),
        "one row": np.ones((1, 2)),
    }[rows]
    n_cells = max(1, len(inputs) // 10)
    cells = make_cells(inputs, n_cells, 1)
    np.testing.assert_array_equal(np.sort(cells.rows), np.arange(len(inputs)))
    assert np.isfinite(cells.centres).all()


def test_some_rows_are_those_of_whole_cells():
    _, found = conditioned()
    near = cells_over(found, 30)
    rng = np.random.default_rng(0)
    cell = find_cells(near.cells, near.process.inputs, 1)
    chosen = rows_of_cells(near, 40, rng, np.array([3, 80]))
    assert chosen.size >= 40
    assert (np.diff(chosen) > 0).all()
    inside = np.isin(cell, np.unique(cell[chosen]))
    np.testing.assert_array_equal(np.flatnonzero(inside), chosen)
    assert {3, 80} <= set(rows_of_cells(near, 1_000, rng, np.array([3, 80])).tolist())
    first = rows_of_cells(near, 1, rng, np.array([3]))
    assert 3 in first.tolist()


# More rows


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.parametrize("k", [1, 20, 60])
@pytest.mark.usefixtures("double", "small_cells")
def test_inserted_rows_count_as_if_they_had_been_there(smooth, k):
    """Cells stay where they are, up to 1.2 times as many rows; members are then found anew."""
    problem, found = conditioned(smooth=smooth)
    more = np.random.default_rng(5).uniform(problem.new.min(0), problem.new.max(0), (k, 3))
    near = cells_over(found, 30)
    nearby_variance(near, *asked(found, problem.new))
    known = dict(near.blocks)
    noise = np.full(k, 0.2)
    grown = insert_nearby(near, *asked(found, more), noise)
    assert near.n_rows == 150
    assert near.blocks == known
    assert grown.n_rows == 150 + k
    assert (grown.n_clustered == 150) == (k <= 30)
    assert all(grown.blocks[b] is known[b] for b in grown.blocks)
    if k == 1:
        assert grown.blocks
    X = np.vstack([problem.X, more])
    both = Rows(np.zeros(150 + k), noise=np.append(found.variance, noise))
    every = replace(found, rows=both)
    inputs, keys = asked(found, problem.new)
    var = nearby_variance(grown, inputs, keys)
    rebuilt = replace(grown, blocks={})
    np.testing.assert_array_equal(nearby_variance(rebuilt, inputs, keys), var)
    cell = find_cells(grown.cells, inputs, 1)
    for i in range(30):
        b = int(cell[i])
        square = np.square(grown.process.inputs - grown.cells.centres[b]).sum(axis=1)
        members = np.sort(np.argsort(square, kind="stable")[:30])
        np.testing.assert_array_equal(grown.blocks[b].members, members)
        expected = dense_variance(every, X, members, problem.new[[i]])
        np.testing.assert_allclose(var[i], expected, **VALUE)


@pytest.mark.parametrize("smooth", KINDS)
@pytest.mark.usefixtures("double", "small_cells")
def test_weights_of_members_are_the_dense_ones(smooth):
    problem, found = conditioned(smooth=smooth)
    near = cells_over(found, 30)
    inputs, keys = asked(found, problem.new)
    for i in range(10):
        members, weights, var = nearby_weights(near, inputs[[i]], keys[[i]])
        X = problem.X[members]
        among = own_kernel(found, X, X) + np.diag(found.variance[members])
        k = own_kernel(found, X, problem.new[[i]])[:, 0]
        np.testing.assert_allclose(weights, np.linalg.solve(among, k), **VALUE)
        assert var == pytest.approx(found.forest.prior_variance - k @ weights, rel=DENSE)


def test_covariances_of_queries_with_members():
    problem, found = conditioned(smooth="inducing")
    near = cells_over(found, 30)
    inputs, keys = asked(found, problem.new)
    queries = engine.Queries(keys, inputs, np.ones(30))
    members = np.arange(3, 90, 7, dtype=np.int32)
    k = engine.local_covariances(near.process, members, queries)
    expected = own_kernel(found, problem.new, problem.X[members])
    np.testing.assert_allclose(k, expected, **VALUE)


# The factor


def test_the_factor_makes_logarithms_agree():
    rng = np.random.default_rng(0)
    v, noise = rng.uniform(0.1, 1.0, 200_000), rng.uniform(0.05, 0.2, 200_000)
    for factor in (0.3, 0.8, 1.0):
        inverse = 1.0 / (factor * v + noise)
        assert learn_factor(v, noise, inverse, drawn=False) == pytest.approx(factor, rel=DENSE)
        drawn = np.square(rng.standard_normal(v.size)) * inverse
        assert learn_factor(v, noise, drawn, drawn=True) == pytest.approx(factor, rel=FACTOR)
    assert learn_factor(v, noise, np.full(v.size, 1e6), drawn=False) == 0.01
    assert learn_factor(v, noise, np.zeros(v.size), drawn=True) == 2.0


@pytest.mark.parametrize("smooth", KINDS)
def test_the_factor_corrects_too_few_members(smooth, monkeypatch):
    """From few members variances are too large; the factor takes most of that away."""
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    problem, found = conditioned(n=400, smooth=smooth, n_nearby=8, noise=0.3, precision=6)
    found = replace(found, factor=1.0)
    exact = np.diag(dense_posterior(found, problem.X, problem.new)[1])
    plain = variance_at(found, problem.new, "nearby")
    rng = np.random.default_rng(1)
    dense = own_kernel(found, problem.X, problem.X) + np.diag(found.variance)
    u = np.linalg.solve(dense, np.linalg.cholesky(dense) @ rng.standard_normal(400))
    known = with_factor(found, Known(np.arange(400), np.square(u), True))
    assert 0.01 < known.factor < 1.0
    assert known.nearby is found.nearby
    scaled = variance_at(known, problem.new, "nearby")
    np.testing.assert_allclose(scaled, known.factor * plain, rtol=DENSE)
    assert np.abs(np.log(scaled / exact)).mean() < 0.7 * np.abs(np.log(plain / exact)).mean()


@pytest.mark.parametrize("smooth", [None, "dense"])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_probes_are_solved_with_the_targets(n_targets, smooth, monkeypatch):
    """To tolerances of their own, for the solution that the targets have alone."""
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 50)
    monkeypatch.setattr(conditioning, "tolerance_for", lambda rows: 1e-11)
    problem = make_problem(n=120, smooth=smooth)
    forest, y = problem.forest(), problem.rows.y
    if n_targets > 1:
        y = np.stack([y, y**2], axis=1)
    rows = replace(row_noise(problem.rows, problem.orders, problem.parameters.noise), y=y)
    dense = problem.kernel() + np.diag(rows.variance)
    probes = draw_probes(forest, rows, 3)
    assert probes.z.shape == (120, 4)
    start, expected = 0.5 * y, np.linalg.solve(dense, y)
    for begin in (None, start):
        for tolerance in (1e-11, 0.05):
            given = (forest, rows, 3, begin)
            _, found, _, known = solve_targets(*given, probes=Probes(probes.z, tolerance))
            assert found.x.shape == y.shape
            assert found.residual.shape == (n_targets,)
            assert found.residual.max() <= 1e-11
            np.testing.assert_allclose(found.x, expected, **SOLVED)
            assert known.drawn
            np.testing.assert_array_equal(known.rows, np.arange(120))
            solved = np.sqrt(known.inverse)
            if tolerance < 0.01:
                exact = np.abs(np.linalg.solve(dense, probes.z))
                np.testing.assert_allclose(solved, exact, **SOLVED)
    assert solve_targets(forest, rows, 3)[3] is None


def test_probes_are_draws_of_targets():
    problem = make_problem(n=30)
    rows = row_noise(problem.rows, problem.orders, problem.parameters.noise)
    dense, forest = problem.kernel() + np.diag(rows.variance), problem.forest()
    z = np.hstack([draw_probes(forest, rows, seed).z for seed in range(500)])
    whitened = np.linalg.solve(np.linalg.cholesky(dense), z)
    error = (whitened @ whitened.T / z.shape[1] - np.eye(30)) * np.sqrt(z.shape[1])
    assert np.abs(error).max() < SAMPLED["max"] * np.sqrt(2.0)
    assert np.sqrt(np.mean(np.square(error))) < SAMPLED["rms"]


def test_probes_far_from_converged_tell_nothing():
    x = np.random.default_rng(0).standard_normal((5, 2))
    near, far = (Solution(x, np.array([1e-3, worst]), 3, False) for worst in (0.09, 0.11))
    np.testing.assert_array_equal(read_probes(near).inverse, x**2)
    assert read_probes(far) is None


def test_the_factor_is_learned_when_rows_are_many(monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 100)
    for smooth in KINDS:
        _, found = conditioned(n=300, smooth=smooth, n_nearby=8, noise=0.3)
        assert 0.01 < found.factor < 1.0
        assert found.known_nearby is not None


@pytest.mark.parametrize("smooth", KINDS)
def test_the_factor_is_learned_when_rows_become_many(smooth, monkeypatch):
    problem, found = conditioned(n=300, smooth=smooth, n_nearby=8, noise=0.3)
    assert found.factor == 1.0
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 310)
    rows = Rows(np.zeros(20), X=problem.new[:20])
    assert insert_into_forest(found, rows.select(np.arange(5))).factor == 1.0
    assert 0.01 < insert_into_forest(found, rows).factor < 1.0
