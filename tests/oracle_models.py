"""Random sums of trees and a smooth part conditioned on rows, each judged by dense matrices.

Up to 2,000 rows likelihood, gradient, variances and leave-one-out are exact, by a factor of
K + noise: their errors are divided by its condition number. Means and covariances come from solves,
here to a residual of 1e-11. Inducing rows and neighbours add a jitter of 1e-10 of the scale, which
stays as small if the kernel is rough; weights of neighbours are rounded to float32.

A derivative by phi is a difference of sums over pairs of rows that share so many bits, and is
measured by these sums. A left-out variance is what the noise leaves of 1 / (K + noise)^-1_ii.

Distances are taken as differences of squares, which errors are divided by. Of matern12 this leaves
a root of the rounding error in a dense kernel: it is drawn with inducing rows and neighbours only.
"""

from dataclasses import dataclass, replace
from unittest import mock

import numpy as np

import oracle
from forest_problems import (
    SMOOTH,
    Problem,
    copies_of,
    covariance_at,
    dense_left_out,
    dense_posterior,
    make_problem,
    mean_at,
    own_kernel,
    variance_at,
)
from oracle_cases import TINY, log_uniform
from tolerances import HUNDRED_ROUNDINGS, SINGLE_SOLVES, SOLVED_TO_1E_11
from triegp.additive import conditioning, exact_gradient, variance
from triegp.additive.insertion import insert_into_forest
from triegp.additive.start import row_noise
from triegp.additive.variance import leave_out
from triegp.engines import CpuEngine
from triegp.smooth import KERNELS
from triegp.tree.rows import Rows

TOLERANCE = 1e-11  # of solves
SMOOTHER = [name for name in KERNELS if name != "matern12"]


@dataclass(frozen=True)
class ModelCase:
    """Rows and parameters, rows that come later, and who computes."""

    seed: int
    problem: Problem
    later: Rows
    n_threads: int

    @property
    def loss(self):
        """Squares of inputs by lengthscales, from which distances are taken."""
        kernel = self.problem.parameters.smooth
        if kernel is None:
            return 1.0
        return 1.0 + 2.0 * np.square(self.problem.inputs / kernel.lengthscale).sum(axis=1).max()

    @property
    def jittered(self):
        return self.problem.smooth in ("inducing", "neighbours")

    def describe(self):
        one = self.problem
        names = [f"{len(one.X)} rows", f"{one.X.shape[1]} features", f"{len(one.encoders)} trees"]
        names += [f"smooth part {one.smooth}", f"noise {one.parameters.noise:.3g}"]
        names += ["weights"] * (one.rows.weight is not None)
        return ", ".join([*names, f"{self.later.n_rows} rows later"])


def draw_model(seed):
    """The model of a seed."""
    rng = np.random.default_rng([seed, 5])
    n = int(rng.integers(2, 40)) if rng.random() < 0.97 else int(rng.integers(40, 150))
    smooth = SMOOTH[rng.integers(len(SMOOTH))]
    problem = make_problem(
        n=n,
        n_trees=int(rng.integers(1, 6)),
        d=int(rng.integers(1, 4)),
        seed=seed,
        noise=log_uniform(rng, -3, 1),
        slope=rng.uniform(0.3, 2.0),
        precision=int(rng.integers(2, 9)),
        weighted=bool(rng.random() < 0.4),
        known=bool(rng.random() < 0.3),
        smooth=smooth,
        kernel=str(rng.choice(SMOOTHER)) if smooth == "dense" else "matern12",
    )
    X = problem.X.copy()
    X[rng.random(n) < rng.choice([0.0, 0.3])] = X[0]
    rows = replace(problem.rows, y=problem.rows.y * log_uniform(rng, -6, 6))
    k = int(rng.integers(1, 6))
    some = (rng.integers(0, 2, k) == 0)[:, None]
    later = Rows(
        rng.choice(rows.y, k),
        None if rows.known_noise is None else rng.choice(rows.known_noise, k),
        None if rows.weight is None else rng.integers(0, 3, k).astype(float),
        np.where(some, X[rng.integers(0, n, k)], problem.new[rng.integers(0, 30, k)]),
    )
    return ModelCase(seed, replace(problem, X=X, rows=rows), later, int(rng.integers(1, 3)))


def check_model(case):
    """(quantity, reference, error, limit) of everything that a sum of trees says exactly."""
    with (
        mock.patch.object(conditioning, "tolerance_for", return_value=TOLERANCE),
        mock.patch.object(variance, "EXACT_TOLERANCE", TOLERANCE),
    ):
        yield from check_gradient(case)
        model = case.problem.condition(engine=CpuEngine(case.n_threads))
        name = "sum with neighbours" if case.jittered else "sum"
        yield from check_posterior(case, model, case.problem.X, name)
        later = case.later
        grown = insert_into_forest(model, later)
        counts = np.ones(later.n_rows, bool) if later.weight is None else later.weight > 0
        X = np.concatenate([case.problem.X, later.features[counts]])
        yield from check_posterior(case, grown, X, f"{name}, rows added")


def check_posterior(case, model, X, name):
    problem, y = case.problem, model.rows.y
    covariance = own_kernel(model, X, X) + np.diag(model.variance)
    loss = np.linalg.cond(covariance) * case.loss
    direct, solved = HUNDRED_ROUNDINGS, SOLVED_TO_1E_11
    if case.jittered:
        direct = solved = SINGLE_SOLVES
    new = np.concatenate([problem.new[:4], X[:2]])
    mean, cov = dense_posterior(model, X, new)
    alpha = np.linalg.solve(covariance, y)
    size = np.abs(own_kernel(model, new, X)) @ np.abs(alpha)
    prior = np.diag(own_kernel(model, new, new)).max()
    left_mean, left_var = dense_left_out(model, X)
    found_mean, found_var = leave_out(model)
    spread = np.abs(y) + np.abs(alpha) / np.diag(np.linalg.inv(covariance))
    logs = np.abs(np.linalg.slogdet(covariance)[1]) + len(y) + np.abs(y @ alpha)
    (evidence,) = model.evidence
    nll = oracle.nll(covariance, y)
    found = (
        ("mean", mean_at(model, new) - mean, size, solved),
        ("variance", variance_at(model, new) - np.diag(cov), prior, direct),
        ("joint covariance", covariance_at(model, new) - cov, prior, solved),
        ("leave-one-out mean", found_mean - left_mean, spread, solved),
        ("leave-one-out variance", found_var - left_var, prior + model.variance.max(), direct),
        ("likelihood", evidence.log_likelihood + nll, logs, direct),
    )
    for quantity, apart, measure, limit in found:
        error = np.abs(apart).max() / np.max(measure) / loss
        yield f"{name}: {quantity}", "float64", float(error), limit


def check_gradient(case):
    """Likelihood and derivatives by phi, scales, noise and lengthscales, by all copies of rows."""
    problem = case.problem
    parameters, orders, kernel = problem.parameters, problem.orders, problem.parameters.smooth
    nll, found = exact_gradient(problem.data, parameters, CpuEngine(case.n_threads))
    copies = np.repeat(np.arange(len(problem.X)), copies_of(problem.rows))
    X, y = problem.X[copies], problem.rows.y[copies]
    noise = row_noise(problem.rows, orders, parameters.noise).noise[copies]
    C = problem.kernel(X) + np.diag(noise)
    inverse = np.linalg.inv(C)
    alpha = inverse @ y
    by_entry = 0.5 * (inverse - np.outer(alpha, alpha))
    sizes = 0.5 * (np.abs(inverse) + np.outer(np.abs(alpha), np.abs(alpha)))
    loss, eye = np.linalg.cond(C) * case.loss, np.eye(len(y))

    def error(values, derivatives, terms=(TINY,)):
        value = np.array([np.sum(by_entry * one) for one in derivatives])
        size = max(np.sum(sizes * np.abs(one)) for one in [*terms, *derivatives])
        return float(np.abs(np.ravel(values) - value).max() / size / loss)

    logs = np.abs(np.linalg.slogdet(C)[1]) + len(y) + np.abs(y @ alpha)
    limit = HUNDRED_ROUNDINGS
    apart = abs(nll - oracle.nll(C, y)) / logs / loss
    yield "sum: nll", "float64", float(apart), limit
    yield "sum: gradient by noise", "float64", error(found.noise, [eye]), limit
    worst_phi = worst_scale = 0.0
    for t, (encoder, order) in enumerate(zip(problem.encoders, orders, strict=True)):
        bits = oracle.unpack_bits(encoder.encode(X), order.key_bits)
        lcp = oracle.shared_prefix(bits, bits)
        by_phi, by_scale, terms = tree_derivatives(lcp, parameters, t)
        worst_phi = max(worst_phi, error(found.phi[t], by_phi, terms))
        worst_scale = max(worst_scale, error(found.log_scale[t], [by_scale]))
    yield "sum: gradient by phi", "float64", worst_phi, limit
    yield "sum: gradient by scale", "float64", worst_scale, limit
    if kernel is None:
        return
    inputs = problem.inputs[copies]
    smooth = oracle.smooth_kernel(kernel.name, kernel.scale, kernel.lengthscale, inputs, inputs)
    yield "sum: gradient by smooth scale", "float64", error(found.log_smooth, [smooth]), limit
    given = (kernel.name, kernel.scale, kernel.lengthscale, inputs)
    by_length = oracle.smooth_derivatives(*given)
    error_by_length = error(found.log_lengthscale, by_length, [smooth])
    yield "sum: gradient by lengthscale", "float64", error_by_length, limit


def tree_derivatives(lcp, parameters, t):
    """Of K + noise by phi, (q, n, n), and by the logarithm of the scale, (n, n), for one tree.

    Also returns the terms of which those by phi are differences, (n, n) each. The share of the
    variance below depth l is exp(phi - max phi) of bit l, by falling phi. The last one is the
    nugget.
    """
    phi, scale = parameters.phi[t], np.exp(parameters.log_scale[t])
    bits = np.argsort(-phi, kind="stable")
    rest = np.exp(phi[bits] - phi.max())
    diagonal = np.eye(len(lcp))
    out = np.zeros((phi.size, *lcp.shape))
    terms = [np.zeros(lcp.shape) + TINY]
    for depth in range(1, phi.size):
        out[bits[depth]] = -scale * rest[depth] * (lcp == depth)
        terms.append(scale * rest[depth] * (lcp >= depth))
    out[bits[-1]] += scale * rest[-1] * diagonal * (phi.size > 1)
    out[bits[0]] -= out.sum(axis=0)
    return out, scale * (1.0 - rest[lcp] + rest[-1] * diagonal), terms
