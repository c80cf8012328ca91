"""GPyTorch's Gaussian processes: conjugate gradients, inducing points, Cholesky.

The paper took its baselines from Wang et al. (2019), "Exact Gaussian processes on a million data
points". The numbers of inducing points are theirs; steps and precision were chosen so that a fit
takes seconds on a GPU, and each method says what it does.
"""

import gc
import os
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from bench.distributions import gaussian
from bench.methods.task import Method

SUBSET_ROWS = 10_000
PREDICT_ROWS = 4000
CONJUGATE_GRADIENTS = (
    ("max_cholesky_size", 0),
    ("min_preconditioning_size", 0),
    ("max_preconditioner_size", 100),
    ("cg_tolerance", 1.0),
    ("eval_cg_tolerance", 0.01),
    ("fast_pred_var",),
    ("max_root_decomposition_size", 2000),
)
CHOLESKY = (("fast_computations", False, False, False), ("fast_pred_var",))


@dataclass(frozen=True)
class Rows:
    """Training rows as tensors X (n, d) and y (n,) of mean 0 and deviation 1, and their units."""

    X: Any
    y: Any
    X_mean: np.ndarray
    X_sd: np.ndarray
    y_mean: float
    y_sd: float

    def features(self, X):
        import torch

        return torch.as_tensor((X - self.X_mean) / self.X_sd).to(self.X)


def standardise(task, dtype):
    """Rows on the GPU, or on the CPU if there is none; seeds torch."""
    import torch

    torch.manual_seed(task.seed)
    X_mean, X_sd = task.X.mean(axis=0), task.X.std(axis=0)
    X_sd = np.where(X_sd > 0, X_sd, 1.0)
    y_mean, y_sd = task.y.mean(), task.y.std() or 1.0
    to = {"dtype": dtype, "device": "cuda" if torch.cuda.is_available() else "cpu"}
    X = torch.as_tensor((task.X - X_mean) / X_sd, **to)
    y = torch.as_tensor((task.y - y_mean) / y_sd, **to)
    return Rows(X, y, X_mean, X_sd, float(y_mean), float(y_sd))


def check_memory(rows, n_matrices):
    """Raise MemoryError, before anything is allocated, if so many n by n matrices do not fit."""
    import torch

    if rows.X.is_cuda:
        gc.collect()
        torch.cuda.empty_cache()
        there = torch.cuda.mem_get_info()[0]
    else:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    n = len(rows.y)
    needed = n_matrices * n * n * rows.X.element_size()
    if needed > there:
        raise MemoryError(
            f"{n_matrices} matrices of {n} by {n} {rows.X.dtype} take {needed / 1e9:.0f} GB, "
            f"{rows.X.device.type} has {there / 1e9:.0f} GB"
        )


@contextmanager
def using(*settings):
    """GPyTorch's settings, each a name and arguments; no notes of added jitter."""
    import gpytorch
    from linear_operator.utils.warnings import NumericalWarning

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", NumericalWarning)
        for name, *values in (("cholesky_max_tries", 5), *settings):
            stack.enter_context(getattr(gpytorch.settings, name)(*values))
        yield


def start(n_features, ard=False, least_noise=1e-4):
    """A Matern-3/2 kernel and a likelihood, to be trained by the logarithms of what they have.

    By GPyTorch's softplus, a feature that does not matter takes too many steps to fade.
    """
    import torch
    from gpytorch.constraints import GreaterThan
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.likelihoods import GaussianLikelihood

    def above(least):
        return GreaterThan(least, transform=torch.exp, inv_transform=torch.log)

    kernel = ScaleKernel(
        MaternKernel(
            1.5, ard_num_dims=n_features if ard else None, lengthscale_constraint=above(0)
        ),
        outputscale_constraint=above(0),
    )
    likelihood = GaussianLikelihood(noise_constraint=above(least_noise))
    kernel.base_kernel.lengthscale = n_features**0.5  # standardised rows are sqrt(2 d) apart
    kernel.outputscale = 1.0
    likelihood.noise = 0.1
    return kernel, likelihood


def regression(rows, kernel, likelihood):
    """GPyTorch's exact regression, in the dtype and on the device of the rows."""
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(rows.X, rows.y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = kernel

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))

    return Regression().to(rows.X)


def differentiate(model, X, y):
    """Gradient of -log p(y) / n, by GPyTorch."""
    import gpytorch

    model.set_train_data(X, y, strict=False)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    (-objective(model(X), y)).backward()


def differentiate_dense(model, X, y, block_rows=2000):
    """The same by Cholesky, in closed form: (K^-1 - a a') / 2n by K, where a = K^-1 (y - mean).

    Half the n by n matrices that differentiating through the factor takes (6 for 12).
    """
    import torch
    from linear_operator.utils.cholesky import psd_safe_cholesky

    n = len(y)
    with torch.no_grad():
        K = model.kernel(X).to_dense()
        K.diagonal().add_(model.likelihood.noise)
        factor = psd_safe_cholesky(K)
        del K
        a = torch.cholesky_solve((y - model.mean(X))[:, None], factor)
        by_K = torch.cholesky_inverse(factor)
        del factor
        by_K.addmm_(a, a.T, alpha=-1).mul_(0.5 / n)
    (by_K.trace() * model.likelihood.noise - (a[:, 0] * model.mean(X)).mean()).sum().backward()
    for first in range(0, n, block_rows):
        block = slice(first, first + block_rows)
        (by_K[block] * model.kernel(X[block], X).to_dense()).sum().backward()


def train(model, rows, stages, gradient=differentiate):
    """Adam of rate 0.1; a stage is (n_rows, steps), on the first rows of a random order."""
    import torch

    order = torch.randperm(len(rows.y), device=rows.y.device)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()
    for n_rows, steps in stages:
        some = order[:n_rows] if n_rows < len(order) else slice(None)
        X, y = rows.X[some], rows.y[some]
        for _ in range(steps):
            adam.zero_grad()
            gradient(model, X, y)
            adam.step()
    model.set_train_data(rows.X, rows.y, strict=False)


def predictor(model, likelihood, rows, *settings):
    """New rows -> Gaussians of new observations, some rows at a time."""
    import torch

    model.eval()
    likelihood.eval()

    def predict(X):
        means, variances = [], []
        with using(*settings), torch.no_grad():
            for first in range(0, len(X), PREDICT_ROWS):
                found = likelihood(model(rows.features(X[first : first + PREDICT_ROWS])))
                means.append(found.mean)
                variances.append(found.variance.clamp_min(likelihood.noise))
        mean, variance = (torch.cat(parts).double().cpu().numpy() for parts in (means, variances))
        return gaussian(rows.y_mean + rows.y_sd * mean, rows.y_sd * np.sqrt(variance))

    return predict


def fit_bbmm(task, steps=(60, 5)):
    import torch

    rows = standardise(task, torch.float32)
    check_memory(rows, 7)
    model = regression(rows, *start(rows.X.shape[1]))
    stages = list(zip((SUBSET_ROWS, len(rows.y)), steps, strict=True))
    with using(*CONJUGATE_GRADIENTS):
        train(model, rows, stages)
    return predictor(model, model.likelihood, rows, *CONJUGATE_GRADIENTS)


def fit_exact(task, steps=(100, 3)):
    import torch

    rows = standardise(task, torch.float64)
    check_memory(rows, 6)
    model = regression(rows, *start(rows.X.shape[1], ard=True, least_noise=1e-6))
    stages = list(zip((SUBSET_ROWS, len(rows.y)), steps, strict=True))
    with using(*CHOLESKY):
        train(model, rows, stages, differentiate_dense)
    return predictor(model, model.likelihood, rows, *CHOLESKY)


def inducing(rows, n_points):
    """Distinct training rows, chosen at random."""
    import torch

    distinct = torch.unique(rows.X, dim=0)
    return distinct[torch.randperm(len(distinct), device=distinct.device)[:n_points]].clone()


def fit_sgpr(task, steps=100, n_points=512):
    import torch
    from gpytorch.kernels import InducingPointKernel

    rows = standardise(task, torch.float64)  # float32 trains as well but predicts badly
    kernel, likelihood = start(rows.X.shape[1])
    points = inducing(rows, n_points)
    model = regression(rows, InducingPointKernel(kernel, points, likelihood), likelihood)
    with using():
        train(model, rows, [(len(rows.y), steps)])
    return predictor(model, likelihood, rows)


def minibatches(n, size, device):
    """Row numbers without end: random permutations of all rows, cut into batches."""
    import torch

    while True:
        yield from torch.randperm(n, device=device).split(size)


def fit_svgp(task, steps=2000, n_points=1024):
    import gpytorch
    import torch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    rows = standardise(task, torch.float32)
    n = len(rows.y)
    points = inducing(rows, n_points)
    kernel, likelihood = start(rows.X.shape[1])

    class Variational(gpytorch.models.ApproximateGP):
        def __init__(self):
            weights = CholeskyVariationalDistribution(len(points))
            super().__init__(VariationalStrategy(self, points, weights))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = kernel
            self.likelihood = likelihood

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))

    model = Variational().to(rows.X)
    model.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    with using():
        for batch in islice(minibatches(n, max(1024, n // 20), rows.y.device), steps):
            adam.zero_grad()
            (-objective(model(rows.X[batch]), rows.y[batch])).backward()
            adam.step()
    return predictor(model, likelihood, rows)


NEEDS = ("torch", "gpytorch")
COMMON = (
    "Matern-3/2 with one lengthscale, standardised, logarithms of the parameters trained from "
    "lengthscale sqrt(d), scale 1, noise 0.1;"
)
METHODS = (
    Method(
        "gpytorch-exact",
        NEEDS,
        fit_exact,
        "ARD Matern-3/2, standardised, logarithms of the parameters trained from lengthscale "
        "sqrt(d), scale 1, noise 0.1; Cholesky in float64; Adam with rate 0.1, 100 steps on 10,000 "
        "random rows, then 3 on all; run if six n by n matrices fit into memory",
        True,
    ),
    Method(
        "gpytorch-bbmm",
        NEEDS,
        fit_bbmm,
        f"{COMMON} conjugate gradients in float32, preconditioner of rank 100, tolerance 1, "
        "and 0.01 after training; Adam with rate 0.1, 60 steps on 10,000 random rows and 5 on all; "
        "variances from Lanczos of rank 2,000 (GPyTorch's 100 makes them too wide if there is "
        "little noise)",
        True,
    ),
    Method(
        "gpytorch-sgpr",
        NEEDS,
        fit_sgpr,
        f"{COMMON} 512 inducing points, 100 steps of Adam with rate 0.1; float64",
        True,
    ),
    Method(
        "gpytorch-svgp",
        NEEDS,
        fit_svgp,
        f"{COMMON} 1,024 inducing points, Adam with rate 0.01; float32, 2,000 steps with "
        "minibatches of 1,024 rows or a twentieth of the rows",
        True,
    ),
)
