"""Trees and a smooth part on the CUDA engine against the CPU engine: solves, preconditioner.

Without a card, kernels run in numba's simulator on few rows, and its arrays raise if they
are mixed with numpy's, as CuPy's do. On a card (TRIEGP_TEST_CARD=1) they are CuPy's.
"""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import make_problem, mean_at, variance_at
from on_card import ON_CARD
from simulated_card import card_or_strict_one
from tolerances import ENGINES_FIT, FITS, VALUE
from triegp import TrieGPRegressor, checks
from triegp.additive import (
    conditioning,
    forest_evidence,
    forest_level_products,
    forest_product,
    make_preconditioner,
    model,
    preconditioner,
    solve_forest,
)
from triegp.additive.conditioning import condition_forest
from triegp.additive.forest import build_forest, multiply
from triegp.additive.settings import Settings
from triegp.engines import CpuEngine
from triegp.engines.cuda import CudaEngine
from triegp.smooth.dense import Dense, make_dense

N_ROWS = 3_000 if ON_CARD else 18
N_TREES = 16 if ON_CARD else 2
RANK = 200 if ON_CARD else 9
CPU = CpuEngine()


@pytest.fixture(autouse=True)
def _strict_arrays(monkeypatch):
    monkeypatch.setattr(preconditioner, "BLOCK_ROWS", 64 if ON_CARD else 8)  # several
    with card_or_strict_one():
        yield


def both(problem):
    """The same forest on both engines; its smooth part is lent to the card."""
    kernel = problem.parameters.smooth
    smooth = None
    if problem.smooth == "dense":
        smooth = make_dense(kernel, problem.inputs / kernel.lengthscale, keep=False)
    found = []
    for engine in (CPU, CudaEngine()):
        lent = smooth if smooth is None or engine is CPU else smooth.lend(engine)
        found.append(build_forest(problem.codes, problem.orders, engine, lent))
    return found


SMOOTH = [None, "dense"]
with_and_without = pytest.mark.parametrize("smooth", SMOOTH)


def problem_of(**options):
    precision = 6 if ON_CARD else 3
    return make_problem(N_ROWS, N_TREES, precision=precision, noise=0.05, **options)


def same(found, expected, tolerance=VALUE):
    """Relative to the largest entry."""
    expected = np.asarray(expected)
    scale = max(np.abs(expected).max(), 1e-300)
    np.testing.assert_allclose(CudaEngine().fetch(found) / scale, expected / scale, **tolerance)


def test_tries_sorted_at_once_are_those_sorted_alone():
    problem = problem_of()
    cpu, _ = both(problem)
    given = [codes.packed for codes in problem.codes], [order.key_bits for order in problem.orders]
    for engine in (CPU, CudaEngine()):
        for trie, (row_idx, links) in zip(cpu.tries, engine.link_many(*given), strict=True):
            np.testing.assert_array_equal(engine.fetch(row_idx), trie.row_idx)
            np.testing.assert_array_equal(engine.fetch(links.depth), trie.links.depth)


@with_and_without
def test_products(smooth):
    problem = problem_of(smooth=smooth)
    x = np.random.default_rng(1).standard_normal((N_ROWS, 2))
    cpu, cuda = both(problem)
    expected = forest_product(cpu, x)
    same(expected, problem.kernel() @ x)
    same(forest_product(cuda, x), expected)
    same(multiply(cuda, CudaEngine().hold(x)), expected)


def test_a_kernel_matrix_that_fits_is_kept(monkeypatch):
    problem = problem_of(smooth="dense")
    x = np.random.default_rng(1).standard_normal((N_ROWS, 2))
    found = []
    for there in (0, 1 << 40):
        monkeypatch.setattr(CudaEngine, "free_bytes", lambda self, there=there: there)
        _, cuda = both(problem)
        assert (cuda.smooth.matrix is not None) == (there > 0)
        found.append(forest_product(cuda, x))
    same(*found)


@with_and_without
def test_preconditioner(smooth):
    problem = problem_of(smooth=smooth)
    x = np.random.default_rng(1).standard_normal((N_ROWS, 2))
    cpu, cuda = (
        make_preconditioner(forest, 0.05, RANK, np.random.default_rng(0))
        for forest in both(problem)
    )
    np.testing.assert_allclose(cuda.log_det, cpu.log_det, **FITS)
    same(cuda.apply(x), cpu.apply(x), FITS)
    drawn = [made.draw(3, np.random.default_rng(2)) for made in (cuda, cpu)]
    same(*drawn, FITS)


@with_and_without
def test_solves(smooth):
    problem = problem_of(smooth=smooth)
    b = np.random.default_rng(1).standard_normal((N_ROWS, 3))
    b[:, 1] = 0.0
    noise = np.random.default_rng(2).uniform(0.5, 1.0, N_ROWS)
    found = []
    for forest in both(problem):
        made = make_preconditioner(forest, noise, RANK, np.random.default_rng(0))
        found.append(solve_forest(forest, noise, b, preconditioner=made, tolerance=1e-8))
    cpu, cuda = found
    assert type(cuda.residual) is np.ndarray
    assert cuda.converged
    assert cpu.converged
    same(cuda.x, cpu.x, FITS)


def test_a_solve_that_goes_on_from_a_start():
    problem = problem_of()
    cpu, cuda = both(problem)
    y = problem.rows.y
    known = solve_forest(cpu, 1.0, y, tolerance=1e-12).x
    again = solve_forest(cuda, 1.0, y, start=known, tolerance=1e-8)
    assert again.n_steps == 0
    same(again.x, known)
    ones, hold = np.ones(N_ROWS), CudaEngine().hold
    same(multiply(cuda, hold(known), hold(ones)), multiply(cpu, known, ones))
    with pytest.raises(ValueError, match="b must be finite"):
        solve_forest(cuda, 1.0, np.full(N_ROWS, np.nan))
    with pytest.raises(ValueError, match="x must have shape"):
        forest_product(cuda, CudaEngine().hold(y)[1:])


def evidence_parts(forest, problem, place, x, exact_rows):
    found = forest_evidence(
        forest,
        place(np.full(N_ROWS, 9.0)),
        x[:, 0],
        np.random.default_rng(0),
        exact_rows=exact_rows,
        rank=RANK,
        n_probes=2,
        tolerance=1e-3,
    )
    return [np.array([found.log_likelihood, found.log_det, found.square])]


# Functions of a forest, its problem, a function that places arrays on host or card, and x (n, 2)
# there. IN_KIND returns arrays where x is, TO_HOST on the host.
IN_KIND = {
    "product": lambda f, p, place, x: [forest_product(f, x), forest_product(f, x[:, 0])],
    "level products": lambda f, p, place, x: forest_level_products(f, x, x),
    "solve": lambda f, p, place, x: [
        solve_forest(f, place(np.full(N_ROWS, 9.0)), x, tolerance=1e-9).x,
        solve_forest(f, 99.0, x[:, 0], start=x[:, 0], tolerance=1e-9).x,
    ],
}
TO_HOST = {
    "exact evidence": lambda *given: evidence_parts(*given, N_ROWS),
    "evidence": lambda *given: evidence_parts(*given, 0),
}


@pytest.mark.parametrize("name", [*IN_KIND, *TO_HOST])
def test_answers_come_from_either_engine_to_where_the_question_came_from(name):
    problem = problem_of()
    x = np.random.default_rng(1).standard_normal((N_ROWS, 2))
    ask = (IN_KIND | TO_HOST)[name]
    cpu, cuda = both(problem)
    expected = ask(cpu, problem, np.asarray, x)
    for forest, place in ((cpu, CudaEngine().hold), (cuda, np.asarray), (cuda, CudaEngine().hold)):
        given = place(x)
        kind = type(given) if name in IN_KIND else np.ndarray
        for one, two in zip(ask(forest, problem, place, given), expected, strict=True):
            assert type(one) is kind
            same(one, two, FITS)


@pytest.mark.parametrize("name", [*IN_KIND, *TO_HOST])
def test_what_is_not_finite_is_refused_wherever_it_lies(name):
    problem = problem_of()
    x = np.random.default_rng(1).standard_normal((N_ROWS, 2))
    x[3, 0] = np.nan
    for forest in both(problem):
        for place in (np.asarray, CudaEngine().hold):
            with pytest.raises(ValueError, match="must be finite, got nan at position"):
                (IN_KIND | TO_HOST)[name](forest, problem, place, place(x))


def test_steps_of_a_solve_look_at_no_rows(monkeypatch):
    """A check that all is finite would wait for the card; only what users pass in is checked."""
    asked = []
    refuse = checks._refuse_nonfinite
    monkeypatch.setattr(
        checks, "_refuse_nonfinite", lambda name, x: asked.append(name) or refuse(name, x)
    )
    problem = problem_of()
    _, cuda = both(problem)
    asked.clear()
    found = solve_forest(cuda, 0.05, CudaEngine().hold(problem.rows.y), tolerance=1e-8)
    assert found.n_steps > 2
    assert sorted(asked) == ["b", "noise"]


@with_and_without
@pytest.mark.parametrize("exact_rows", [0, N_ROWS])
def test_evidence(exact_rows, smooth):
    problem = problem_of(smooth=smooth)
    found = [
        forest_evidence(
            forest,
            0.5,
            problem.rows.y,
            np.random.default_rng(0),
            exact_rows=exact_rows,
            rank=RANK,
            n_probes=2,
            tolerance=1e-3,
        )
        for forest in both(problem)
    ]
    cpu, cuda = found
    assert cuda.exact == cpu.exact
    for name in ("log_likelihood", "error", "log_det", "square"):
        np.testing.assert_allclose(getattr(cuda, name), getattr(cpu, name), **FITS)


def test_a_matrix_that_is_not_positive_is_refused():
    engine = CudaEngine()
    for shape in ((3, 3), (2, 3, 3)):
        bad = np.broadcast_to(np.diag([1.0, -1.0, 1.0]), shape)
        with pytest.raises(np.linalg.LinAlgError):
            engine.cholesky(engine.hold(bad))


@with_and_without
def test_a_model_solved_on_the_card_lives_on_the_host(smooth, monkeypatch):
    """Its smooth part is exact."""
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    monkeypatch.setattr(model, "RANK", RANK)
    monkeypatch.setattr(conditioning, "tolerance_for", lambda rows: 1e-8)
    monkeypatch.setattr(conditioning, "smooth_sizes", lambda n, share: (n, 0))  # exact on the CPU
    problem = problem_of(smooth=smooth)
    given = (problem.data, problem.parameters, Settings(), 0, CPU)
    cpu, cuda = (condition_forest(*given, solver) for solver in (None, CudaEngine()))
    assert type(cuda.alpha) is np.ndarray
    assert cuda.forest.engine is CPU
    if smooth == "dense":
        assert isinstance(cuda.smooth, Dense)
    same(cuda.alpha, cpu.alpha, FITS)
    mean, var = (work(cuda, problem.new) for work in (mean_at, variance_at))
    same(mean, mean_at(cpu, problem.new), FITS)
    same(var, variance_at(cpu, problem.new), FITS)


@with_and_without
def test_targets_that_share_a_model_are_solved_on_the_card(smooth, monkeypatch):
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    monkeypatch.setattr(model, "RANK", RANK)
    monkeypatch.setattr(conditioning, "tolerance_for", lambda rows: 1e-8)
    monkeypatch.setattr(conditioning, "smooth_sizes", lambda n, share: (n, 0))
    problem = problem_of(smooth=smooth)
    y = np.stack([problem.rows.y, np.square(problem.rows.y) - 1.0], axis=1)
    problem = replace(problem, rows=replace(problem.rows, y=y))
    given = (problem.data, problem.parameters, Settings(), 0, CPU)
    cpu, cuda = (condition_forest(*given, solver) for solver in (None, CudaEngine()))
    assert type(cuda.alpha) is np.ndarray
    assert cuda.alpha.shape == y.shape
    same(cuda.alpha, cpu.alpha, FITS)
    same(mean_at(cuda, problem.new), mean_at(cpu, problem.new), FITS)
    assert cuda.noise == pytest.approx(cpu.noise, rel=FITS["rtol"])


def test_the_factor_by_a_solve_on_the_card(monkeypatch):
    monkeypatch.setattr(model, "RANK", RANK)
    monkeypatch.setattr("triegp.additive.exact.EXACT_ROWS", 0)
    problem = problem_of(smooth="dense")
    given = (problem.data, problem.parameters, Settings(), 0, CPU)
    factor = [condition_forest(*given, solver).factor for solver in (CPU, CudaEngine())]
    assert factor[0] == pytest.approx(factor[1], rel=0.05)


@pytest.mark.card
@pytest.mark.filterwarnings("ignore:.*copies of others")
@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_on_a_card_is_one_on_the_cpu(weighted):
    rng = np.random.default_rng(0)
    X = rng.random((6_000, 4))
    f = np.sin(6.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = f + 0.1 * rng.standard_normal(len(X))
    train, test = slice(5_000), slice(5_000, None)
    weight = rng.integers(1, 4, 5_000).astype(float) if weighted else None
    scores = {}
    for engine in ("cuda", "cpu"):
        forest = TrieGPRegressor(max_iter=10, random_state=0, engine=engine)
        forest.fit(X[train], y[train], weight)
        mean, std = forest.predict(X[test], return_std=True)
        score = (y[test] - mean) / std
        nll = np.mean(0.5 * np.square(score) + np.log(std)) + 0.5 * np.log(2.0 * np.pi)
        scores[engine] = (np.sqrt(np.mean(np.square(mean - y[test]))), nll)
    np.testing.assert_allclose(scores["cuda"][0], scores["cpu"][0], rtol=ENGINES_FIT)
    np.testing.assert_allclose(scores["cuda"][1], scores["cpu"][1], atol=ENGINES_FIT)
