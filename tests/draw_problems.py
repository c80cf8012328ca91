"""Are draws distributed as a mean and a covariance say? Errors of the estimates are computed."""

import numpy as np

WORST = 5.0  # standard errors; 1 in 1.7 million values of a normal is further away


def standardised_errors(draws, mean, cov):
    """Differences of the moments of draws (m, k) from given ones, in standard errors.

    The standard error of an average is that of the values it averages, so that draws need not be
    normal.
    """
    k = draws.shape[1]
    apart = draws - mean[:, None]
    products = apart[:, None] * apart[None]
    found = []
    for values, expected in ((draws, mean), (products, cov)):
        error = values.std(axis=-1) / np.sqrt(k)
        known = error > 1e-12 * (1.0 + np.abs(expected))
        off = values.mean(axis=-1) - expected
        assert np.abs(off[~known]).max(initial=0.0) < 1e-9
        found.append(np.abs(off[known] / error[known]).max(initial=0.0))
    return found


def check_moments(draws, mean, cov):
    """Assert that draws have this mean and covariance, up to errors of their estimates."""
    by_mean, by_cov = standardised_errors(draws, mean, cov)
    assert by_mean < WORST
    assert by_cov < WORST
