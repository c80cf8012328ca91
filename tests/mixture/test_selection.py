"""Members without weight on a part of the rows are not trained on more."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from optimise_problems import PRECISION, SETTINGS, make_problem
from triegp import BinaryTreeGPRegressor
from triegp.engines import CpuEngine
from triegp.mixture import parts
from triegp.mixture.candidates import draw_candidates, nll_per_row
from triegp.mixture.optimise import TrainedOrder
from triegp.mixture.selection import select_useful
from triegp.mixture.weights import average

FLOOR = 1e-2
AVERAGED = replace(SETTINGS, n_candidates=12, mixture="calibrated", final_noise=FLOOR)


def learned_orders(problem, seed=0):
    orders = list(draw_candidates(PRECISION, AVERAGED, np.random.default_rng(seed)))
    values = [nll_per_row(problem, order, FLOOR) for order in orders]
    pairs = zip(orders, values, strict=True)
    return [(0, TrainedOrder(order, value, 1, 1, True)) for order, value in pairs]


def dense_weights(problem, learned, target):
    """Weights of the average by the leave-one-out predictions of dense algebra."""
    y = problem.targets[target].y
    means, variances = [], []
    for _, one in learned:
        bits = oracle.unpack_bits(problem.codes, one.order.key_bits)
        weights = one.order.scale * one.order.weights[: one.order.n_levels]
        noise = FLOOR + one.order.nugget_variance
        mean, var = oracle.leave_one_out(oracle.kernel(bits, bits, weights), noise, y)
        means.append(mean)
        variances.append(var + noise)
    return average(np.stack(means), np.stack(variances), y)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_members_with_weight_stay(seed, n_targets, monkeypatch):
    monkeypatch.setattr("triegp.mixture.selection.LEAST_MEMBERS", 1)
    problem = make_problem(seed, n_targets=n_targets)
    learned = learned_orders(problem, seed)
    useful = np.any([dense_weights(problem, learned, t) > 0 for t in range(n_targets)], axis=0)
    assert 1 < useful.sum() < len(learned)
    for n_threads in (1, 2):
        found = select_useful(
            learned, [None], {0: problem}, AVERAGED, CpuEngine(n_threads=n_threads)
        )
        assert [one for _, one in found] == [
            one for (_, one), keep in zip(learned, useful, strict=True) if keep
        ]


def test_at_least_eight_members_stay():
    problem = make_problem()
    learned = learned_orders(problem)
    weight = dense_weights(problem, learned, 0)
    assert (weight > 0).sum() < 8
    found = {
        id(one)
        for _, one in select_useful(learned, [None], {0: problem}, AVERAGED, CpuEngine(n_threads=1))
    }
    assert len(found) == 8
    values = [one.nll_per_row for _, one in learned]
    others = [k for k in np.argsort(values) if weight[k] == 0][: 8 - int((weight > 0).sum())]
    assert found == {id(learned[k][1]) for k in [*np.flatnonzero(weight > 0), *others]}
    few = learned[:8]
    assert select_useful(few, [None], {0: problem}, AVERAGED, CpuEngine(n_threads=1)) == few


def test_a_mixture_of_densities_keeps_all_members():
    problem = make_problem()
    learned = learned_orders(problem)
    settings = replace(AVERAGED, mixture="stacking")
    assert select_useful(learned, [None], {0: problem}, settings, CpuEngine(n_threads=1)) == learned


def test_members_left_out_are_no_early_stop(monkeypatch):
    monkeypatch.setattr(parts, "LEAST_ROWS", 200)
    rng = np.random.default_rng(0)
    X = rng.random((1_000, 3))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(1_000)
    seen = []

    def note(learned, *given):
        kept = select_useful(learned, *given)
        seen.append((len(learned), len(kept)))
        return kept

    monkeypatch.setattr("triegp.mixture.learning.select_useful", note)
    model = BinaryTreeGPRegressor(n_members=12, n_candidates=2, max_iter=10, random_state=0)
    model.fit(X, y)
    ((before, after),) = seen
    assert 8 <= after < before == 12
    assert not model.stopped_early_
    assert len(model.ensembles_[0].members) <= after
