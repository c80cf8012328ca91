"""A plan for training and data to train on."""

import numpy as np

from triegp.encoding import pack_codes
from triegp.mixture.optimise import (
    Data,
    Plan,
)

PLAN = Plan(
    n_candidates=3,
    last_weights=(None, 0.5, 0.9),
    optimizer="lbfgs",
    max_iter=30,
    tolerance=1e-3,
    learn_scale=True,
    nugget="row",
)
PRECISION = np.array([4, 3, 2])


def make_data(seed=0, n=120, n_targets=1, weight=False, known_noise=False):
    rng = np.random.default_rng(seed)
    raw = np.stack([rng.integers(0, 1 << int(p), n) for p in PRECISION], axis=1)
    signal = np.sin(raw[:, 0] / 3.0) + 0.1 * raw[:, 1]
    targets = signal[:, None] + 0.3 * rng.standard_normal((n, n_targets))
    return Data(
        pack_codes(raw, PRECISION),
        (targets - targets.mean(axis=0)) / targets.std(axis=0),
        noise=1e-2,
        known_noise=rng.exponential(0.1, (n, n_targets)) if known_noise else None,
        weight=rng.integers(0, 3, n).astype(float) if weight else None,
    )
