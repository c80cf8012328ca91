"""Settings for training and problems to train on."""

from dataclasses import replace

import numpy as np

from triegp.encoding import pack_codes
from triegp.engines import CpuEngine
from triegp.mixture.optimise import Follower, Problem, train_order
from triegp.mixture.settings import PRESETS
from triegp.tree.rows import Rows

SETTINGS = replace(
    PRESETS["default"], n_members=3, n_candidates=3, max_iter=30, noise=1e-2, precision=5
)
PRECISION = np.array([4, 3, 2])


def make_problem(seed=0, n=120, n_targets=1, weight=False, known_noise=False):
    rng = np.random.default_rng(seed)
    raw = np.stack([rng.integers(0, 1 << int(p), n) for p in PRECISION], axis=1)
    signal = np.sin(raw[:, 0] / 3.0) + 0.1 * raw[:, 1]
    targets = signal[:, None] + 0.3 * rng.standard_normal((n, n_targets))
    rows = Rows(
        (targets - targets.mean(axis=0)) / targets.std(axis=0),
        rng.exponential(0.1, (n, n_targets)) if known_noise else None,
        rng.integers(0, 3, n).astype(float) if weight else None,
    )
    return Problem(pack_codes(raw, PRECISION), tuple(rows.target(j) for j in range(n_targets)))


def train_alone(start, problem, settings, watch, n_threads=1):
    """One order on the CPU, without others beside it."""
    follow = Follower(problem, settings.noise, CpuEngine(n_threads=n_threads))
    return train_order(start, problem.n_terms, settings, watch, follow)
