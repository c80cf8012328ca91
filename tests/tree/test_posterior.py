import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from problems import make_problem, problems, take
from tolerances import SINGLE, SUMMED, VALUE
from triegp import sros
from triegp.encoding import Codes, pack_codes
from triegp.tree import build_trie, condition, insert, leave_one_out, predict
from triegp.tree.posterior import condition_rows, log_evidence, run_variance
from triegp.tree.rows import Rows


def fit(problem, rows=slice(None), **options):
    codes = take(problem.codes, rows)
    options = {key: value[rows] for key, value in options.items()}
    trie = build_trie(codes, problem.order)
    return condition(trie, codes, problem.order, problem.y[rows], problem.noise, **options)


def dense(problem, bits, known=True):
    return oracle.posterior(
        problem.kernel(),
        problem.row_noise(known),
        problem.kernel(problem.bits, bits),
        problem.kernel(bits),
        problem.y,
    )


@given(problems, st.booleans())
def test_prediction_against_dense_algebra(problem, known):
    posterior = fit(problem, **({"known_noise": problem.known} if known else {}))
    for codes, bits in ((problem.new, problem.new_bits), (problem.codes, problem.bits)):
        mean, covariance = dense(problem, bits, known)
        got = predict(posterior, codes)
        np.testing.assert_allclose(got.mean, mean, **VALUE)
        np.testing.assert_allclose(got.var, np.diag(covariance), **VALUE)
        alone = predict(posterior, codes, var=False)
        np.testing.assert_array_equal(alone.mean, got.mean)
        assert alone.var is None
    assert posterior.new_noise == problem.noise + problem.order.nugget_variance


@given(problems)
def test_prediction_against_sros(problem):
    if problem.order.n_levels == 0:
        return
    posterior = fit(problem)
    got = predict(posterior, problem.new)
    other = sros.gp_regression(
        problem.bits, problem.y, problem.new_bits, problem.level_weights, posterior.new_noise
    )
    np.testing.assert_allclose(got.mean, other.mean, **VALUE)
    np.testing.assert_allclose(got.var + posterior.new_noise, other.var, **VALUE)


@given(problems, st.booleans())
def test_leave_one_out_against_refits(problem, known):
    posterior = fit(problem, **({"known_noise": problem.known} if known else {}))
    mean, var = oracle.leave_one_out(problem.kernel(), problem.row_noise(known), problem.y)
    got = leave_one_out(posterior)
    np.testing.assert_allclose(got.mean, mean, **VALUE)
    np.testing.assert_allclose(got.var, var, **VALUE)


@given(problems)
def test_integer_weight_is_repetition(problem):
    rows = np.repeat(np.arange(problem.n), problem.weight.astype(int))
    weighted = fit(problem, known_noise=problem.known, sample_weight=problem.weight)
    repeated = fit(problem, rows, known_noise=problem.known)
    got, expected = predict(weighted, problem.new), predict(repeated, problem.new)
    np.testing.assert_allclose(got.mean, expected.mean, **VALUE)
    np.testing.assert_allclose(got.var, expected.var, **VALUE)
    got, expected = leave_one_out(weighted), leave_one_out(repeated)
    np.testing.assert_allclose(got.mean[rows], expected.mean, **VALUE)
    np.testing.assert_allclose(got.var[rows], expected.var, **VALUE)
    dropped = problem.weight == 0  # a row of weight 0 is predicted like a new one
    new = predict(repeated, take(problem.codes, dropped))
    np.testing.assert_allclose(got.mean[dropped], new.mean, **VALUE)
    np.testing.assert_allclose(got.var[dropped], new.var, **VALUE)


@given(problems, st.integers(1, 29), st.sampled_from(["plain", "known", "weight"]))
def test_insertion_is_a_refit_to_the_last_bit(problem, split, kind):
    split = min(split, problem.n)
    options = {"known": {"known_noise": problem.known}, "weight": {"sample_weight": problem.weight}}
    options = options.get(kind, {})
    first, rest = slice(0, split), slice(split, None)
    begun = fit(problem, first, **options)
    before = predict(begun, problem.new)
    tail = {key: value[rest] for key, value in options.items()}
    grown = insert(begun, take(problem.codes, rest), problem.y[rest], **tail)
    whole = fit(problem, **options)
    np.testing.assert_array_equal(grown.keys, whole.keys)
    for got, expected in (
        (predict(grown, problem.new), predict(whole, problem.new)),
        (leave_one_out(grown), leave_one_out(whole)),
    ):
        np.testing.assert_array_equal(got.mean, expected.mean)
        np.testing.assert_array_equal(got.var, expected.var)
    again = predict(begun, problem.new)  # what was there is not changed
    np.testing.assert_array_equal(again.mean, before.mean)


def test_the_posterior_keeps_its_own_copies():
    problem = make_problem(3, n=12)
    y, weight = problem.y.copy(), problem.weight.copy()
    trie = build_trie(problem.codes, problem.order)
    posterior = condition(
        trie, problem.codes, problem.order, y, problem.noise, sample_weight=weight
    )
    grown = insert(posterior, problem.new, np.zeros(8), sample_weight=np.zeros(8))
    y[:], weight[:] = 99.0, 7.0
    again = insert(posterior, problem.new, np.zeros(8), sample_weight=np.zeros(8))
    np.testing.assert_array_equal(
        predict(again, problem.new).mean, predict(grown, problem.new).mean
    )
    np.testing.assert_array_equal(leave_one_out(again).var, leave_one_out(grown).var)


def test_insertion_mixes_known_noise_and_weights():
    problem = make_problem(3, n=12)
    first, rest = slice(0, 5), slice(5, None)
    grown = insert(
        fit(problem, first),
        take(problem.codes, rest),
        problem.y[rest],
        known_noise=problem.known[rest],
        sample_weight=problem.weight[rest] + 1,
    )
    known = np.where(np.arange(12) < 5, 0.0, problem.known)
    weight = np.where(np.arange(12) < 5, 1.0, problem.weight + 1)
    whole = fit(problem, known_noise=known, sample_weight=weight)
    np.testing.assert_array_equal(leave_one_out(grown).mean, leave_one_out(whole).mean)
    nothing = insert(grown, take(problem.codes, slice(0, 0)), [])
    assert nothing is grown
    with pytest.raises(ValueError, match="known_noise must have 0 entries, got 1"):
        insert(grown, take(problem.codes, slice(0, 0)), [], known_noise=[1.0])


def test_rows_outside_the_box_are_unrelated():
    problem = make_problem(0)
    posterior = fit(problem)
    codes = Codes(problem.new.packed, problem.new.precision, np.arange(8) % 3 == 0)
    got, clipped = predict(posterior, codes), predict(posterior, problem.new)
    np.testing.assert_array_equal(got.mean[::3], 0.0)
    np.testing.assert_array_equal(got.var[::3], problem.order.prior_variance)
    inside = np.arange(8) % 3 != 0
    np.testing.assert_array_equal(got.mean[inside], clipped.mean[inside])
    np.testing.assert_array_equal(got.var[inside], clipped.var[inside])
    nowhere = Codes(problem.new.packed, problem.new.precision, np.ones(8, bool))
    assert not predict(posterior, nowhere, var=False).mean.any()
    with pytest.raises(ValueError, match="added rows must lie inside the box, row 0 does not"):
        insert(posterior, codes, np.zeros(8))


def test_float32_messages():
    problem = make_problem(4, n=300, precision=(8, 8))
    trie = build_trie(problem.codes, problem.order)
    double, single = (
        predict(
            condition(trie, problem.codes, problem.order, problem.y, 0.05, dtype=dtype), problem.new
        )
        for dtype in (np.float64, np.float32)
    )
    np.testing.assert_allclose(single.mean, double.mean, **SINGLE)
    np.testing.assert_allclose(single.var, double.var, **SINGLE)
    assert (single.mean != double.mean).any()


def test_no_new_rows():
    problem = make_problem(0)
    got = predict(fit(problem), take(problem.codes, slice(0, 0)))
    assert got.mean.shape == got.var.shape == (0,)


def test_bad_input_is_named():
    problem = make_problem(0, n=6)
    posterior = fit(problem)
    with pytest.raises(ValueError, match="codes must have 5 bits as the posterior does, got 3"):
        predict(posterior, pack_codes([[1]], 3))
    with pytest.raises(ValueError, match="codes must have the trie's 6 rows, got 5"):
        condition(posterior.trie, take(problem.codes, slice(0, 5)), problem.order, problem.y, 0.1)
    with pytest.raises(ValueError, match="y must have 8 entries, got 6"):
        insert(posterior, problem.new, problem.y)


# Folded rows: several observations in one row.


def folded(problem):
    """Observations at the rows of a problem, and the same folded into its rows."""
    rng = np.random.default_rng(problem.n)
    source = np.repeat(np.arange(problem.n), 1 + rng.integers(0, 3, problem.n))
    y, count = rng.standard_normal(source.size), rng.integers(1, 4, source.size).astype(float)
    total = np.bincount(source, count)
    mean = np.bincount(source, count * y) / total
    scatter = np.bincount(source, count * np.square(y - mean[source]))
    rows = Rows(mean, problem.known, total, copies=total, scatter=scatter)
    return np.repeat(source, count.astype(int)), np.repeat(y, count.astype(int)), rows


@given(problems)
def test_folded_rows_are_their_observations(problem):
    source, y, rows = folded(problem)
    trie = build_trie(problem.codes, problem.order)
    few = condition_rows(trie, problem.codes, problem.order, rows, problem.noise)
    codes = take(problem.codes, source)
    known = problem.known[source]
    trie = build_trie(codes, problem.order)
    many = condition(trie, codes, problem.order, y, problem.noise, known_noise=known)
    for apart in (False, True):
        got, expected = (predict(part, problem.new, apart=apart) for part in (few, many))
        np.testing.assert_allclose(got.mean, expected.mean, **VALUE)
        np.testing.assert_allclose(got.var, expected.var, **VALUE)
    np.testing.assert_allclose(log_evidence(few), log_evidence(many), rtol=SUMMED, atol=SUMMED)
    dense = problem.kernel(problem.bits[source]) + np.diag(problem.row_noise()[source])
    np.testing.assert_allclose(-log_evidence(few), oracle.nll(dense, y), rtol=SUMMED, atol=SUMMED)
    left = leave_one_out(few, whole=True)
    for i in (0, problem.n - 1):
        rest = source != i
        mean, cov = oracle.posterior(
            problem.kernel(problem.bits[source[rest]]),
            problem.row_noise()[source[rest]],
            problem.kernel(problem.bits[source[rest]], problem.bits[[i]]),
            problem.kernel(problem.bits[[i]]),
            y[rest],
        )
        np.testing.assert_allclose(left.mean[i], mean[0], **VALUE)
        np.testing.assert_allclose(left.var[i], cov[0, 0], **VALUE)


def parted(problem, bits, observed):
    """Dense K (n, m) if a new row shares with the one row of its key what that shares with others.

    observed: (n,) how many observations each row stands for; rows of several keep their run.
    """
    cross, among = problem.kernel(problem.bits, bits), problem.kernel()
    np.fill_diagonal(among, 0.0)
    same = (problem.bits[:, None] == bits[None]).all(axis=2)
    for j in np.flatnonzero(same.sum(axis=0) == 1):
        i = int(np.argmax(same[:, j]))
        if observed[i] <= 1:
            cross[i, j] = among[i].max()
    return cross


@given(problems, st.sampled_from(["plain", "weight", "copies"]))
def test_a_new_observation_stands_apart_from_a_row_of_its_key(problem, kind):
    """f = g + run at a row, and a new observation has a run of its own."""
    weight, copies = problem.weight + 1, np.where(problem.weight > 1, 2.0, 1.0)
    rows = {
        "plain": Rows(problem.y),
        "weight": Rows(problem.y, weight=weight),
        "copies": Rows(problem.y, weight=weight, copies=copies),
    }[kind]
    observed = {"plain": np.ones(problem.n), "weight": weight, "copies": copies}[kind]
    trie = build_trie(problem.codes, problem.order)
    posterior = condition_rows(trie, problem.codes, problem.order, rows, problem.noise)
    noise = problem.row_noise(known=False) / (1.0 if kind == "plain" else weight)
    for codes, bits in ((problem.new, problem.new_bits), (problem.codes, problem.bits)):
        cross = parted(problem, bits, observed)
        mean, cov = oracle.posterior(
            problem.kernel(), noise, cross, problem.kernel(bits), problem.y
        )
        got = predict(posterior, codes, apart=True)
        np.testing.assert_allclose(got.mean, mean, **VALUE)
        np.testing.assert_allclose(got.var, np.diag(cov), **VALUE)
        prior = np.diag(problem.kernel(bits))
        np.testing.assert_allclose(got.run, prior - cross.max(axis=0), **VALUE)
        alone = predict(posterior, codes, var=False, apart=True)
        np.testing.assert_array_equal(alone.mean, got.mean)
        assert alone.var is alone.run is None


@given(problems)
def test_the_run_of_a_row_is_what_it_shares_with_no_other(problem):
    among = problem.kernel()
    prior = np.diag(among).copy()
    np.fill_diagonal(among, 0.0)
    expected = prior - among.max(axis=1)
    np.testing.assert_allclose(run_variance(fit(problem)), expected, **VALUE)
