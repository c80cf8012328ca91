"""Training in batches and in step: the same fits as one by one."""

from dataclasses import replace

import numpy as np
import pytest

from card_engine import CardEngine
from optimise_problems import PRECISION, SETTINGS, make_problem, train_alone
from tolerances import REORDERED
from triegp.encoding.encoder import BitEncoder
from triegp.engines import CpuEngine
from triegp.mixture.batches import Batches, evaluate_candidates, train_in_step
from triegp.mixture.candidates import draw_candidates
from triegp.mixture.train import train_ensemble
from triegp.models.jobs import Stopwatch
from triegp.models.run import Run
from triegp.tree.rows import Rows


class Together(CpuEngine):
    """The CPU engine, asked for many at once."""

    batches = True


class CardTogether(CardEngine):
    """The same, with arrays that numpy can't get at."""

    batches = True


EXTRAS = [{}, {"weight": True}, {"known_noise": True}, {"weight": True, "known_noise": True}]


def orders_of(n, settings=SETTINGS):
    return draw_candidates(PRECISION, replace(settings, n_candidates=n), np.random.default_rng(0))


@pytest.mark.filterwarnings("ignore:.*line search:RuntimeWarning")  # as `train` does
@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs"])
@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("engine", [Together(n_threads=2), CardTogether()])
def test_fits_in_step_are_the_fits_one_by_one(optimizer, extras, n_targets, engine):
    problems = [make_problem(seed, 90, n_targets, **extras) for seed in (0, 0)]
    problems[1] = problems[1]._replace(codes=make_problem(1, 90).codes)  # another grid
    settings = replace(SETTINGS, optimizer=optimizer)
    starts = [(k % 2, order) for k, order in enumerate(orders_of(5))]
    batches = Batches(dict(enumerate(problems)), SETTINGS.noise, engine)
    together = train_in_step(starts, batches, settings, Stopwatch())
    lengths = set()
    for (grid, order), fit in zip(starts, together, strict=True):
        alone = train_alone(order, problems[grid], settings, Stopwatch())
        assert fit.order == alone.order
        assert fit.nll_per_row == alone.nll_per_row
        assert (fit.n_evaluations, fit.converged) == (alone.n_evaluations, alone.converged)
        assert fit.n_iter == alone.n_iter
        lengths.add(fit.n_evaluations)
    assert len(lengths) > 1  # they end at different times


@pytest.mark.parametrize("batch_rows", [1, 500, 10**9])
def test_candidates_in_batches_of_any_size(monkeypatch, batch_rows):
    monkeypatch.setattr("triegp.mixture.batches.BATCH_ROWS", batch_rows)
    problem, engine = make_problem(2, 100, 2), Counting()
    starts = [(0, order) for order in orders_of(7)]
    seen = []
    batches = Batches({0: problem}, SETTINGS.noise, engine)
    values = evaluate_candidates(starts, batches, Stopwatch(), seen.append)
    per_batch = max(1, batch_rows // 200)
    assert engine.sizes == [2 * len(starts[k : k + per_batch]) for k in range(0, 7, per_batch)]
    assert seen == [min(k + per_batch, 7) for k in range(0, 7, per_batch)]
    settings = replace(SETTINGS, max_iter=1)
    for (_, order), value in zip(starts, values, strict=True):
        first = Stopwatch()
        first.halt()  # a stopped fit has seen its start alone
        fit = train_alone(order, problem, settings, first)
        # its order went through log, exp
        assert value == pytest.approx(fit.nll_per_row, rel=REORDERED)
    assert evaluate_candidates([], batches, Stopwatch()) == []


class Counting(Together):
    """Remembers how many candidates were asked for together, and what was held."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "sizes", [])
        object.__setattr__(self, "held", [])

    def hold(self, array):
        self.held.append(array)
        return array

    def evaluate_many(self, candidates, *args, **kwargs):
        self.sizes.append(len(candidates))
        return super().evaluate_many(candidates, *args, **kwargs)


def test_rows_are_brought_to_the_engine_once():
    problem, engine = make_problem(3, 50, weight=True, known_noise=True), Counting()
    batches = Batches(dict.fromkeys(range(3), problem), SETTINGS.noise, engine)
    starts = [(k % 3, order) for k, order in enumerate(orders_of(6))]
    evaluate_candidates(starts, batches, Stopwatch())
    train_in_step(starts[:3], batches, SETTINGS, Stopwatch())
    assert len(engine.held) == 3 + 3  # codes of three grids; targets, known noise and weights once


def test_large_batches_are_split_while_fitting(monkeypatch):
    monkeypatch.setattr("triegp.mixture.batches.BATCH_ROWS", 220)
    problem, engine = make_problem(4, 100), Counting()
    starts = [(0, order) for order in orders_of(5)]
    split = train_in_step(
        starts, Batches({0: problem}, SETTINGS.noise, engine), SETTINGS, Stopwatch()
    )
    assert engine.sizes[:3] == [2, 2, 1]
    monkeypatch.undo()
    whole = train_in_step(
        starts, Batches({0: problem}, SETTINGS.noise, Together()), SETTINGS, Stopwatch()
    )
    assert [fit.order for fit in split] == [fit.order for fit in whole]


def test_candidates_that_the_watch_cuts_off_are_none(monkeypatch):
    monkeypatch.setattr("triegp.mixture.batches.BATCH_ROWS", 100)
    problem, watch = make_problem(5, 100), Stopwatch()

    def stop(done):
        if done == 2:
            watch.halt()

    starts = [(0, order) for order in orders_of(4)]
    values = evaluate_candidates(
        starts, Batches({0: problem}, SETTINGS.noise, Together()), watch, stop
    )
    assert [value is None for value in values] == [False, False, True, True]


def test_ctrl_c_between_batches_keeps_what_was_found(monkeypatch):
    monkeypatch.setattr("triegp.mixture.batches.BATCH_ROWS", 100)
    problem, watch, sizes = make_problem(6, 100), Stopwatch(), []

    class Pressed(Together):
        def evaluate_many(self, candidates, *args, **kwargs):
            sizes.append(len(candidates))
            if len(sizes) == 3:
                raise KeyboardInterrupt
            return super().evaluate_many(candidates, *args, **kwargs)

    starts = [(0, order) for order in orders_of(4)]
    values = evaluate_candidates(starts, Batches({0: problem}, SETTINGS.noise, Pressed()), watch)
    assert watch.interrupted
    assert [value is None for value in values] == [False, False, True, True]


def test_ctrl_c_while_fitting_keeps_the_best_of_every_fit():
    problem, watch, sizes = make_problem(7, 100), Stopwatch(), []

    class Pressed(Together):
        def evaluate_many(self, candidates, *args, **kwargs):
            sizes.append(len(candidates))
            if len(sizes) == 1:
                raise KeyboardInterrupt
            return super().evaluate_many(candidates, *args, **kwargs)

    starts = [(0, order) for order in orders_of(4)]
    fits = train_in_step(starts, Batches({0: problem}, SETTINGS.noise, Pressed()), SETTINGS, watch)
    assert watch.interrupted
    assert sizes == [4, 4]  # the one that was cut off, again; then the watch has stopped
    assert [(fit.n_evaluations, fit.converged) for fit in fits] == [(1, False)] * 4


def test_an_overflow_is_an_error_as_it_is_one_by_one():
    problem = make_problem(8, 30)
    huge = replace(problem.targets[0], y=1e149 * problem.targets[0].y)
    problem = problem._replace(targets=(huge,))
    settings, starts = replace(SETTINGS, nugget="bit"), [(0, order) for order in orders_of(2)]
    starts = [(0, replace(order, nugget="bit")) for _, order in starts]
    with pytest.raises(OverflowError, match="scale y or raise noise"):
        train_in_step(starts, Batches({0: problem}, 1e-20, Together()), settings, Stopwatch())


@pytest.mark.parametrize("own_grids", [True, False])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_an_ensemble_trained_in_step_is_the_same(own_grids, n_targets, monkeypatch):
    rng = np.random.default_rng(9)
    X = rng.random((150, 2))
    y = np.sin(5 * X[:, :1]) + 0.1 * rng.standard_normal((150, n_targets))
    rows = Rows((y - y.mean(axis=0)) / y.std(axis=0), X=X)
    encoders = [BitEncoder(scaling=scaling, precision=5).fit(X) for scaling in ("minmax", "ecdf")]
    settings = replace(SETTINGS, n_candidates=4, shift=own_grids, noise=1e-5)

    def train(engine):
        monkeypatch.setattr("triegp.mixture.train.choose", lambda *given: engine)
        told = []
        run = Run(np.random.default_rng(1), 2, Stopwatch(), lambda *at: told.append(at))
        trained = train_ensemble(encoders if own_grids else encoders[:1], rows, settings, run)
        return trained, {at[0]: at for at in told}

    (alone, last), (together, again) = train(CpuEngine()), train(Together(n_threads=2))
    assert together.n_evaluations == alone.n_evaluations
    assert last == again  # the last that is told of every stage
    members = zip(alone.fitted.members, together.fitted.members, strict=True)
    for one, two in members:
        assert one.trained.order == two.trained.order
        assert type(two.posteriors[0].trie.engine) is CpuEngine
    for target in range(n_targets):
        one, two = (
            part.predict(part.read(X[:20], var=True), target, var=True, latent=False)
            for part in (alone.fitted, together.fitted)
        )
        np.testing.assert_array_equal(one.means, two.means)
        np.testing.assert_array_equal(one.variances, two.variances)
