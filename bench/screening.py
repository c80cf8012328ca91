"""Screening of a library: regret and time of one batch, beside an exact process on what it holds.

python -m bench.screening [n_observations] [n_candidates] [q] [seed]

Needs the extra botorch. The exact process is BoTorch's SingleTaskGP with a Matern-5/2 kernel and a
lengthscale per property. It is fitted to 2,000 of the observations. It looks at all candidates for
expected improvement, and at 5,000 for joint samples.
"""

import sys
import time

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.botorch import suggest
from triegp.models.improvement import log_improvement

GP_ROWS, GP_JOINT = 2_000, 5_000


def assay(X):
    """An activity with a narrow optimum, thresholds and an interaction; 8 properties."""
    level = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + X[:, 2] * X[:, 3]
    steps = 0.8 * (X[:, 4] > 0.62) + 0.5 * ((X[:, 5] > 0.3) & (X[:, 6] < 0.55))
    narrow = 1.5 * np.exp(-60 * np.square(X[:, [0, 4, 7]] - [0.3, 0.8, 0.15]).sum(axis=1))
    return level + steps + narrow


def clock(work):
    wall, cpu = time.perf_counter(), time.process_time()
    return work(), time.perf_counter() - wall, time.process_time() - cpu


def gaussian_process(X, y):
    X, y = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=X.shape[1]))
    model = SingleTaskGP(X, y, covar_module=kernel, input_transform=Normalize(d=X.shape[1]))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def gp_thompson(model, candidates, q):
    with torch.no_grad():
        found = MaxPosteriorSampling(model, replacement=False)(candidates, num_samples=q)
    return found.numpy()


def gp_improvement(model, candidates, q, best):
    values = []
    with torch.no_grad():
        for part in candidates.split(4_000):  # not as many batches of one, which take far longer
            told = model.posterior(part)
            deviation = told.variance.sqrt().squeeze(-1).numpy()
            values.append(log_improvement(told.mean.squeeze(-1).numpy(), deviation, best))
    chosen = np.argsort(np.concatenate(values))[-q:]
    return candidates[chosen].numpy()


def main(n=100_000, m=1_000_000, q=20, seed=0):
    rng = np.random.default_rng(seed)
    X, candidates = rng.random((n, 8)), rng.random((m, 8))
    y = assay(X) + 0.3 * rng.standard_normal(n)
    truth = assay(candidates)
    best = truth.max()
    print(f"{n:,} observations, {m:,} candidates, batches of {q}; best {best:.3f}")

    def show(name, values, wall, cpu):
        regret = best - values.max()
        print(
            f"{name:32s} regret {regret:.3f}, mean of batch {values.mean():.3f}, "
            f"{wall:.1f} s, {cpu:.1f} s of CPU",
            flush=True,
        )

    show("random", truth[rng.choice(m, q)], 0.0, 0.0)
    model, wall, cpu = clock(lambda: BinaryTreeGPRegressor(random_state=seed).fit(X, y))
    print(f"mixture of trees, fit: {wall:.1f} s, {cpu:.1f} s of CPU", flush=True)
    for method in ("thompson", "qlogei", "mean"):
        chosen, wall, cpu = clock(lambda method=method: suggest(model, candidates, q, method))
        show(f"trees, {method}", truth[chosen], wall, cpu)
    model, wall, cpu = clock(lambda: TrieGPRegressor(engine="cpu", random_state=seed).fit(X, y))
    print(f"trees and smooth part, fit: {wall:.1f} s, {cpu:.1f} s of CPU", flush=True)
    chosen, wall, cpu = clock(lambda: suggest(model, candidates, q, "mean"))
    show("trees and smooth part, mean", truth[chosen], wall, cpu)
    some = rng.choice(n, min(GP_ROWS, n), replace=False)
    process, wall, cpu = clock(lambda: gaussian_process(X[some], y[some]))
    print(f"exact process, fit of {some.size:,}: {wall:.1f} s, {cpu:.1f} s of CPU", flush=True)
    seen = torch.as_tensor(candidates)
    found, wall, cpu = clock(lambda: gp_thompson(process, seen[:GP_JOINT], q))
    show("exact process, thompson", assay(found), wall, cpu)
    found, wall, cpu = clock(lambda: gp_improvement(process, seen, q, float(y[some].max())))
    show("exact process, logei", assay(found), wall, cpu)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
