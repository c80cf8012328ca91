"""Functions drawn from one tree: their law by dense algebra, and values that depend on the row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draw_problems import check_moments
from oracle import kernel, posterior, unpack_bits
from oracle_points import Units
from tolerances import HANDFUL
from triegp.encoding.codes import pack_codes, select_codes
from triegp.engines import CpuEngine, draws, keyed
from triegp.tree import BitOrder, build_trie, condition, draw_samples, insert, joint_posterior
from triegp.tree.draws import evaluate_draws
from triegp.tree.trie import sorted_keys

N_DRAWS = 20_000


def seeds(k, tag=0):
    return keyed.derive(np.arange(k, dtype=np.uint64), 4, tag)


def problem(rng, n=30, m=12, d=3, precision=3, nugget="row", noise=0.05, dtype=np.float64, zeros=0):
    """A posterior, new rows, and mean and covariance of f there by dense algebra."""
    q = d * precision
    rows = pack_codes(rng.integers(0, 2**precision, (n, d)), precision)
    new = pack_codes(rng.integers(0, 2**precision, (m, d)), precision)
    weights = rng.dirichlet(np.full(q, 0.5))
    if zeros:
        weights[rng.permutation(q)[:zeros]] = 0.0
        weights /= weights.sum()
    order = BitOrder.from_weights(rng.permutation(q), weights, scale=1.7, nugget=nugget)
    y, extra = rng.standard_normal(n), rng.random(n)
    trie = build_trie(rows, order)
    found = condition(trie, rows, order, y, noise, known_noise=extra, dtype=dtype)
    a, b = (unpack_bits(codes, order.key_bits) for codes in (rows, new))
    own = 1.7 * order.weights[: order.n_levels]
    k_train, k_cross, k_new = kernel(a, a, own), kernel(a, b, own), kernel(b, b, own)
    total = noise + extra + order.nugget_variance
    return found, new, *posterior(k_train, total, k_cross, k_new, y)


@pytest.mark.parametrize("nugget", ["row", "bit"])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"n": 1, "m": 6},
        {"n": 12, "m": 8, "d": 10, "precision": 8},  # 80 bits
        {"n": 12, "m": 8, "d": 20, "precision": 7},  # 140 bits
        {"n": 60, "m": 8, "d": 1, "precision": 3},  # rows that share their keys
        {"zeros": 5},
        {"noise": 1e-6, "n": 20},
    ],
)
def test_draws_have_the_posterior_law_of_dense_algebra(shape, nugget):
    rng = np.random.default_rng(3)
    found, new, mean, cov = problem(rng, nugget=nugget, **shape)
    check_moments(evaluate_draws(found, new, seeds(N_DRAWS)), mean, cov)


def test_draws_at_training_rows_and_twice_the_same_row():
    rng = np.random.default_rng(0)
    found, new, mean, cov = problem(rng)
    twice = np.repeat(np.arange(new.n_rows), 2)
    drawn = evaluate_draws(found, select_codes(new, twice), seeds(N_DRAWS))
    np.testing.assert_array_equal(drawn[::2], drawn[1::2])
    check_moments(drawn, mean[twice], cov[np.ix_(twice, twice)])


def test_float32_messages_change_draws_by_their_rounding():
    one, new, *_ = problem(np.random.default_rng(1))
    two, _, *_ = problem(np.random.default_rng(1), dtype=np.float32)
    drawn = [evaluate_draws(found, new, seeds(50)) for found in (one, two)]
    np.testing.assert_allclose(*drawn, atol=1e-5)


def test_draws_where_the_noise_is_too_small_a_share_for_float64():
    """At a training row f has the variance of the noise, which is 1e-360 of the scale."""
    rows = pack_codes([[0], [3]], 2)
    order = BitOrder.from_weights([0, 1], [0.5, 0.5], scale=1e60, nugget="bit")
    found = condition(build_trie(rows, order), rows, order, [0.0, 0.0], 1e-300)
    drawn = evaluate_draws(found, rows, seeds(N_DRAWS)) * 1e150
    check_moments(drawn, np.zeros(2), np.eye(2))
    root = draw_samples(joint_posterior(found, rows), 4, Units())
    np.testing.assert_allclose(root @ root.T, 1e-300 * np.eye(2), rtol=HANDFUL)


def test_prior_draws_have_the_kernel_as_covariance():
    rng = np.random.default_rng(2)
    found, new, *_ = problem(rng)
    query = sorted_keys(found.trie, new)
    order = found.order
    drawn = draws.walk_prior(query.keys, query.lcp, order.levels, seeds(N_DRAWS), 2)
    bits = unpack_bits(new, order.key_bits)[query.row_idx]
    cov = kernel(bits, bits, 1.7 * order.weights[: order.n_levels])
    check_moments(drawn, np.zeros(new.n_rows), cov)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(3, 3), (9, 8), (20, 7)]))
def test_a_value_depends_on_its_row_only(seed, shape):
    rng = np.random.default_rng(seed)
    found, new, *_ = problem(rng, m=40, d=shape[0], precision=shape[1])
    own = seeds(33)
    whole = evaluate_draws(found, new, own)
    some = rng.choice(40, rng.integers(1, 41))
    np.testing.assert_array_equal(evaluate_draws(found, select_codes(new, some), own), whole[some])
    few = rng.permutation(33)[:5]
    np.testing.assert_array_equal(evaluate_draws(found, new, own[few]), whole[:, few])


def test_blocks_and_threads_do_not_matter():
    rng = np.random.default_rng(4)
    found, _, *_ = problem(rng, d=4, precision=8)
    new = pack_codes(rng.integers(0, 256, (50_000, 4)), 8)
    query = sorted_keys(found.trie, new)
    located = CpuEngine().locate(found.trie.links, found.keys, query.keys, query.row_idx)
    given = (query.keys, query.lcp, located, found.trie.links, found.order.levels, found.inside)
    one, two = (draws.walk_posterior(*given, seeds(3), n) for n in (1, 3))
    np.testing.assert_array_equal(one, two)
    some = np.sort(rng.choice(50_000, 100))
    alone = evaluate_draws(found, select_codes(new, query.row_idx[some]), seeds(3))
    np.testing.assert_array_equal(alone, one[some])


def test_functions_of_different_seeds_are_independent():
    found, new, mean, _ = problem(np.random.default_rng(5))
    one, two = (evaluate_draws(found, new, seeds(N_DRAWS, tag)) - mean[:, None] for tag in (0, 1))
    products = one[:, None] * two[None]
    error = products.std(axis=-1) / np.sqrt(N_DRAWS)
    assert np.abs(products.mean(axis=-1) / error).max() < 5.0


def test_more_rows_change_functions_where_they_are():
    """Draws of the grown posterior keep their random numbers: with the same data, the same bits."""
    rng = np.random.default_rng(6)
    found, new, *_ = problem(rng)
    grown = insert(found, select_codes(new, np.array([0])), [3.0])
    before, after = (evaluate_draws(one, new, seeds(2_000)) for one in (found, grown))
    assert np.corrcoef(before[5], after[5])[0, 1] > 0.5


def test_no_rows():
    found, new, *_ = problem(np.random.default_rng(7))
    nothing = select_codes(new, np.zeros(0, np.int64))
    assert evaluate_draws(found, nothing, seeds(3)).shape == (0, 3)
