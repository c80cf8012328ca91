"""An exact Gaussian process on one million rows: likelihood, gradient, posterior, prediction.

The second part of `make demo`: the engine below the estimators, with the time of every stage. The
order and weights of the bits are given, so nothing is learned. Every number is checked against
dense algebra on a slice of the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from triegp import BitEncoder
from triegp.encoding import Codes
from triegp.tree import (
    BitOrder,
    build_trie,
    condition,
    leave_one_out,
    likelihood,
    predict,
    random_bits,
    uniform_weights,
)

N_ROWS = 1_000_000
N_NEW = 100_000
N_SLICE = 1_500
NOISE = 0.05


def main() -> None:
    """Generate the data, run every stage with its time, and check a slice."""
    rng = np.random.default_rng(0)
    X, y = make_data(rng, N_ROWS + N_NEW)
    X, X_new, y, y_new = X[:N_ROWS], X[N_ROWS:], y[:N_ROWS], y[N_ROWS:]
    print(f"{N_ROWS:,} rows, {X.shape[1]} features; times in seconds, first calls compile\n")

    warm_up()
    encoder = timed("encode (fit)", lambda: BitEncoder(precision=8).fit(X))
    codes = timed("encode (rows to bits)", lambda: encoder.encode(X))
    order = informed_order(encoder.precision_, rng)
    trie = timed("keys, sort, trie", lambda: build_trie(codes, order))
    value = timed("likelihood", lambda: likelihood(trie, order, y, NOISE))
    full = timed(
        "likelihood and gradient", lambda: likelihood(trie, order, y, NOISE, gradient=True)
    )
    posterior = timed("posterior", lambda: condition(trie, codes, order, y, NOISE))
    new = timed(f"encode {N_NEW:,} new rows", lambda: encoder.encode(X_new))
    got = timed(f"predict {N_NEW:,} rows", lambda: predict(posterior, new))
    alone = timed("leave-one-out, all rows", lambda: leave_one_out(posterior))

    sd = np.sqrt(got.var + posterior.new_noise)
    z = np.abs(y_new - got.mean) / sd
    residual = y - alone.mean
    n_levels = full.gradient.by_level.size
    print(f"\nnll per row {value.nll / N_ROWS:.4f}, {n_levels} derivatives by depth")
    print(
        f"new rows: rmse {np.sqrt(np.mean((y_new - got.mean) ** 2)):.4f} (noise alone "
        f"{np.sqrt(NOISE):.4f}, y itself {y_new.std():.4f}), "
        f"90 % intervals cover {100 * np.mean(z < 1.6449):.1f} %"
    )
    print(f"leave-one-out rmse of the training rows {np.sqrt(np.mean(residual**2)):.4f}")
    check_slice(encoder, order, X[:N_SLICE], y[:N_SLICE], X_new[:200])


def make_data(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Six features, three of which matter, and noise of variance NOISE."""
    X = rng.random((n, 6))
    f = np.sin(6 * X[:, 0]) + 2 * np.abs(X[:, 1] - 0.5) + X[:, 2] * (X[:, 0] > 0.5)
    f -= f.mean()
    return X, f + np.sqrt(NOISE) * rng.standard_normal(n)


def informed_order(precision: np.ndarray, rng: np.random.Generator) -> BitOrder:
    """Five bits of the three features that matter first; learning this is the estimator's job."""
    bits = random_bits(precision, rng)
    first = [8 * feature + level for level in range(5) for feature in range(3)]
    bits = np.concatenate([first, bits[~np.isin(bits, first)]])
    weights = uniform_weights(bits.size) * 1e-3
    weights[: len(first)] += np.repeat(0.5 ** np.arange(1, 6), 3)
    weights[-1] = 1e-6
    return BitOrder.from_weights(bits, weights / weights.sum())


def check_slice(
    encoder: BitEncoder, order: BitOrder, X: np.ndarray, y: np.ndarray, X_new: np.ndarray
) -> None:
    """Compare with an n x n Cholesky on a slice of the rows."""
    codes, new = encoder.encode(X), encoder.encode(X_new)
    trie = build_trie(codes, order)
    got = likelihood(trie, order, y, NOISE, gradient=True)
    prediction = predict(condition(trie, codes, order, y, NOISE), new)

    both = Codes(np.vstack([codes.packed, new.packed]), codes.precision)
    bits = np.unpackbits(both.packed, axis=1)[:, order.key_bits]
    kernel = np.zeros((len(bits), len(bits)))
    same = np.ones_like(kernel, dtype=bool)
    for level, weight in enumerate(order.weights[: order.n_levels]):
        same &= bits[:, [level]] == bits[:, level]
        kernel += weight * same
    n = len(y)
    noise = NOISE + order.nugget_variance
    covariance = kernel[:n, :n] + noise * np.eye(n)
    alpha = np.linalg.solve(covariance, y)
    log_det = np.linalg.slogdet(covariance)[1]
    nll = 0.5 * (y @ alpha + log_det + n * np.log(2 * np.pi))
    by_noise = 0.5 * (np.trace(np.linalg.inv(covariance)) - alpha @ alpha)
    cross = kernel[:n, n:]
    mean = cross.T @ alpha
    var = np.diag(kernel)[n:] - np.sum(cross * np.linalg.solve(covariance, cross), axis=0)
    errors = {
        "nll": abs(got.nll / nll - 1),
        "gradient": abs(got.gradient.by_noise / by_noise - 1),
        "mean": np.abs(prediction.mean - mean).max(),
        "variance": np.abs(prediction.var - var).max(),
    }
    print(f"\nagainst dense algebra, {n:,} rows: ", end="")
    print(", ".join(f"{name} {error:.1e}" for name, error in errors.items()))
    if max(errors.values()) > 1e-9:
        raise SystemExit("the check against dense algebra failed")
    print("all equal to rounding")


def warm_up() -> None:
    """Compile everything on fewer rows."""
    rng = np.random.default_rng(1)
    X, y = make_data(rng, 40_000)  # enough for the parallel sort

    def run() -> None:
        encoder = BitEncoder(precision=8).fit(X)
        codes, order = encoder.encode(X), informed_order(encoder.precision_, rng)
        trie = build_trie(codes, order)
        likelihood(trie, order, y, NOISE, gradient=True)
        posterior = condition(trie, codes, order, y, NOISE)
        predict(posterior, codes)
        leave_one_out(posterior)

    timed("compile (cached on disk)", run)


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Run, print the time, return the result."""
    start = time.perf_counter()
    result = work()
    print(f"  {what:32s}{time.perf_counter() - start:9.3f}")
    return result


if __name__ == "__main__":
    main()
