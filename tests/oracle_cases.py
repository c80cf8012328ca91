"""Random cases of one tree, from easy to hostile, each judged by its definition.

A case is one set of rows, one order and one engine, all drawn from one seed. `check_case` computes
all quantities of the public functions of `triegp.tree` and returns their errors, as
`oracle_reference.py` measures them.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import oracle
from oracle_points import check_points
from oracle_reference import Reference
from oracle_streams import check_streams
from tolerances import HUNDRED_ROUNDINGS, HUNDRED_SINGLE
from triegp.encoding import Codes
from triegp.engines import CpuEngine, PlainEngine
from triegp.engines.cuda import CudaEngine
from triegp.tree import (
    BitOrder,
    build_trie,
    condition,
    dense_covariance,
    evaluate_orders,
    factorize,
    inverse_diagonal,
    joint_mean,
    joint_posterior,
    leave_one_out,
    level_products,
    likelihood,
    predict,
    product,
    solve,
    whiten,
)

ENGINES = {
    "cpu, 1 thread": CpuEngine(n_threads=1),
    "cpu, 2 threads": CpuEngine(n_threads=2),
    "plain": PlainEngine(n_threads=1),
    "cuda, simulated": CudaEngine(),
}
TINY = 1e-300


@dataclass(frozen=True)
class Case:
    """Rows, order, noise and engine of one case."""

    seed: int
    exact: bool  # whether decimal arithmetic is the reference
    engine: str
    cuts: np.ndarray | None
    codes: Codes
    new: Codes
    order: BitOrder
    y: np.ndarray
    noise: float
    known: np.ndarray | None
    sample_weight: np.ndarray | None
    rng: np.random.Generator
    dtype: type = np.float64  # of messages

    @property
    def n(self):
        return self.codes.n_rows

    @property
    def weights(self):
        return np.ones(self.n) if self.sample_weight is None else self.sample_weight

    @property
    def counts(self):
        return self.weights > 0

    @property
    def row_noise(self):
        """Noise of each row; noise and nugget are added first, as one number of float64."""
        shared = np.full(self.n, self.noise + self.order.nugget_variance)
        return shared if self.known is None else shared + self.known

    @property
    def variance(self):
        with np.errstate(divide="ignore"):
            return self.row_noise / self.weights

    @cached_property
    def all_bits(self):
        packed = np.concatenate([self.codes.packed, self.new.packed])
        return oracle.unpack_bits(Codes(packed, self.codes.precision), self.order.key_bits)

    @property
    def options(self):
        return {"known_noise": self.known, "sample_weight": self.sample_weight}

    @property
    def limit(self):
        return HUNDRED_ROUNDINGS if self.dtype == np.float64 else HUNDRED_SINGLE

    def describe(self):
        given = [f"{self.n} rows", f"{self.order.n_bits} bits", f"nugget {self.order.nugget}"]
        given += [f"noise {self.noise:.3g}", f"scale {self.order.scale:.3g}", self.engine]
        given += ["known noise"] * (self.known is not None)
        given += ["weights"] * (self.sample_weight is not None)
        given += ["shards of three rows"] * (self.cuts is not None)
        given += ["float32 messages"] * (self.dtype == np.float32)
        given += [f"|y| up to {np.abs(self.y).max():.3g}"]
        return ", ".join([*given, "decimal" if self.exact else "float64"])


def log_uniform(rng, low, high, size=None):
    """10 to the power of uniform numbers from low to high."""
    return 10.0 ** rng.uniform(low, high, size)


def draw_keys(rng, n, n_bits):
    """Bits (n, q): new rows follow an earlier row for a while, or wholly, or are random."""
    keys = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)
    equal, follows = rng.choice([0.0, 0.2, 0.9]), rng.choice([0.0, 0.5, 1.0])
    for i in range(1, n):
        old = keys[rng.integers(i)]
        if rng.random() < equal:
            keys[i] = old
        elif rng.random() < follows:
            stop = int(rng.integers(n_bits + 1))
            keys[i, :stop] = old[:stop]
    return keys


def draw_weights(rng, n_bits, nugget):
    """Weights of bits with sum 1: some are 0, some are tiny."""
    kind = rng.random()
    weights = rng.exponential(size=n_bits)
    if kind < 0.3:
        weights *= log_uniform(rng, -300, 0, n_bits)
    elif kind < 0.5:
        weights *= log_uniform(rng, -20, 0, n_bits)
    elif kind < 0.6:
        weights = 0.5 ** np.arange(n_bits)
    weights *= rng.random(n_bits) < rng.choice([0.2, 0.8, 1.0])
    if nugget == "row" and n_bits > 1 and rng.random() < 0.6:
        weights[-1] *= rng.choice([0.0, log_uniform(rng, -300, -1)])
    if not weights.sum() > 0:
        weights[rng.integers(n_bits)] = 1.0
    weights /= weights.sum()
    return weights / weights.sum()


def draw_targets(rng, n, size):
    """Targets up to about `size`."""
    y = rng.standard_normal(n)
    kind = rng.random()
    if kind < 0.15:
        y = y * log_uniform(rng, -15, 0, n)
    elif kind < 0.25:
        y[:] = y[0]
    elif kind < 0.35:
        y = 1.0 + 1e-9 * y
    elif kind < 0.45:
        y *= rng.random(n) < 0.5
    return y / max(np.abs(y).max(), 1e-3) * size


def draw_single(seed):
    """The case of a seed with messages of float32."""
    return draw_case(seed, np.float32)


def draw_case(seed, dtype=np.float64):
    """The case of a seed, within the range of messages of this type."""
    rng = np.random.default_rng(seed)
    least, furthest, widest = {np.float64: (-300, 150, 150), np.float32: (-30, 15, 18)}[dtype]
    exact = rng.random() < 0.5
    engine = rng.choice(list(ENGINES), p=[0.42, 0.2, 0.35, 0.03])
    if exact:
        n = int(rng.integers(1, 7)) if rng.random() < 0.98 else int(rng.integers(7, 20))
    else:
        n = int(rng.integers(1, 40)) if rng.random() < 0.98 else int(rng.integers(40, 301))
    if engine == "cuda, simulated":
        n = min(n, 60)
    n_bits = int(log_uniform(rng, 0, np.log10(301)))
    nugget = str(rng.choice(["row", "bit"]))
    precision = np.full(-(-n_bits // 32), 32)
    precision[-1] = n_bits - 32 * (precision.size - 1)
    bits = rng.permutation(n_bits)
    keys = np.empty((n + 4, n_bits), np.uint8)
    keys[:, bits] = draw_keys(rng, n + 4, n_bits)[rng.permutation(n + 4)]
    packed = np.packbits(keys, axis=1)
    wide = rng.random() < 0.3  # extremes
    reach = (widest if exact else min(40, widest)) * wide
    scale = log_uniform(rng, -reach, reach) if wide else log_uniform(rng, -2, 2)
    weights = draw_weights(rng, n_bits, nugget)
    order = BitOrder.from_weights(bits, weights, scale=scale, nugget=nugget)
    kind = rng.random()
    if not exact:
        noise = scale * log_uniform(rng, -5, 3)
    elif kind < 0.25:
        noise = log_uniform(rng, least, 3)
    elif kind < 0.3:
        noise = float(f"1e{least}")
    else:
        noise = log_uniform(rng, -20, 3)
    weight = None
    if rng.random() < 0.5:
        weight = rng.integers(0, 4, n).astype(float)
        if rng.random() < 0.5:
            weight = log_uniform(rng, -3, 3, n) * (rng.random(n) < 0.9)
        weight[rng.integers(n)] += 1.0
        noise = max(noise, 1.1 * float(f"1e{least}") * weight.max())
    known = None
    if rng.random() < 0.4:
        known = noise * log_uniform(rng, -3, 3, n) * (rng.random(n) < 0.8)
    size = log_uniform(rng, -furthest, furthest) if rng.random() < 0.3 else log_uniform(rng, -3, 3)
    if not exact:
        size = np.sqrt(scale) * log_uniform(rng, *((-60, 60) if wide else (-3, 3)))
        if dtype == np.float32:
            size = max(size, 1e-15)
    return Case(
        seed=seed,
        exact=bool(exact),
        engine=str(engine),
        cuts=np.arange(0, n, 3) if rng.random() < 0.5 else None,
        codes=Codes(packed[:n], precision),
        new=Codes(packed[n:], precision),
        order=order,
        y=draw_targets(rng, n, min(size, 10.0**furthest)),
        noise=float(noise),
        known=known,
        sample_weight=weight,
        rng=rng,
        dtype=dtype,
    )


def check_case(case):
    """(quantity, reference, error, limit); an error is inf if a value has no meaning."""
    errors = compute_errors(case)
    if not case.exact and any(error > case.limit for _, _, error in errors):
        # The reference may have lost more than the condition number: decimal numbers decide.
        errors = compute_errors(replace(draw_case(case.seed, case.dtype), exact=True))
    single = case.dtype == np.float32
    for quantity, against, error in errors:
        yield f"float32: {quantity}" if single else quantity, against, error, case.limit


def compute_errors(case):
    """(quantity, reference, error) by one reference."""
    trie = build_trie(case.codes, case.order, cuts=case.cuts, engine=ENGINES[case.engine])
    reference = Reference(case, case.exact)
    errors = dict(check_likelihood(case, trie, reference))
    posterior = condition(
        trie, case.codes, case.order, case.y, case.noise, dtype=case.dtype, **case.options
    )
    errors |= check_posterior(case, posterior, reference)
    if case.dtype == np.float64:
        errors |= check_operators(case, trie, reference)
    errors |= check_points(case, posterior, reference)
    errors |= check_streams(case, posterior, reference)
    against = "decimal" if case.exact else "float64"
    found = [(quantity, against, error) for quantity, error in errors.items()]
    if case.dtype == np.float32:
        return found
    products = check_products(case, trie, reference)
    return found + [(quantity, "float64", error) for quantity, error in products]


def check_likelihood(case, trie, reference):
    given, options = (case.order, case.y, case.noise), case.options | {"dtype": case.dtype}
    alone = likelihood(trie, *given, **options)
    yield "likelihood", reference.errors(alone.nll, reference.nll())
    by_level = reference.level_gradient()
    by_row, by_noise = reference.row_noise_gradient()
    largest = 1e300 if case.dtype == np.float64 else 1e30  # derivatives by nodes are larger
    fits = float(by_level.first.max()) < largest and float(by_row.first.max()) < largest
    fits = fits and float(abs(alone.nll)) < largest
    try:
        found = likelihood(trie, *given, row_gradients=True, **options)
    except OverflowError:
        yield "gradient: overflow", np.inf if fits else 0.0
        return
    gradient = found.gradient
    yield "gradient by level", reference.errors(gradient.by_level, by_level)
    yield "gradient by noise", reference.errors(gradient.by_noise, by_noise)
    yield "gradient by row noise", reference.errors(gradient.by_row_noise, by_row)
    yield "gradient by target", reference.errors(gradient.by_target, reference.solve(case.y))
    if case.cuts is None:
        (batch,) = evaluate_orders(
            case.codes,
            [case.order],
            case.y,
            case.noise,
            gradient=True,
            engine=trie.engine,
            **options,
        )
        if case.engine.startswith("cuda"):  # other kernels, and another order of sums
            yield "many orders: likelihood", reference.errors(batch.nll, reference.nll())
            yield "many orders: by level", reference.errors(batch.gradient.by_level, by_level)
            yield "many orders: by noise", reference.errors(batch.gradient.by_noise, by_noise)
            return
        plain = likelihood(trie, *given, gradient=True, **options)
        same = batch.nll == plain.nll
        same = same and np.array_equal(batch.gradient.by_level, plain.gradient.by_level)
        same = same and batch.gradient.by_noise == plain.gradient.by_noise
        yield "many orders: same bits", 0.0 if same else np.inf


def check_posterior(case, posterior, reference):
    errors = {}
    new = np.arange(case.n, case.n + case.new.n_rows)
    mean, cov = reference.posterior(new)
    found = predict(posterior, case.new)
    diagonal = type(cov)(np.diag(cov.value), np.diag(cov.first))
    errors["posterior mean"] = reference.errors(found.mean, mean)
    errors["posterior variance"] = reference.errors(found.var, diagonal)
    some = case.rng.integers(0, case.n, 2)
    points = Codes(np.concatenate([case.new.packed, case.codes.packed[some]]), case.codes.precision)
    mean, cov = reference.posterior(np.concatenate([new, some]))
    joint = joint_posterior(posterior, points)
    errors["joint mean"] = reference.errors(joint_mean(joint), mean)
    errors["joint covariance"] = reference.errors(dense_covariance(joint), cov)
    whole = bool(case.rng.random() < 0.3)
    left = leave_one_out(posterior, whole=whole)
    for row in case.rng.integers(0, case.n, 1 + (case.rng.random() < 0.3)):
        mean, var = reference.leave_out(int(row), whole)
        for name, values, value in (("mean", left.mean, mean), ("variance", left.var, var)):
            name = f"leave-one-out {name}"
            error = reference.errors(values[[row]], value)
            errors[name] = max(errors.get(name, 0.0), error)
    return errors


def check_operators(case, trie, reference):
    errors = {}
    factor = factorize(trie, case.order, case.noise, **case.options)
    errors["log det"] = reference.errors(factor.log_det, reference.log_det())
    most = min(150.0, 290.0 + np.log10(case.variance.min()))
    reach = (-150.0, most) if case.exact else (-40.0, 40.0)
    x = draw_targets(case.rng, case.n, log_uniform(case.rng, *reach))
    errors["solve"] = reference.errors(solve(factor, x), reference.solve(x))
    found = inverse_diagonal(factor)
    errors["diagonal of inverse"] = reference.errors(found, reference.inverse_diagonal())
    root = whiten(factor, np.eye(case.n))
    errors["whiten"] = reference.errors(root.T @ root, reference.whitened(root))
    return errors


def check_products(case, trie, reference):
    """Products have no cancellation but that of x: float64 is reference enough."""
    rng, n, levels = case.rng, case.n, case.order.levels
    lcp = reference.lcp[:n, :n]
    x = draw_targets(rng, n, log_uniform(rng, -150, 150))
    z = draw_targets(rng, n, log_uniform(rng, -150, 150))
    K = (levels[0] - levels)[lcp]
    yield "product", relative(product(trie, levels, x), K @ x, K @ np.abs(x))
    found = level_products(trie, x, z)
    at = rng.integers(0, levels.size, min(4, levels.size))
    together = [(lcp >= depth).astype(float) for depth in at]
    value = np.array([x @ (one @ z) for one in together])
    size = np.array([np.abs(x) @ (one @ np.abs(z)) for one in together])
    yield "level products", relative(found[at], value, size)


def relative(found, value, size):
    """Largest |found - value| / size."""
    if not np.isfinite(found).all():
        return np.inf
    with np.errstate(over="ignore"):
        return float(np.max(np.abs(found - value) / np.maximum(size, TINY), initial=0.0))
