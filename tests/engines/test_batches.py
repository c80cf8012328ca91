"""Many orders at once: the same as one by one, whatever memory the rows lie in."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from card_engine import CardEngine
from device_arrays import DeviceArray
from problems import make_problem, problems
from triegp.engines import Candidate, CpuEngine
from triegp.tree import BitOrder, build_trie, evaluate_orders, likelihood
from triegp.tree.likelihood import Case, evaluate_cases
from triegp.tree.rows import add_noise, check_rows, hold_rows

EXTRAS = [{}, {"known_noise": True}, {"sample_weight": True}]
EXTRAS.append({"known_noise": True, "sample_weight": True})


def candidate_of(problem, variance):
    order = problem.order
    return Candidate(problem.codes.packed, order.key_bits, order.levels, problem.y, variance)


def options_of(problem, extras):
    values = {"known_noise": problem.known, "sample_weight": problem.weight}
    return {name: values[name] for name in extras}


@given(problems)
def test_a_candidate_has_the_bits_of_a_trie(problem):
    variance = problem.row_noise()
    trie = build_trie(problem.codes, problem.order)
    engine = CpuEngine(n_threads=2)
    args = (trie.row_idx, problem.y, variance, np.dtype(float), True)
    sums, adjoints = engine.evaluate(trie.links, problem.order.levels, *args)
    by_level, by_var = adjoints.by_level, trie.unsort(adjoints.by_var)
    by_noise = float(adjoints.by_var.sum())
    one, two = (
        engine.evaluate_many(2 * [candidate_of(problem, variance)], np.dtype(float), True, rows)
        for rows in (False, True)
    )
    for found in (*one, *two):
        assert found.sums == sums
        assert found.by_noise == by_noise
        np.testing.assert_array_equal(found.by_level, by_level)
    assert one[0].by_var is None
    np.testing.assert_array_equal(two[1].by_var, by_var)


def test_no_gradient_where_none_is_wanted_or_there_is_none():
    problem = make_problem(0)
    engine = CpuEngine()
    (plain,) = engine.evaluate_many([candidate_of(problem, np.ones(1))], np.dtype(float), False)
    assert (plain.by_level, plain.by_var) == (None, None)
    assert math.isnan(plain.by_noise)
    huge = candidate_of(replace(problem, y=problem.y * 1e200), np.array([1e-250]))
    (found,) = engine.evaluate_many([huge], np.dtype(float), True)
    assert found.sums.square == math.inf
    assert (found.by_level, found.by_var) == (None, None)
    assert engine.evaluate_many([], np.dtype(float), True) == []


def test_the_cpu_holds_arrays_as_they_are():
    array = np.arange(3)
    assert CpuEngine().hold(array) is array
    assert not CpuEngine().batches


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("gradient", [True, False])
def test_cases_over_different_rows_equal_one_by_one(extras, dtype, gradient):
    """Different rows, widths and nuggets in one batch; the same bits as by way of a trie."""
    shapes = [("row", (3, 2)), ("bit", (32, 32, 9)), ("row", (5,))]
    several = [
        make_problem(k, n=10 + k, precision=precision, nugget=nugget)
        for k, (nugget, precision) in enumerate(shapes)
    ]
    cases = [
        Case(p.codes, p.order, check_rows(p.y, n_rows=p.n, **options_of(p, extras)))
        for p in several
    ]
    batch = evaluate_cases(cases, 0.05, CpuEngine(n_threads=2), gradient=gradient, dtype=dtype)
    for p, got in zip(several, batch, strict=True):
        trie = build_trie(p.codes, p.order)
        options = options_of(p, extras)
        alone = likelihood(trie, p.order, p.y, 0.05, gradient=gradient, dtype=dtype, **options)
        assert got.nll == alone.nll
        assert (got.gradient is None) == (not gradient)
        if gradient:
            assert got.gradient.by_noise == alone.gradient.by_noise
            np.testing.assert_array_equal(got.gradient.by_level, alone.gradient.by_level)


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("n", [1, 12])
def test_rows_in_an_engines_own_memory(extras, n):
    """They are never mixed with numpy's arrays, nor converted to them implicitly."""
    problem = make_problem(3, n=n)
    rows = check_rows(problem.y, n_rows=n, **options_of(problem, extras))
    here, there = (
        evaluate_orders(
            problem.codes,
            [problem.order],
            problem.y,
            0.1,
            gradient=True,
            engine=engine,
            **options_of(problem, extras),
        )
        for engine in (CpuEngine(), CardEngine())
    )
    assert there[0].nll == here[0].nll
    assert there[0].gradient.by_noise == here[0].gradient.by_noise
    np.testing.assert_array_equal(there[0].gradient.by_level, here[0].gradient.by_level)
    held = hold_rows(rows, CardEngine().hold)
    if extras:
        assert isinstance(add_noise(held, problem.order, 0.1).variance, DeviceArray)


def test_bad_rows_in_an_engines_own_memory_are_refused():
    problem = make_problem(4, n=3)
    for name, bad in (("known_noise", [0, 1e301, 0]), ("sample_weight", [1.0, 1e-320, 1.0])):
        rows = hold_rows(check_rows(problem.y, n_rows=3, **{name: bad}), DeviceArray)
        with pytest.raises(ValueError, match=f"{name} must"):
            add_noise(rows, problem.order, 0.1)


@pytest.mark.parametrize("engine", [CpuEngine(), CardEngine()])
def test_an_overflow_of_one_order_is_an_error(engine):
    problem = make_problem(5, n=6, nugget="bit", shape="equal")  # the noise is all that parts them
    y = problem.y * 1e149
    with pytest.raises(OverflowError, match="the nll exceeds float64"):
        evaluate_orders(problem.codes, [problem.order], y, 1e-30, gradient=True, engine=engine)
    (found,) = evaluate_orders(problem.codes, [problem.order], y, 1e-30, engine=engine)
    assert found.nll == math.inf


def test_bad_orders_are_refused():
    problem = make_problem(6, n=6)
    wrong = BitOrder.from_weights([0, 1], [0.5, 0.5])
    with pytest.raises(ValueError, match="order must have 5 bits as the codes do, got 2"):
        evaluate_orders(problem.codes, [wrong], problem.y, 0.1)
