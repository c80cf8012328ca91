"""
One feature: trees, Matern and LightGBM
=======================================

The same 400 rows, fitted by three models that give intervals. The function jumps at 0.6, and
between 0.3 and 0.4 there are no rows at all. Which model follows the jump, and which one knows what
it does not know?

The last lines write the picture of the README if a path is given:
``python examples/plot_one_dimension.py docs/figures/one_dimension.png``.
"""

import sys

import lightgbm
import numpy as np
from matplotlib import pyplot as plt
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from triegp import TrieGPRegressor

# %%
# The rows
# --------
# A sine, a jump, a gap, and noise with a deviation of 0.2.


def truth(x):
    """A smooth function with a jump at 0.6."""
    return np.sin(9 * x) + 1.5 * (x > 0.6)


rng = np.random.default_rng(0)
x = rng.random(800)
x = np.sort(x[(x < 0.3) | (x > 0.4)][:400])
y = truth(x) + 0.2 * rng.standard_normal(400)
at = np.linspace(0, 1, 600)

# %%
# Three models
# ------------
# Trees and a smooth part, added up to one Gaussian process:

found = TrieGPRegressor(random_state=0).fit(x[:, None], y).predict_distribution(at[:, None])
trees = (found.mean(), *found.interval(0.9).T)

# %%
# An exact Matern process of scikit-learn, its parameters by maximum likelihood:

kernel = ConstantKernel() * Matern(0.2, nu=1.5) + WhiteKernel(0.1)
exact = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(x[:, None], y)
mean, std = exact.predict(at[:, None], return_std=True)
matern = (mean, mean - 1.645 * std, mean + 1.645 * std)


# %%
# LightGBM with the quantile loss, one model for each of three quantiles:


def fit_quantile(level):
    """The predicted quantile, with LightGBM's defaults."""
    model = lightgbm.LGBMRegressor(objective="quantile", alpha=level, verbose=-1, n_jobs=1)
    return model.fit(x[:, None], y).predict(at[:, None])


boosted = (fit_quantile(0.5), fit_quantile(0.05), fit_quantile(0.95))

# %%
# Side by side
# ------------
# triegp follows the jump, and its band is somewhat wider in the gap. The Matern process rounds the
# jump off. To follow it at all it needs a short lengthscale, so its mean strays in the gap; its
# band there is the widest of all. LightGBM's quantiles are steps that do not know about the gap:
# their band is narrowest where nothing was observed.

STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
DOTS, TRUTH, BAND = "0.55", "black", "tab:blue"
panels = {
    "triegp, trees and a smooth part": trees,
    "exact Matern-3/2 process": matern,
    "LightGBM, three quantiles": boosted,
}
with plt.rc_context(STYLE):
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
    for ax, (title, (centre, low, high)) in zip(axes, panels.items(), strict=True):
        ax.fill_between(at, low, high, color=BAND, alpha=0.2, lw=0, label="90 % interval")
        ax.plot(x, y, ".", color=DOTS, ms=2, label="rows", rasterized=True)
        ax.plot(at, truth(at), color=TRUTH, lw=0.8, ls="--", label="truth")
        ax.plot(at, centre, color=BAND, lw=1.2, label="prediction")
        ax.set(title=title, xlabel="x", xlim=(0, 1), ylim=(-2, 3.2))
    axes[0].set_ylabel("y")
    axes[0].legend(loc="lower left", frameon=False, fontsize=7, ncols=2)

# %%
# In numbers
# ----------
# How far the prediction is from the true function: where it is smooth, around the jump, and in the
# gap, together with the mean width of the intervals.

gap, jump = (at > 0.3) & (at < 0.4), abs(at - 0.6) < 0.03
places = {"elsewhere": ~gap & ~jump, "at the jump": jump, "in the gap": gap}
for title, (centre, low, high) in panels.items():
    print(title)
    for place, here in places.items():
        error = np.sqrt(np.mean((centre - truth(at))[here] ** 2))
        print(f"  {place:12s} rmse {error:.3f}, intervals {np.mean((high - low)[here]):.2f} wide")

# %%

if len(sys.argv) > 1 and sys.argv[1].endswith(".png"):
    figure.savefig(sys.argv[1], dpi=200)
plt.show()
