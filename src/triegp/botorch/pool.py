"""Screening of candidates: which of many rows to observe next."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.optim import optimize_acqf_discrete
from botorch.sampling.normal import SobolQMCNormalSampler

from triegp.botorch.model import TrieGPModel
from triegp.checks import one_of, random_generator, whole_number
from triegp.models.improvement import log_improvement

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

METHODS = ("thompson", "qlogei", "mean")
FUNCTIONS_AT_ONCE = 64
N_SAMPLES = 128  # of qLogEI


def suggest(
    model: Any,
    candidates: Any,
    q: int = 1,
    method: str = "thompson",
    *,
    best_f: float | None = None,
    n_screened: int = 2_000,
    random_state: Any = 0,
) -> Ints:
    """Choose q of many candidates to observe next, for a maximum of y.

    Parameters
    ----------
    model : estimator
        Fitted, with one target. For a minimum, fit it to -y.
    candidates : array-like (m, n_features)
        Rows to choose from.
    q : int, default=1
        Number of rows to choose, at most m.
    method : {"thompson", "qlogei", "mean"}, default="thompson"
        "thompson": the best candidate of each of q functions drawn from the posterior. "qlogei":
        the log expected improvement of the batch, greedily, one row after another. "mean": the
        largest posterior means.
    best_f : float, optional
        Value that "qlogei" is to improve on; by default the largest posterior mean of the
        candidates.
    n_screened : int, default=2000
        "qlogei" looks at so many candidates, those of the largest expected improvement alone.
    random_state : int, RandomState, Generator or None, default=0
        Source of random numbers.

    Returns
    -------
    int64 (q,)
        Distinct indices of candidates, in the order in which they were chosen.

    Notes
    -----
    Thompson sampling takes O(m D) per row chosen, for trees of depth D, and no covariances.
    """
    one_of("method", method, METHODS)
    rows = np.asarray(candidates)
    if rows.ndim != 2 or not rows.shape[0]:
        raise ValueError(f"candidates must be rows (m, n_features), got shape {rows.shape}")
    q = whole_number("q", q)
    n_screened = whole_number("n_screened", n_screened)
    if q > rows.shape[0]:
        raise ValueError(f"q must be at most the number of candidates, {rows.shape[0]}, got {q}")
    if not model.one_dimensional_ and model.target_mean_.size > 1:
        raise ValueError(f"model must have one target, got {model.target_mean_.size}")
    rng = random_generator(random_state)
    if method == "thompson":
        return _thompson(model, rows, q, rng)
    if method == "mean":
        found = np.asarray(model.predict(rows, latent=True)).reshape(-1)
        return np.argsort(-found, kind="stable")[:q]
    return _improve(model, rows, q, best_f, max(n_screened, q), rng)


def _thompson(model: Any, rows: Any, q: int, rng: np.random.Generator) -> Ints:
    """The best candidate of each function that is not yet chosen."""
    draws = model.sample_functions(q, random_state=rng)
    chosen: list[int] = []
    for first in range(0, q, FUNCTIONS_AT_ONCE):
        some = draws[first : first + FUNCTIONS_AT_ONCE]
        values = np.asarray(some(rows)).reshape(rows.shape[0], -1)
        for column in values.T:
            column[chosen] = -np.inf
            chosen.append(int(column.argmax()))
    return np.array(chosen, np.int64)


def _improve(
    model: Any, rows: Any, q: int, best_f: float | None, n_screened: int, rng: np.random.Generator
) -> Ints:
    """Greedy log expected improvement of the batch, among the best candidates alone."""
    mean, std = (np.asarray(x).reshape(-1) for x in model.predict(rows, True, latent=True))
    best = float(mean.max()) if best_f is None else float(best_f)
    alone = log_improvement(mean, std, best)
    some = np.argsort(-alone, kind="stable")[:n_screened]
    choices = torch.as_tensor(np.asarray(rows[some], np.float64))
    sampler = SobolQMCNormalSampler(torch.Size([N_SAMPLES]), seed=int(rng.integers(2**31)))
    adapted = TrieGPModel(model)
    acquisition = qLogExpectedImprovement(adapted, best_f=best, sampler=sampler)
    found, _ = optimize_acqf_discrete(
        acquisition, q=q, choices=choices, return_acq_values=False, max_batch_size=len(some)
    )
    chosen: list[int] = []
    for row in found.numpy():
        same = np.flatnonzero((choices.numpy() == row).all(axis=1))
        chosen.append(next(int(some[k]) for k in same if int(some[k]) not in chosen))
    return np.array(chosen, np.int64)
