"""Random sums of trees and smooth parts, each judged by dense matrices.

Products have no cancellation but that of x, and are measured by the sum of absolute terms. Solves
and likelihoods lose the condition number, which their errors are divided by.

A smooth kernel is a function of a squared distance, taken as a difference of squares: it may be
that of any squared distance within 2e-14 of the sum of both squares. With all rows inducing,
products are exact up to a jitter of 1e-10 of the scale; with all rows neighbours and a rough
kernel, up to the rounding of weights to float32. What neighbours leave of a block is measured by
the scale times the squares of the weights.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

import oracle
from oracle_cases import ENGINES, draw_keys, draw_targets, log_uniform, relative
from tolerances import HUNDRED_ROUNDINGS, HUNDRED_SINGLE, JITTERED, SINGLE_STEPS, SOLVED_TO_1E_10
from triegp.additive import (
    Forest,
    forest_evidence,
    forest_level_products,
    forest_product,
    make_preconditioner,
    solve_forest,
)
from triegp.encoding import Codes
from triegp.engines import dense
from triegp.smooth import KERNELS, Kernel, make_induced
from triegp.smooth import factor as factors
from triegp.smooth.dense import make_dense
from triegp.smooth.induced import JITTER
from triegp.smooth.linear import Linear
from triegp.tree import BitOrder, build_trie

TOLERANCE = 1e-10  # of solves


@dataclass(frozen=True)
class ForestCase:
    """A forest, its kernel matrices by definition, and noise."""

    seed: int
    engine: str
    forest: Forest
    lcps: list  # (n, n) per tree
    smooth: np.ndarray  # (n, n), 0 without a smooth part
    loss: float  # squares of inputs by lengthscales, from which distances are taken
    noise: np.ndarray
    rng: np.random.Generator

    @property
    def n(self):
        return self.forest.n_rows

    def describe(self):
        names = [f"{self.n} rows", f"{len(self.lcps)} trees", self.engine]
        part = type(self.forest.smooth).__name__
        return ", ".join([*names, f"smooth part {part}", f"noise {self.noise.min():.3g}"])


def draw_forest(seed):
    """The forest of a seed."""
    rng = np.random.default_rng(seed)
    engine = str(rng.choice(list(ENGINES), p=[0.46, 0.26, 0.27, 0.01]))
    n = int(rng.integers(1, 40)) if rng.random() < 0.97 else int(rng.integers(40, 301))
    if engine == "cuda, simulated":
        n = min(n, 24)
    scale = log_uniform(rng, -30, 30) if rng.random() < 0.3 else 1.0
    tries, levels, lcps = [], [], []
    for _ in range(int(rng.integers(1, 7))):
        n_bits = int(log_uniform(rng, 0, np.log10(101)))
        codes = Codes(np.packbits(draw_keys(rng, n, n_bits), axis=1), _precision(n_bits))
        weights = rng.exponential(size=n_bits) * (rng.random(n_bits) < 0.7)
        weights[0] += 1e-9
        order = BitOrder.from_weights(
            rng.permutation(n_bits),
            weights / weights.sum(),
            scale=scale * log_uniform(rng, -3, 0),
            nugget=str(rng.choice(["row", "bit"])),
        )
        cuts = np.arange(0, n, 3) if rng.random() < 0.5 else None
        tries.append(build_trie(codes, order, cuts=cuts, engine=ENGINES[engine]))
        levels.append(order.levels)
        bits = oracle.unpack_bits(codes, order.key_bits)
        lcps.append(oracle.shared_prefix(bits, bits))
    forest, smooth, loss = Forest.of(tries, levels), np.zeros((n, n)), 1.0
    if rng.random() < 0.3 and engine != "cuda, simulated":
        kernel, X = draw_smooth(rng, n, scale, KERNELS[:2])
        part = make_dense(kernel, X / kernel.lengthscale, keep=bool(rng.random() < 0.5))
        forest = Forest(forest.tries, forest.levels, part)
        smooth = oracle.smooth_kernel(kernel.name, kernel.scale, kernel.lengthscale, X, X)
        loss += np.square(part.scaled).sum(axis=1).max()
    noise = scale * log_uniform(rng, -3, 2) * np.ones(n)
    if rng.random() < 0.5:
        noise *= log_uniform(rng, -1, 1, n)
    return ForestCase(seed, engine, forest, lcps, smooth, loss, noise, rng)


def _precision(n_bits):
    precision = np.full(-(-n_bits // 32), 32)
    precision[-1] = n_bits - 32 * (precision.size - 1)
    return precision


def draw_smooth(rng, n, scale, names=KERNELS):
    """A smooth kernel and inputs (n, d), some rows equal."""
    d = int(rng.integers(1, 5))
    X = rng.standard_normal((n, d))
    X[rng.random(n) < rng.choice([0.0, 0.2])] = X[0]
    lengthscale = log_uniform(rng, -1, 1, d)
    return Kernel(str(rng.choice(names)), lengthscale, float(scale * rng.uniform(0.1, 2.0))), X


def check_forest(case):
    """(quantity, reference, error, limit) of products, solves and the likelihood."""
    forest, rng, n = case.forest, case.rng, case.n
    trees = [
        (levels[0] - levels)[lcp] for levels, lcp in zip(forest.levels, case.lcps, strict=True)
    ]
    K = sum(trees) + case.smooth
    x = draw_targets(rng, n, log_uniform(rng, -100, 100))
    z = draw_targets(rng, n, log_uniform(rng, -100, 100))
    x, z = (np.stack([v, v[::-1]], axis=1) for v in (x, z))
    error = relative(forest_product(forest, x), K @ x, np.abs(K) @ np.abs(x))
    yield "forest product", "float64", error / case.loss, HUNDRED_ROUNDINGS
    worst = 0.0
    for found, lcp in zip(forest_level_products(forest, x, z), case.lcps, strict=True):
        depth = int(rng.integers(found.size))
        one = (lcp >= depth).astype(float)
        size = (np.abs(x) * (one @ np.abs(z))).sum()
        worst = max(worst, relative(found[[depth]], (x * (one @ z)).sum(), size))
    yield "forest level products", "float64", worst, HUNDRED_ROUNDINGS
    if forest.smooth is None:
        engine, entries = forest.engine, rng.standard_normal((n, n))
        entries = entries + entries.T
        found = engine.fetch(engine.kernel_matrix(forest.trees))
        yield "forest kernel matrix", "float64", relative(found, K, K), HUNDRED_ROUNDINGS
        if engine.on_host:
            stacked, worst = dense.stack_trees(forest.trees), 0.0
            sums = np.split(dense.sum_by_depth(stacked, entries, 2), stacked.first[1:-1])
            for found, lcp in zip(sums, case.lcps, strict=True):
                depth = int(rng.integers(found.size))
                pairs = lcp >= depth
                value, size = entries[pairs].sum(), np.abs(entries[pairs]).sum()
                worst = max(worst, relative(found[depth:].sum(keepdims=True), value, size))
            yield "forest sums by depth", "float64", worst, HUNDRED_ROUNDINGS
    covariance = K + np.diag(case.noise)
    condition = np.linalg.cond(covariance)
    b = draw_targets(rng, n, log_uniform(rng, -20, 20))
    made = None
    if rng.random() < 0.5:
        made = make_preconditioner(forest, case.noise, int(rng.integers(1, n + 1)), rng)
    found = solve_forest(
        forest, case.noise, b, preconditioner=made, tolerance=TOLERANCE, max_steps=20 * n + 100
    )
    size = np.linalg.norm(b) or 1.0
    residual = np.linalg.norm(b - covariance @ found.x) / size
    yield "forest solve: residual", "float64", float(residual), SOLVED_TO_1E_10
    expected = np.linalg.solve(covariance, b)
    apart = np.linalg.norm(found.x - expected) / (np.linalg.norm(expected) or 1.0)
    yield "forest solve", "float64", float(apart / condition), SOLVED_TO_1E_10
    evidence = forest_evidence(forest, case.noise, b, rng)
    alpha, logs = np.abs(b @ expected), np.abs(np.linalg.slogdet(covariance)[1])
    error = abs(evidence.log_likelihood + oracle.nll(covariance, b)) / (alpha + logs + n)
    yield "forest likelihood", "float64", float(error / condition / case.loss), HUNDRED_ROUNDINGS


@dataclass(frozen=True)
class SmoothCase:
    """A smooth process over few rows, by inducing rows and neighbours."""

    seed: int
    kernel: Kernel
    X: np.ndarray
    n_inducing: int
    n_neighbours: int
    rng: np.random.Generator

    def describe(self):
        n, d = self.X.shape
        sizes = f"{self.n_inducing} inducing rows, {self.n_neighbours} neighbours"
        return f"{n} rows, {d} inputs, {sizes}, {self.kernel.name}"


def draw_smooth_case(seed):
    """The smooth process of a seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    kernel, X = draw_smooth(rng, n, log_uniform(rng, -20, 20) if rng.random() < 0.3 else 1.0)
    n_inducing, n_neighbours = (int(rng.integers(0, n + 2)) for _ in range(2))
    if rng.random() < 0.5:
        n_neighbours = n
    return SmoothCase(seed, kernel, X, n_inducing, n_neighbours, rng)


def check_smooth(case):
    """(quantity, reference, error, limit) of the factorisation, and of products if it is exact."""
    kernel, X, n, rng = case.kernel, case.X, len(case.X), case.rng
    induced = make_induced(kernel, X, case.n_inducing, case.n_neighbours, seed=case.seed % 1000)
    x = rng.standard_normal((n, 2))
    factor = induced.factor
    blocks = [np.arange(*factor.starts[b : b + 2]) for b in range(len(factor.neighbours))]
    near = [line[line >= 0] for line in factor.neighbours]
    B, root = np.eye(n), np.zeros((n, n))
    for b, places in enumerate(blocks):
        B[np.ix_(places, near[b])] = -factor.weights[places, : near[b].size]
        root[np.ix_(places, places)] = factor.roots[places, : places.size]
    order, size = factor.order, np.empty_like(x)
    own = np.empty_like(x)
    own[order] = _apply(B, root, x[order])
    size[order] = _apply(2.0 * np.eye(n) - np.abs(B), np.abs(root), np.abs(x[order]))
    error = relative(factors.multiply(factor, x), own, size)
    yield "smooth factor: product", "float64", error, HUNDRED_ROUNDINGS
    # Solving loses the condition.
    loss = np.linalg.cond(B) * np.linalg.cond(root) ** 2
    back = factors.unwhiten(factor, factors.whiten(factor, factors.multiply(factor, x)))
    error = relative(back, x, np.abs(x).sum(axis=0)) / loss
    yield "smooth factor: solve", "float64", error, HUNDRED_ROUNDINGS
    K = oracle.smooth_kernel(kernel.name, kernel.scale, kernel.lengthscale, X, X)
    R = K[np.ix_(order, order)] - induced.phi @ induced.phi.T
    among = K[np.ix_(induced.inducing, induced.inducing)]
    among = among + JITTER * kernel.scale * np.eye(len(among))
    shares = np.linalg.solve(among, K[induced.inducing])
    most, error = 1.0 + np.abs(shares).sum(axis=0).max(initial=0.0), 0.0
    for b, places in enumerate(blocks):
        among = R[np.ix_(near[b], near[b])] + JITTER * kernel.scale * np.eye(near[b].size)
        across, rows = R[np.ix_(places, near[b])], np.ix_(places, places)
        weights = np.linalg.solve(among, across.T).T
        left = R[rows] - weights @ across.T + JITTER * kernel.scale * np.eye(places.size)
        reach = most * (1.0 + np.abs(weights).sum(axis=1))
        sizes = kernel.scale * np.outer(reach, reach)
        error = max(error, relative(root[rows] @ root[rows].T, left, sizes))
    yield "smooth factor: blocks", "float32", error, HUNDRED_SINGLE
    found = Linear(induced).multiply(x)
    error = relative(found, K @ x, kernel.scale * np.abs(x).sum(axis=0))
    if case.n_inducing >= n:
        yield "smooth product, all inducing", "float64", error, JITTERED
    elif case.n_neighbours >= n and kernel.name == "matern12":
        yield "smooth product, all neighbours", "float32", error, SINGLE_STEPS
    scaled = X / kernel.lengthscale
    found = make_dense(kernel, scaled, keep=True).matrix
    yield "smooth kernel matrix", "float64", kernel_error(kernel, scaled, found), HUNDRED_ROUNDINGS


def _apply(B, root, x):
    """B^-1 L L' B^-T x for triangular B and L."""
    back = scipy.linalg.solve_triangular(B, x, lower=True, trans=1)
    return scipy.linalg.solve_triangular(B, root @ (root.T @ back), lower=True)


def kernel_error(kernel, scaled, found):
    """How far values are from those of squared distances within the limit, by the scale."""
    square = np.square(scaled[:, None, :] - scaled[None, :, :]).sum(axis=2)
    sizes = np.square(scaled).sum(axis=1)
    off = HUNDRED_ROUNDINGS * (sizes[:, None] + sizes)
    ends = []
    for r in (np.sqrt(np.maximum(square - off, 0.0)), np.sqrt(square + off)):
        line = r.reshape(-1, 1)
        unit = np.ones(1)
        values = oracle.smooth_kernel(kernel.name, kernel.scale, unit, line, np.zeros((1, 1)))
        ends.append(values.reshape(r.shape))
    high, low = ends
    return float(np.max(np.maximum(found - high, low - found), initial=0.0) / kernel.scale)
