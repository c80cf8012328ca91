"""The model by its definition: dense matrices, O(n^3), numpy only. Never optimised."""

import numpy as np


def unpack_bits(codes, order_bits):
    """Key bits (n, D) of packed codes, in the given bit order."""
    bits = np.unpackbits(codes.packed, axis=1)
    return bits[:, np.asarray(order_bits)]


def shared_prefix(a, b):
    """lcp (n, m) of two sets of key bits."""
    equal = a[:, None, :] == b[None, :, :]
    return np.cumprod(equal, axis=2).sum(axis=2)


def kernel(a, b, weights):
    """k(x, x') = sum of the weights of the shared leading bits; weights are those of the key."""
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    return cumulative[shared_prefix(a, b)]


def smooth_kernel(name, scale, lengthscale, A, B):
    """A stationary kernel with one lengthscale per input, by its formula; A (n, p), B (m, p)."""
    apart = (A[:, None, :] - B[None, :, :]) / lengthscale
    r = np.sqrt(np.square(apart).sum(axis=2))
    shape = {
        "matern12": lambda r: np.exp(-r),
        "matern32": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "matern52": lambda r: (1 + np.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-np.sqrt(5) * r),
        "rbf": lambda r: np.exp(-0.5 * r**2),
    }
    return scale * shape[name](r)


def smooth_derivatives(name, scale, lengthscale, A):
    """Derivatives of a stationary kernel among rows A by the logarithms of lengthscales, (p, n, n).

    The derivative of k(r) by log l_j is -k'(r) / r times the square of the difference over l_j.
    """
    squares = np.square((A[:, None, :] - A[None, :, :]) / lengthscale)
    r = np.sqrt(squares.sum(axis=2))
    slope = {
        "matern12": lambda r: np.exp(-r) / np.where(r > 0, r, 1.0),
        "matern32": lambda r: 3 * np.exp(-np.sqrt(3) * r),
        "matern52": lambda r: 5 / 3 * (1 + np.sqrt(5) * r) * np.exp(-np.sqrt(5) * r),
        "rbf": lambda r: np.exp(-0.5 * r**2),
    }
    return scale * slope[name](r) * np.moveaxis(squares, 2, 0)


def level_matrices(a):
    """K_i (D, n, n): 1 where two rows share their first i bits, i = 1..D."""
    lcp = shared_prefix(a, a)
    return np.stack([(lcp >= i).astype(float) for i in range(1, a.shape[1] + 1)])


def nll(covariance, y):
    """Negative log density of y ~ N(0, covariance)."""
    sign, log_det = np.linalg.slogdet(covariance)
    assert sign > 0
    return 0.5 * (y @ np.linalg.solve(covariance, y) + log_det + len(y) * np.log(2 * np.pi))


def nll_gradient(covariance, y, derivative):
    """d nll for d covariance = derivative."""
    inverse = np.linalg.inv(covariance)
    alpha = inverse @ y
    return 0.5 * (np.sum(inverse * derivative) - alpha @ derivative @ alpha)


def posterior(k_train, noise, k_cross, k_test, y):
    """Mean and covariance of f at the test points; noise is one variance per row."""
    covariance = k_train + np.diag(np.broadcast_to(noise, len(y)))
    gain = np.linalg.solve(covariance, k_cross).T
    return gain @ y, k_test - gain @ k_cross


def leave_one_out(k_train, noise, y):
    """Mean and variance of f at each row, given all the others, by n refits."""
    n = len(y)
    noise = np.broadcast_to(noise, n)
    mean, var = np.empty(n), np.empty(n)
    for i in range(n):
        rest = np.arange(n) != i
        m, c = posterior(
            k_train[np.ix_(rest, rest)],
            noise[rest],
            k_train[np.ix_(rest, [i])],
            k_train[[i]][:, [i]],
            y[rest],
        )
        mean[i], var[i] = m[0], c[0, 0]
    return mean, var
