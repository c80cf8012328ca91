"""One feature, three models: triegp, a Matern process, LightGBM with quantiles.

    python examples/one_dimension.py [OUT.png]

Each panel shows the same 400 rows, the true function, the predicted mean (or median) and a 90 %
predictive interval. Needs matplotlib and LightGBM (`pip install 'triegp[plots]' lightgbm`).
"""

import sys

import lightgbm
import matplotlib as mpl
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from triegp import TrieGPRegressor

mpl.use("Agg")
from matplotlib import pyplot as plt

STYLE = {
    "svg.hashsalt": "triegp",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DOTS, TRUTH, BAND = "0.55", "black", "tab:blue"


def truth(x):
    """A smooth function with a jump at 0.6."""
    return np.sin(9 * x) + 1.5 * (x > 0.6)


def make_data(n=400, seed=0):
    """Rows in [0, 1], without any between 0.3 and 0.4."""
    rng = np.random.default_rng(seed)
    x = rng.random(2 * n)
    x = np.sort(x[(x < 0.3) | (x > 0.4)][:n])
    return x, truth(x) + 0.2 * rng.standard_normal(n)


def fit_triegp(x, y, at):
    """Mean and interval of trees and a smooth part."""
    model = TrieGPRegressor(random_state=0).fit(x[:, None], y)
    found = model.predict_distribution(at[:, None])
    return found.mean(), *found.interval(0.9).T


def fit_matern(x, y, at):
    """Mean and interval of an exact Matern-3/2 process, hyperparameters by maximum likelihood."""
    kernel = ConstantKernel() * Matern(0.2, nu=1.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(x[:, None], y)
    mean, std = model.predict(at[:, None], return_std=True)
    return mean, mean - 1.645 * std, mean + 1.645 * std


def fit_lightgbm(x, y, at):
    """Median and two quantiles, one model each, LightGBM's defaults."""

    def quantile(alpha):
        model = lightgbm.LGBMRegressor(objective="quantile", alpha=alpha, verbose=-1, n_jobs=1)
        return model.fit(x[:, None], y).predict(at[:, None])

    return quantile(0.5), quantile(0.05), quantile(0.95)


def draw(axes, title, x, y, at, found):
    """One panel."""
    centre, low, high = found
    axes.fill_between(at, low, high, color=BAND, alpha=0.2, lw=0, label="90 % interval")
    axes.plot(x, y, ".", color=DOTS, ms=2, label="rows", rasterized=True)
    axes.plot(at, truth(at), color=TRUTH, lw=0.8, ls="--", label="truth")
    axes.plot(at, centre, color=BAND, lw=1.2, label="prediction")
    axes.set(title=title, xlabel="x", xlim=(0, 1), ylim=(-2, 3.2))


def main(path="docs/figures/one_dimension.png"):
    """Fit all three and draw them side by side."""
    x, y = make_data()
    at = np.linspace(0, 1, 600)
    models = {
        "triegp, trees and a smooth part": fit_triegp,
        "exact Matern-3/2 process": fit_matern,
        "LightGBM, three quantiles": fit_lightgbm,
    }
    with mpl.rc_context(STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
        for axes, (title, fit) in zip(panels, models.items(), strict=True):
            draw(axes, title, x, y, at, fit(x, y, at))
        panels[0].set_ylabel("y")
        panels[0].legend(loc="lower left", frameon=False, fontsize=7, ncols=2)
        figure.savefig(path, dpi=200)


if __name__ == "__main__":
    main(*sys.argv[1:])
