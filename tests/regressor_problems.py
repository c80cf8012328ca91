"""Small fits of the regressor, and its predictions by dense algebra."""

import numpy as np

import oracle

QUICK = {"n_members": 3, "n_candidates": 2, "max_iter": 10, "noise": 0.05, "random_state": 0}


def make_data(n=40, seed=0, n_features=2):
    rng = np.random.default_rng(seed)
    X = rng.random((n, n_features))
    return X, 20 + 5 * (np.sin(5 * X[:, 0]) + 0.2 * rng.standard_normal(n))


def new_rows(m=9, seed=1, n_features=2):
    return np.random.default_rng(seed).random((m, n_features))


# The dense route: members by their kernels, the mixture by hand.


def dense_kernel(member, a, b):
    order = member.order
    bits = [oracle.unpack_bits(member.encoder.encode(X), order.key_bits) for X in (a, b)]
    return oracle.kernel(*bits, order.weights[: order.n_levels] * order.scale)


def dense_members(model, X, y, new, known=0.0, target=0, column=0):
    """Mean and covariance of f at new rows under every member, and its noise; standardised."""
    shift, unit = model.target_mean_[target], model.target_scale_[target]
    out = []
    for member in model.ensembles_[target if column == 0 else 0].members:
        noise = member.posteriors[column].new_noise
        mean, cov = oracle.posterior(
            dense_kernel(member, X, X),
            noise + known / unit**2,
            dense_kernel(member, X, new),
            dense_kernel(member, new, new),
            (y - shift) / unit,
        )
        out.append((mean, cov, noise))
    return out


def dense_loo(model, X, y):
    out = []
    for member in model.ensembles_[0].members:
        noise = member.posteriors[0].new_noise
        standard = (y - model.target_mean_) / model.target_scale_
        mean, var = oracle.leave_one_out(dense_kernel(member, X, X), noise, standard)
        out.append((mean, np.diag(var), noise))
    return out


def by_hand(model, members, latent=False, target=0, column=0):
    """Weights (K + 1,), means (K + 1, m) and covariances of the mixture in the units of y.

    The last component is of outliers, rows that are independent of all others.
    """
    mixed = model.ensembles_[target if column == 0 else 0].calibrations[column]
    shift, unit = model.target_mean_[target], model.target_scale_[target]
    means = np.stack([mean for mean, _, _ in members])
    average = np.average(means, axis=0, weights=mixed.weight)
    means = average + mixed.shrink * (means - average)
    covs = np.stack(
        [cov + (0 if latent else noise) * np.eye(len(cov)) for _, cov, noise in members]
    )
    outlier = 0.0 if latent else mixed.outlier
    within = mixed.scale * np.average(covs, axis=0, weights=mixed.weight)
    far = np.diag(np.diag(within) + mixed.outlier_var)
    return (
        np.append((1 - outlier) * mixed.weight, outlier),
        shift + unit * np.vstack([means, average]),
        unit**2 * np.concatenate([mixed.scale * covs, far[None]]),
    )


def total_moments(weight, means, covs):
    """Mean and covariance; two rows covary only if neither is an outlier."""
    mean = np.average(means, axis=0, weights=weight)
    apart = means - mean
    parts = [w * (c + np.outer(a, a)) for w, c, a in zip(weight, covs, apart, strict=True)]
    cov = sum(parts[:-1]) * (1 - weight[-1])
    np.fill_diagonal(cov, np.diag(sum(parts)))
    return mean, cov
