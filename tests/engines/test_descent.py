"""Conjugate gradients and dense matrices of both engines, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import make_problem
from on_card import ON_CARD
from simulated_card import card_or_strict_one
from tolerances import FITS, VALUE
from triegp.additive import forest_product, make_preconditioner, preconditioner
from triegp.additive.evidence import _log_traces
from triegp.additive.forest import build_forest
from triegp.additive.solve import solve_held
from triegp.engines import CpuEngine, Woodbury
from triegp.engines.cpu.descent import CpuDescent
from triegp.engines.cuda import CudaEngine, card
from triegp.engines.cuda import groves as groves_module
from triegp.engines.cuda.descent import CardDescent
from triegp.engines.cuda.forests import write_products
from triegp.engines.cuda.groves import groves
from triegp.tree.rows import Rows

ENGINES = {"cpu": CpuEngine(), "cuda": CudaEngine()}
N_ROWS = 2_500 if ON_CARD else 22
both_engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


@pytest.fixture(autouse=True)
def _strict_arrays(monkeypatch):
    monkeypatch.setattr(preconditioner, "BLOCK_ROWS", 64 if ON_CARD else 8)  # several
    with card_or_strict_one():
        yield


def forest_of(engine):
    problem = make_problem(N_ROWS, 2, precision=4, noise=0.05)
    return build_forest(problem.codes, problem.orders, engine)


def dense(forest):
    return forest.engine.fetch(forest_product(forest, np.eye(N_ROWS)))


@both_engines
@pytest.mark.parametrize("preconditioned", [False, True])
def test_columns_end_one_by_one(engine, preconditioned, monkeypatch):
    """Eigenvectors are solved in one step, sums of m of them in m."""
    kept = []
    for kind in (CpuDescent, CardDescent):
        keep = kind.keep
        monkeypatch.setattr(
            kind, "keep", lambda self, some, keep=keep: kept.append(some.sum()) or keep(self, some)
        )
    forest = forest_of(engine)
    variance = np.random.default_rng(0).uniform(0.5, 1.0, N_ROWS)
    matrix = dense(forest) + np.diag(variance)
    vectors = np.linalg.eigh(matrix)[1]
    b = np.stack([vectors[:, -m:].sum(axis=1) for m in (1, 2, 4, 1, 6)], axis=1)
    made = (
        make_preconditioner(forest, variance, 16, np.random.default_rng(1))
        if preconditioned
        else None
    )
    found = solve_held(
        forest, variance, engine.hold(b), preconditioner=made, tolerance=1e-9, max_steps=200
    )
    assert found.converged
    if not preconditioned:
        assert found.n_steps == 6
        assert kept == [3, 2, 1]  # and once all are done
    expected = np.linalg.solve(matrix, b)
    np.testing.assert_allclose(engine.fetch(found.x), expected, **FITS)


@both_engines
@pytest.mark.parametrize("preconditioned", [False, True])
def test_columns_have_tolerances_of_their_own(engine, preconditioned):
    forest = forest_of(engine)
    made = make_preconditioner(forest, 1.0, 3, np.random.default_rng(1)) if preconditioned else None
    b = np.repeat(np.random.default_rng(0).standard_normal((N_ROWS, 1)), 3, axis=1)
    wanted = np.array([1e-1, 1e-8, 1e-4])
    options = {"preconditioner": made, "max_steps": 200}
    found = solve_held(forest, 1.0, engine.hold(b), tolerance=wanted, **options)
    assert found.converged
    for column, limit in enumerate(wanted):
        one = solve_held(forest, 1.0, engine.hold(b[:, 0]), tolerance=float(limit), **options)
        np.testing.assert_allclose(engine.fetch(found.x[:, column]), engine.fetch(one.x), **FITS)
        assert found.residual[column] <= limit
    assert found.residual[2] > wanted[1]
    assert found.residual[0] > wanted[2]


def more_of(engine):
    """A positive definite matrix, and the product with it in the engine's memory."""
    half = np.random.default_rng(5).standard_normal((N_ROWS, 4))
    held = engine.hold(half)
    return half @ half.T, lambda x: held @ (held.T @ x)


@both_engines
@pytest.mark.parametrize("more", [False, True])
def test_a_step_at_a_time(engine, more):
    """Each step returns the norms of the residuals, the step lengths, and the squares before it."""
    forest = forest_of(engine)
    variance = np.full(N_ROWS, 0.7)
    matrix = dense(forest) + np.diag(variance)
    extra, product = more_of(engine) if more else (0.0, None)
    matrix = matrix + extra
    b = np.random.default_rng(0).standard_normal((N_ROWS, 5))
    x = engine.hold(np.zeros((N_ROWS, 7)))
    columns = np.array([6, 0, 2, 3, 5])
    held = (engine.hold(part) for part in (columns, b.copy()))
    descent = engine.descend(forest.trees, engine.hold(variance), x, *held, None, product)
    r, p, at, go = b.copy(), b.copy(), np.zeros_like(b), np.arange(5)
    for step in range(4):
        left, stride, square = descent.advance()
        rr = np.square(r[:, go]).sum(axis=0)
        far = rr / np.einsum("nk,nk->k", p[:, go], matrix @ p[:, go])
        at[:, go] += far * p[:, go]
        r[:, go] -= far * (matrix @ p[:, go])
        np.testing.assert_allclose(square, rr, **VALUE)
        np.testing.assert_allclose(stride, far, **VALUE)
        np.testing.assert_allclose(left, np.linalg.norm(r[:, go], axis=0), **FITS)
        np.testing.assert_allclose(engine.fetch(x)[:, columns], at, **FITS)
        kept = np.array([[1, 1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 0], [1]][step], bool)
        go = go[kept]
        if not kept.all():
            descent.keep(kept)
        descent.turn()
        new = np.square(r[:, go]).sum(axis=0)
        p[:, go] = r[:, go] + new / rr[kept] * p[:, go]
    assert not engine.fetch(x)[:, [1, 4]].any()


@both_engines
def test_the_kernel_matrix_is_the_dense_one(engine):
    problem = make_problem(N_ROWS, 2, precision=4)
    forest = build_forest(problem.codes, problem.orders, engine)
    found = engine.fetch(engine.kernel_matrix(forest.trees))
    np.testing.assert_allclose(found, problem.kernel(), **VALUE)
    np.testing.assert_allclose(found, dense(forest), **VALUE)


@both_engines
@pytest.mark.parametrize("rows", [[0], [0, 0, 0]])
def test_the_kernel_matrix_of_one_row_and_of_copies(engine, rows):
    problem = make_problem(4, 2, precision=2)
    some = replace(problem, X=problem.X[rows], rows=Rows(np.zeros(len(rows))))
    forest = build_forest(some.codes, some.orders, engine)
    found = engine.fetch(engine.kernel_matrix(forest.trees))
    np.testing.assert_allclose(found, some.kernel(), **VALUE)


@both_engines
def test_free_memory_is_that_of_a_device(engine):
    there = engine.free_bytes()
    assert (there == 0) == engine.on_host
    assert there >= 0


@both_engines
@pytest.mark.parametrize(
    ("size", "rank", "k"), [(8, 5, 1), (3, 70, 9), (21, 2, 4), (70, 6, 2), (1, 4, 2), (2, 65, 9)]
)
def test_woodbury(engine, size, rank, k):
    rng = np.random.default_rng(0)
    n = 150 if size == 70 else 21
    n_blocks = -(-n // size)
    rows = rng.permutation(n).astype(np.int32)
    local = rng.standard_normal((n_blocks, size, size))
    gain = rng.standard_normal((n_blocks * size, rank))
    gain[n:] = 0.0
    x = rng.standard_normal((n, k))
    blocks = np.zeros((n_blocks * size, n_blocks * size))
    for b in range(n_blocks):
        blocks[b * size : (b + 1) * size, b * size : (b + 1) * size] = local[b]
    expected = np.empty_like(x)
    expected[rows] = (blocks[:n, :n] - gain[:n] @ gain[:n].T) @ x[rows]
    held = Woodbury(*(engine.hold(part) for part in (rows, local, gain)))
    found = engine.fetch(engine.apply_woodbury(held, engine.hold(x)))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, **VALUE)


def test_kernels_that_were_recorded_run_again_on_what_is_there_now():
    engine = ENGINES["cuda"]
    forest = forest_of(engine)
    x = engine.hold(np.random.default_rng(0).standard_normal((N_ROWS, 3)))
    variance, out = engine.hold(np.linspace(1.0, 2.0, N_ROWS)), engine.hold(np.zeros((N_ROWS, 3)))
    engine.sum_products(forest.trees, x)
    batches = groves(forest.trees, 3)
    recording = card.Recording(lambda: write_products(batches, x, variance, out))
    assert card._active.recording is None
    for factor in (1.0, -2.0):
        x[...] = factor * x
        recording.again()
        expected = engine.fetch(engine.sum_products(forest.trees, x, variance))
        assert np.array_equal(engine.fetch(out), expected)
    with pytest.raises(ZeroDivisionError):
        card.Recording(lambda: 1 / 0)
    assert card._active.recording is None


def test_trees_in_several_batches_take_the_same_steps(monkeypatch):
    """No plan is made while steps are recorded."""
    engine = ENGINES["cuda"]
    b = engine.hold(np.random.default_rng(0).standard_normal((N_ROWS, 2)))
    options = {"preconditioner": None, "tolerance": 1e-3, "max_steps": 4}
    together = solve_held(forest_of(engine), 1.0, b, **options)
    monkeypatch.setattr(groves_module, "GROVE_BYTES", 1)
    forest, planned = forest_of(engine), []
    make_plan = groves_module.make_plan
    monkeypatch.setattr(
        groves_module, "make_plan", lambda *given: planned.append(recorded()) or make_plan(*given)
    )
    found = solve_held(forest, 1.0, b, **options)
    assert planned == [False, False]  # one per tree
    assert np.array_equal(engine.fetch(found.x), engine.fetch(together.x))
    assert found.n_steps == together.n_steps > 2


def recorded():
    return card._active.recording is not None


@both_engines
@pytest.mark.parametrize("tolerance", [1.0, 3.0])
def test_traces_to_a_tolerance_that_asks_for_nothing(engine, tolerance):
    """A probe takes at least one step."""
    forest = forest_of(engine)
    made = make_preconditioner(forest, 1.0, 5, np.random.default_rng(0))
    given = (forest, np.ones(N_ROWS), made, 2, 10, tolerance)
    traces, n_short = _log_traces(*given, np.random.default_rng(1))
    assert np.isfinite(traces).all()
    assert n_short == 0


@both_engines
def test_traces_of_what_is_not_positive(engine):
    """They are nan, and all probes count as short."""
    forest = forest_of(engine)
    made = make_preconditioner(forest, 1.0, 5, np.random.default_rng(0))
    traces, n_short = _log_traces(
        forest, np.full(N_ROWS, -1e3), made, 3, 10, 1e-3, np.random.default_rng(1)
    )
    assert np.isnan(traces).all()
    assert n_short == 3
