"""The public functions with the CUDA engine against the CPU engine, one by one.

Without a card they run in numba's simulator, under arrays as strict as CuPy's (`simulated_card`).
What is given on the host comes back on the host, what is given on the card comes back there. Values
agree to `tolerances.ENGINES` of the largest; structure agrees exactly.
"""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from device_arrays import Dlpack
from on_card import ON_CARD
from problems import make_problem, take
from simulated_card import strict_card
from tolerances import ENGINES
from triegp.encoding import Codes
from triegp.engines import CpuEngine
from triegp.engines.cuda import CudaEngine, card
from triegp.tree import (
    BitOrder,
    build_trie,
    condition,
    covariance_product,
    dense_covariance,
    draw_samples,
    evaluate_orders,
    factorize,
    insert,
    insert_rows,
    inverse_diagonal,
    joint_mean,
    joint_posterior,
    joint_prior,
    kernel_operator,
    leave_one_out,
    level_products,
    likelihood,
    predict,
    product,
    rebuild_trie,
    solve,
    trie_keys,
    whiten,
)
from triegp.tree.posterior import log_evidence, run_variance

CPU, CUDA = CpuEngine(n_threads=1), CudaEngine()

PROBLEMS = {
    "twins": {"n": 11, "n_new": 4, "precision": (3, 2), "shape": "twins"},
    "73 bits": {"n": 7, "n_new": 3, "precision": (32, 32, 9), "shape": "clustered"},
    "one row": {"n": 1, "n_new": 2, "precision": (5,), "nugget": "bit"},
}
LARGE = {
    "many rows": {"n": 200_003, "n_new": 5_000, "precision": (8, 8, 8), "shape": "twins"},
    "many bits": {"n": 50_001, "n_new": 2_000, "precision": (31, 32, 32, 32, 8)},
}


@pytest.fixture(scope="module", autouse=True)
def strict():
    with contextlib.nullcontext() if ON_CARD else strict_card():
        yield


class Case:
    """A problem, what is asked of it, and what both engines make of it."""

    def __init__(self, name):
        self.problem = make_problem(len(name), **(PROBLEMS | LARGE)[name])
        p = self.problem
        self.options = {"known_noise": p.known, "sample_weight": p.weight}
        self.new = with_outside(p.new)
        self.x = p.rng.standard_normal((p.n, 2))
        self.cpu, self.cuda = (build_trie(p.codes, p.order, engine=e) for e in (CPU, CUDA))
        self.tries = (self.cpu, self.cuda)
        self.posteriors = tuple(self.condition(trie) for trie in self.tries)
        self.factors = tuple(
            factorize(trie, p.order, p.noise, **self.options) for trie in self.tries
        )

    def condition(self, trie, **options):
        p = self.problem
        return condition(trie, p.codes, p.order, p.y, p.noise, **(options or self.options))


def with_outside(codes):
    """The same rows, the first of them outside the box."""
    return Codes(codes.packed, codes.precision, np.arange(codes.n_rows) == 0)


@pytest.fixture(
    scope="module",
    params=[*PROBLEMS, *(pytest.param(name, marks=pytest.mark.card) for name in LARGE)],
)
def case(request, strict):
    return Case(request.param)


def on_card(array):
    return card.xp.asarray(array)


def codes_on_card(codes):
    return replace(codes, packed=on_card(codes.packed))


def check(got, expected, given=None):
    """Of the kind that was given (or the host's), the same shape, close to the largest value."""
    kind = np.ndarray if given is None or isinstance(given, np.ndarray) else card.xp.ndarray
    assert type(got) is kind
    got = card.to_host(got)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    limit = ENGINES * np.abs(expected[finite]).max(initial=0.0)
    np.testing.assert_allclose(got[finite], expected[finite], rtol=ENGINES, atol=limit)


def check_moments(got, expected, given=None):
    check(got.mean, expected.mean, given)
    check(got.var, expected.var, given)


def same(got, expected):
    """An engine's own array of integers: exactly the same."""
    assert type(got) is card.xp.ndarray
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(card.to_host(got), expected)


def both_places(*arrays):
    """The arrays on the host and on the card."""
    return arrays, tuple(on_card(a) for a in arrays)


def test_host_and_card_do_not_mix():
    with pytest.raises(TypeError):
        on_card(np.ones(2)) + np.ones(2)
    with pytest.raises(TypeError):
        np.asarray(on_card(np.ones(2)))


# Tries


def test_tries(case):
    assert case.cuda.n_leaves == case.cpu.n_leaves
    same(case.cuda.row_idx, case.cpu.row_idx)
    for name in ("lcp", "depth", "left", "right"):
        got, expected = (getattr(trie.links, name) for trie in (case.cuda, case.cpu))
        same(got[1:], expected[1:])
    p = case.problem
    there = build_trie(codes_on_card(p.codes), p.order, engine=CUDA)
    same(there.row_idx, case.cpu.row_idx)


def test_rebuilt_tries(case):
    p = case.problem
    bits = np.append(p.order.bits[1::-1], p.order.bits[2:])
    other = replace(p.order, bits=bits)
    cpu, cuda = (rebuild_trie(trie, p.codes, other) for trie in case.tries)
    same(cuda.row_idx, cpu.row_idx)
    assert rebuild_trie(case.cuda, p.codes, p.order) is case.cuda


def test_keys_and_inserted_rows(case):
    p = case.problem
    cpu, cuda = (trie_keys(trie, p.codes) for trie in case.tries)
    same(cuda, cpu)
    expected, expected_keys = insert_rows(case.cpu, cpu, p.new)
    for keys, codes in ((cuda, p.new), (cpu, codes_on_card(p.new))):  # they may be the host's
        trie, all_keys = insert_rows(case.cuda, keys, codes)
        same(trie.row_idx, expected.row_idx)
        same(trie.links.lcp, expected.links.lcp)
        same(all_keys, expected_keys)


def test_sorting_values(case):
    for (x,) in both_places(case.x):
        check(case.cuda.sort(x), case.cpu.sort(case.x), x)
        check(case.cuda.unsort(x), case.cpu.unsort(case.x), x)


# Likelihood


@pytest.mark.parametrize("place", ["host", "card", "mixed"])
@pytest.mark.parametrize("names", [(), ("sample_weight",), ("known_noise", "sample_weight")])
def test_likelihood(case, place, names):
    p = case.problem
    y = p.y if place == "host" else on_card(p.y)
    options = {name: case.options[name] for name in names}
    given = {k: on_card(v) for k, v in options.items()} if place == "card" else options
    expected = likelihood(case.cpu, p.order, p.y, p.noise, row_gradients=True, **options)
    got = likelihood(case.cuda, p.order, y, p.noise, row_gradients=True, **given)
    np.testing.assert_allclose(got.nll, expected.nll, rtol=ENGINES)
    ours, theirs = got.gradient, expected.gradient
    check(ours.by_level, theirs.by_level)
    np.testing.assert_allclose(ours.by_noise, theirs.by_noise, rtol=ENGINES)
    check(ours.by_row_noise, theirs.by_row_noise, y)
    check(ours.by_target, theirs.by_target, y)


def test_likelihood_without_gradient(case):
    p = case.problem
    cpu, cuda = (likelihood(trie, p.order, p.y, p.noise) for trie in case.tries)
    np.testing.assert_allclose(cuda.nll, cpu.nll, rtol=ENGINES)
    assert cuda.gradient is None


def test_orders(case):
    p = case.problem
    orders = [p.order, BitOrder.from_phi(p.rng.standard_normal(p.order.n_bits))]
    cpu, host, there = (
        evaluate_orders(codes, orders, y, p.noise, gradient=True, engine=engine, **case.options)
        for codes, y, engine in (
            (p.codes, p.y, CPU),
            (p.codes, p.y, CUDA),
            (codes_on_card(p.codes), on_card(p.y), CUDA),
        )
    )
    for expected, *found in zip(cpu, host, there, strict=True):
        for got in found:
            np.testing.assert_allclose(got.nll, expected.nll, rtol=ENGINES)
            check(got.gradient.by_level, expected.gradient.by_level)


@pytest.mark.skipif(ON_CARD, reason="the stand-in is not on the card")
def test_arrays_of_other_libraries():
    p = make_problem(0, n=6)
    trie = build_trie(p.codes, p.order, engine=CUDA)
    got = likelihood(trie, p.order, Dlpack(p.y), p.noise, row_gradients=True).gradient
    assert type(got.by_target) is Dlpack
    expected = likelihood(trie, p.order, p.y, p.noise, row_gradients=True).gradient
    np.testing.assert_array_equal(got.by_target._array, expected.by_target)
    np.testing.assert_array_equal(
        product(trie, p.order.levels, Dlpack(p.y))._array, product(trie, p.order.levels, p.y)
    )


@pytest.mark.card
def test_tensors():
    torch = pytest.importorskip("torch")
    p = make_problem(0, n=60)
    trie = build_trie(p.codes, p.order, engine=CUDA)
    y = torch.as_tensor(p.y, device="cuda").requires_grad_()
    got = likelihood(trie, p.order, y, p.noise, row_gradients=True).gradient.by_target
    assert (type(got), got.device) == (torch.Tensor, y.device)
    expected = likelihood(trie, p.order, p.y, p.noise, row_gradients=True).gradient.by_target
    np.testing.assert_array_equal(got.cpu().numpy(), expected)


def test_the_cpu_engine_takes_arrays_of_the_card():
    p = make_problem(1, n=6)
    trie = build_trie(codes_on_card(p.codes), p.order, engine=CPU)
    x = on_card(p.y)
    check(product(trie, p.order.levels, x), product(trie, p.order.levels, p.y), x)
    posterior = condition(trie, codes_on_card(p.codes), p.order, x, p.noise)
    expected = predict(posterior, p.new)
    check(predict(posterior, codes_on_card(p.new)).mean, expected.mean, x)


def test_what_is_not_finite_is_refused_on_the_card():
    p = make_problem(0, n=3)
    trie = build_trie(p.codes, p.order, engine=CUDA)
    y = on_card(np.array([1.0, np.nan, 0.0]))
    with pytest.raises(ValueError, match="y must be finite, got nan at position 1"):
        likelihood(trie, p.order, y, 0.1)
    with pytest.raises(
        ValueError, match=r"y must be at most 1e\+150 in size, got 1e\+160 at row 2"
    ):
        likelihood(trie, p.order, on_card(np.array([0.0, 1.0, 1e160])), 0.1)
    weight = on_card(np.array([1, -1, 2]))
    with pytest.raises(
        ValueError, match=r"sample_weight must not be negative, got -1\.0 at position"
    ):
        likelihood(trie, p.order, on_card(p.y), 0.1, sample_weight=weight)
    with pytest.raises(ValueError, match="x must be an array of real numbers"):
        product(trie, p.order.levels, on_card(np.ones(3, complex)))


# Posterior


def test_predictions(case):
    for codes in (case.problem.new, case.new):
        expected = predict(case.posteriors[0], codes)
        for given in (codes, codes_on_card(codes)):
            got = predict(case.posteriors[1], given)
            check(got.mean, expected.mean, given.packed)
            check(got.var, expected.var, given.packed)
    got = predict(case.posteriors[1], case.new, var=False)
    check(got.mean, expected.mean)
    assert got.var is None
    outside = Codes(case.new.packed[:1], case.new.precision, np.ones(1, bool))
    assert predict(case.posteriors[1], outside).mean.tolist() == [0.0]


def test_predictions_apart_from_rows(case):
    p = case.problem
    for codes in (p.codes, case.new):
        expected = predict(case.posteriors[0], codes, apart=True)
        for given in (codes, codes_on_card(codes)):
            got = predict(case.posteriors[1], given, apart=True)
            for name in ("mean", "var", "run"):
                check(getattr(got, name), getattr(expected, name), given.packed)
    check(run_variance(case.posteriors[1]), run_variance(case.posteriors[0]))


def test_leaving_one_out(case):
    p = case.problem
    plain = tuple(case.condition(trie, known_noise=p.known) for trie in case.tries)
    for cpu, cuda in (case.posteriors, plain):
        for whole in (False, True):
            check_moments(leave_one_out(cuda, whole=whole), leave_one_out(cpu, whole=whole))
    there = condition(
        case.cuda, codes_on_card(p.codes), p.order, on_card(p.y), p.noise, **case.options
    )
    check_moments(leave_one_out(there), leave_one_out(case.posteriors[0]), there.rows.y)


def test_evidence(case):
    got, expected = (log_evidence(posterior) for posterior in case.posteriors[::-1])
    np.testing.assert_allclose(got, expected, rtol=ENGINES)


def test_rows_that_come_later(case):
    p = case.problem
    new, y = p.new, p.rng.standard_normal(p.new.n_rows)
    y_card, weight = on_card(y), np.arange(p.new.n_rows, dtype=float)
    plain = tuple(condition(trie, p.codes, p.order, p.y, p.noise) for trie in case.tries)
    there = condition(case.cuda, p.codes, p.order, on_card(p.y), p.noise)
    for cpu, cuda, own, options in (
        (*case.posteriors, y, {}),
        (*plain, y_card, {"known_noise": weight}),
        (plain[0], there, y, {"sample_weight": weight}),
        (plain[0], there, y_card, {}),
    ):
        expected = leave_one_out(insert(cpu, new, y, **options))
        grown = insert(cuda, codes_on_card(new), own, **options)
        assert type(grown.rows.y) is type(cuda.rows.y)
        check_moments(leave_one_out(grown), expected, cuda.rows.y)
    assert insert(there, take(new, slice(0, 0)), y_card[:0]) is there


# Operators


def test_products(case):
    levels = case.problem.order.levels
    for (x,) in both_places(case.x):
        check(product(case.cuda, levels, x), product(case.cpu, levels, case.x), x)
        one = product(case.cuda, on_card(levels), x[:, 0])
        check(one, product(case.cpu, levels, case.x[:, 0]), x)
    operator = kernel_operator(case.cuda, levels)
    check(operator @ case.x, product(case.cpu, levels, case.x))


def test_solves(case):
    cpu, cuda = case.factors
    np.testing.assert_allclose(cuda.log_det, cpu.log_det, rtol=ENGINES)
    for (x,) in both_places(case.x):
        check(solve(cuda, x), solve(cpu, case.x), x)
        check(whiten(cuda, x), whiten(cpu, case.x), x)
    check(inverse_diagonal(cuda), inverse_diagonal(cpu))


def test_level_products(case):
    x, z = case.x, case.x[::-1].copy()
    for pair in both_places(x, z):
        check(level_products(case.cuda, *pair), level_products(case.cpu, x, z), pair[0])
    check(level_products(case.cuda, x[:, 0]), level_products(case.cpu, x[:, 0]))


# Joint distributions


def test_joint_prior(case):
    codes, order = case.new, case.problem.order
    cpu = joint_prior(codes, order, engine=CPU)
    for given in (codes, codes_on_card(codes)):
        check_joint(joint_prior(given, order, engine=CUDA), cpu, given.packed)


def test_joint_posterior(case):
    for codes in (case.problem.new, case.new):
        cpu = joint_posterior(case.posteriors[0], codes)
        for given in (codes, codes_on_card(codes)):
            check_joint(joint_posterior(case.posteriors[1], given), cpu, given.packed)


def check_joint(cuda, cpu, given):
    check(joint_mean(cuda), joint_mean(cpu), given)
    got, expected = (draw_samples(joint, 2, np.random.default_rng(0)) for joint in (cuda, cpu))
    check(got, expected, given)
    x = np.random.default_rng(1).standard_normal((cpu.n_points, 2))
    for (own,) in both_places(x):
        check(covariance_product(cuda, own), covariance_product(cpu, x), own)
    if cpu.n_points < 100:
        check(dense_covariance(cuda), dense_covariance(cpu), given)


def test_points_outside_the_box(case):
    p = case.problem
    codes = Codes(p.new.packed, p.new.precision, np.ones(p.new.n_rows, bool))
    cpu = joint_posterior(case.posteriors[0], codes)
    for given in (codes, codes_on_card(codes)):
        check_joint(joint_posterior(case.posteriors[1], given), cpu, given.packed)
