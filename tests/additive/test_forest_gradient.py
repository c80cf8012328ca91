"""The likelihood of trees and a smooth part and its gradient, against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import copies_of, make_problem
from tolerances import DENSE, DIFFERENCE, GRADIENT, ROUNDING, SQUARED_DISTANCES
from triegp.additive.forest import build_forest
from triegp.additive.gradient import exact_gradient, held_scores, make_matrix, mean_gradient
from triegp.additive.start import EncodedRows, row_noise
from triegp.engines import CpuEngine
from triegp.smooth import KERNELS, Kernel

CASES = [(False, False), (True, False), (False, True), (True, True)]


def gradient_of(problem):
    return exact_gradient(problem.data, problem.parameters, CpuEngine())


def difference(value, at, step=1e-5):
    """Central differences of value(x) by every entry of x."""
    out = np.empty(at.size)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        out[i] = (value(at + move) - value(at - move)) / (2.0 * step)
    return out


def copied(problem):
    """Dense K + noise and targets of all copies of all rows."""
    copies = np.repeat(np.arange(problem.rows.y.size), copies_of(problem.rows))
    noise = row_noise(problem.rows, problem.orders, problem.parameters.noise).noise
    dense = problem.kernel()[np.ix_(copies, copies)] + np.diag(noise[copies])
    return dense, problem.rows.y[copies], copies


@pytest.mark.parametrize("smooth", [None, "dense"])
@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_the_matrix_and_the_likelihood_are_the_dense_ones(weighted, known, smooth):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known, smooth=smooth)
    found = make_matrix(problem.data, problem.parameters, CpuEngine())
    noise = row_noise(problem.rows, problem.orders, problem.parameters.noise).variance
    dense = problem.kernel() + np.diag(noise)
    np.testing.assert_allclose(found.dense, dense, rtol=DENSE, atol=DENSE)
    assert gradient_of(problem)[0] == pytest.approx(problem.nll(), rel=DENSE)


@pytest.mark.parametrize("smooth", [None, "dense"])
@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_the_gradient_is_that_of_the_dense_nll(weighted, known, smooth):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known, smooth=smooth)
    _, found = gradient_of(problem)
    start = problem.parameters

    def by_phi(t):
        def value(phi):
            parts = (*start.phi[:t], phi, *start.phi[t + 1 :])
            return problem.nll(replace(start, phi=parts))

        return difference(value, start.phi[t])

    for t in range(3):
        np.testing.assert_allclose(found.phi[t], by_phi(t), **DIFFERENCE)
    by_scale = difference(lambda s: problem.nll(replace(start, log_scale=s)), start.log_scale)
    np.testing.assert_allclose(found.log_scale, by_scale, **DIFFERENCE)
    by_noise = difference(
        lambda v: problem.nll(replace(start, log_noise=float(np.log(v[0])))),
        np.array([start.noise]),
    )
    np.testing.assert_allclose(found.noise, by_noise[0], **DIFFERENCE)
    if smooth is None:
        assert found.log_lengthscale is None
        assert found.log_smooth == 0.0


def smooth_nll(problem, kernel):
    return problem.nll(replace(problem.parameters, smooth=kernel))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_by_the_smooth_part_is_that_of_the_dense_nll(kernel, weighted):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, smooth="dense", kernel=kernel)
    _, found = gradient_of(problem)
    own = problem.parameters.smooth
    by_length = difference(
        lambda log: smooth_nll(problem, replace(own, lengthscale=np.exp(log))),
        np.log(own.lengthscale),
    )
    np.testing.assert_allclose(found.log_lengthscale, by_length, **DIFFERENCE)
    by_scale = difference(
        lambda log: smooth_nll(problem, replace(own, scale=float(np.exp(log[0])))),
        np.log([own.scale]),
    )
    np.testing.assert_allclose(found.log_smooth, by_scale[0], **DIFFERENCE)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_the_closed_form(weighted):
    """Of entries of K that are linear in a parameter, the derivative is known by itself."""
    problem = make_problem(n=40, n_trees=3, weighted=weighted, smooth="dense")
    _, found = gradient_of(problem)
    dense, y, copies = copied(problem)
    by_noise = oracle.nll_gradient(dense, y, np.eye(y.size))
    np.testing.assert_allclose(found.noise, by_noise, **GRADIENT)
    trees = problem.kernel(parameters=replace(problem.parameters, smooth=None))
    smooth = (problem.kernel() - trees)[np.ix_(copies, copies)]
    by_smooth = oracle.nll_gradient(dense, y, smooth)
    np.testing.assert_allclose(found.log_smooth, by_smooth, **GRADIENT)
    for t, (encoder, order) in enumerate(zip(problem.encoders, problem.orders, strict=True)):
        bits = oracle.unpack_bits(encoder.encode(problem.X), order.key_bits)
        tree = oracle.kernel(bits, bits, order.weights[: order.n_levels] * order.scale)
        whole = tree[np.ix_(copies, copies)] + order.nugget_variance * np.eye(y.size)
        by_scale = oracle.nll_gradient(dense, y, whole)
        np.testing.assert_allclose(found.log_scale[t], by_scale, **GRADIENT)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_at_equal_rows(kernel):
    problem = make_problem(n=20, smooth="dense", kernel=kernel)
    twice = replace(problem, X=np.repeat(problem.X[:10], 2, axis=0))
    nll, found = gradient_of(twice)
    assert nll == pytest.approx(twice.nll(), rel=SQUARED_DISTANCES)
    own = problem.parameters.smooth
    by_length = difference(
        lambda log: smooth_nll(twice, replace(own, lengthscale=np.exp(log))),
        np.log(own.lengthscale),
    )
    np.testing.assert_allclose(found.log_lengthscale, by_length, **DIFFERENCE)


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_the_likelihood_of_some_rows_given_the_others(smooth):
    problem = make_problem(n=40, n_trees=3, smooth=smooth)
    log_det, scores = held_scores(problem.data, problem.parameters, 15, CpuEngine())
    assert scores.shape == (15, 1)
    noise = row_noise(problem.rows, problem.orders, problem.parameters.noise).noise
    first = np.arange(25)
    few = replace(problem, X=problem.X[first], rows=problem.rows.select(first))
    # p(b | a) = p(a, b) / p(a), at any common factor of all variances.
    for scale in (1.0, 2.5):
        both = oracle.nll(scale * (problem.kernel() + np.diag(noise)), problem.rows.y)
        one = oracle.nll(scale * (few.kernel() + np.diag(noise[first])), few.rows.y)
        given = 0.5 * (15 * np.log(2 * np.pi * scale) + log_det + np.sum(scores**2) / scale)
        assert given == pytest.approx(both - one, rel=DENSE)


@pytest.mark.parametrize("smooth", [None, "dense"])
@pytest.mark.parametrize(("weighted", "known"), CASES)
def test_scores_are_those_of_each_row_given_all_before_it(weighted, known, smooth):
    problem = make_problem(n=40, n_trees=3, weighted=weighted, known=known, smooth=smooth)
    log_det, scores = held_scores(problem.data, problem.parameters, 15, CpuEngine())
    noise = row_noise(problem.rows, problem.orders, problem.parameters.noise).variance
    dense, y, logs = problem.kernel() + np.diag(noise), problem.rows.y, []
    for i in range(25, 40):
        weights = np.linalg.solve(dense[:i, :i], dense[:i, i])
        var = dense[i, i] - weights @ dense[:i, i]
        logs.append(np.log(var))
        expected = (y[i] - weights @ y[:i]) / np.sqrt(var)
        assert scores[i - 25, 0] == pytest.approx(expected, rel=DENSE, abs=DENSE)
    assert log_det == pytest.approx(sum(logs), rel=DENSE)


@pytest.mark.parametrize("smooth", [None, "dense"])
def test_the_mean_gradient_is_the_mean_of_each_derivative(smooth):
    problems = [make_problem(n=20, n_trees=3, seed=seed, smooth=smooth) for seed in range(3)]
    parts = [gradient_of(problem)[1] for problem in problems]
    found = mean_gradient(parts)
    for t in range(3):
        expected = sum(part.phi[t] for part in parts) / 3
        np.testing.assert_allclose(found.phi[t], expected, rtol=ROUNDING, atol=ROUNDING)
    names = ["log_scale", "noise", "log_smooth", *(["log_lengthscale"] if smooth else [])]
    for name in names:
        expected = sum(getattr(part, name) for part in parts) / 3
        np.testing.assert_allclose(getattr(found, name), expected, rtol=ROUNDING, atol=ROUNDING)
    assert (found.log_lengthscale is None) == (smooth is None)


def test_a_matrix_that_is_not_positive_definite_is_an_error():
    problem = make_problem(n=20, smooth="dense")
    twice = replace(problem, X=np.repeat(problem.X[:10], 2, axis=0))
    steep = tuple(60.0 * phi for phi in problem.parameters.phi)
    nothing = replace(problem.parameters, phi=steep, log_noise=-90.0)
    with pytest.raises(np.linalg.LinAlgError):
        exact_gradient(twice.data, nothing, CpuEngine())


def test_a_lengthscale_that_does_not_matter_has_no_gradient():
    problem = make_problem(n=30, smooth="dense")
    own = problem.parameters.smooth
    far = Kernel(own.name, np.append(own.lengthscale, 2.0), own.scale)
    data = problem.data
    inputs = np.column_stack([data.inputs, np.full(30, 3.0)])
    wider = EncodedRows(data.encoders, data.codes, data.rows, inputs, data.coordinates)
    nll, found = exact_gradient(wider, replace(problem.parameters, smooth=far), CpuEngine())
    expected_nll, expected = gradient_of(problem)
    assert nll == pytest.approx(expected_nll, rel=DENSE)
    np.testing.assert_allclose(found.log_lengthscale[:-1], expected.log_lengthscale, **GRADIENT)
    assert abs(found.log_lengthscale[-1]) < 1e-10


def test_threads_do_not_change_the_gradient():
    problem = make_problem(n=60, n_trees=11, smooth="dense")
    forest = build_forest(problem.codes, problem.orders, CpuEngine(3))
    assert forest.n_rows == 60
    found = [exact_gradient(problem.data, problem.parameters, CpuEngine(k)) for k in (1, 3)]
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(*(np.concatenate(part.phi) for _, part in found))
    np.testing.assert_array_equal(*(part.log_lengthscale for _, part in found))
