"""Few rows in many trees: the same bits as one call per tree."""

from dataclasses import replace

import numpy as np
import pytest

from forest_problems import make_problem
from triegp.additive import points as points_module
from triegp.additive.points import forest_mean, new_keys, read_points


@pytest.fixture(params=[None, "neighbours"])
def problem(request):
    return make_problem(n=200, d=3, smooth=request.param)


def both_ways(model, new, monkeypatch, ask):
    """What `ask` returns with all trees at once, and with one call per tree."""
    few = ask(model, read_points(model, new))
    monkeypatch.setattr(points_module, "FEW_NEW", 0)
    return few, ask(model, read_points(model, new))


@pytest.mark.parametrize("ask", [forest_mean, new_keys])
def test_all_trees_at_once_give_the_bits_of_one_by_one(problem, ask, monkeypatch):
    few, many = both_ways(problem.condition(), problem.new[:40], monkeypatch, ask)
    np.testing.assert_array_equal(few, many)


@pytest.mark.parametrize("ask", [forest_mean, new_keys])
def test_training_rows_and_rows_outside(problem, ask, monkeypatch):
    new = np.vstack([problem.X[:10], problem.X[:5] + 100.0, problem.X[:5] - 100.0])
    few, many = both_ways(problem.condition(), new, monkeypatch, ask)
    np.testing.assert_array_equal(few, many)


def test_one_training_row(monkeypatch):
    """A trie of one leaf has no node."""
    problem = make_problem(n=1, d=2)
    few, many = both_ways(problem.condition(), problem.new[:5], monkeypatch, forest_mean)
    np.testing.assert_array_equal(few, many)


def test_keys_of_different_lengths(monkeypatch):
    """Trees on grids of other precisions; the longest keys have more than 64 bits."""
    problem = make_problem(n=60, d=3, precision=30)
    model = problem.condition()
    assert model.key_bits.n_words > 1
    few, many = both_ways(model, problem.new[:9], monkeypatch, new_keys)
    np.testing.assert_array_equal(few, many)


def test_means_of_keys_of_different_lengths(monkeypatch):
    """Some trees read one word, others two."""
    problem = make_problem(n=60, d=3, precision=30)
    model = problem.condition()
    short = make_problem(n=60, d=3, precision=20).condition()
    mixed = replace(
        model,
        encoders=model.encoders[:2] + short.encoders[2:],
        orders=model.orders[:2] + short.orders[2:],
        forest=replace(
            model.forest,
            tries=model.forest.tries[:2] + short.forest.tries[2:],
            levels=model.forest.levels[:2] + short.forest.levels[2:],
        ),
        keys=model.keys[:2] + short.keys[2:],
    )
    assert {part.shape[1] for part in mixed.keys} == {1, 2}
    few, many = both_ways(mixed, problem.new[:9], monkeypatch, forest_mean)
    np.testing.assert_array_equal(few, many)
