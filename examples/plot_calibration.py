"""
Conformal and leave-one-out calibration
=======================================

Split-conformal intervals come with a guarantee: 90 % of new targets lie inside, whatever the model.
It holds on average. If the noise differs from place to place, they may cover 100 % of the quiet
rows and 70 % of the loud ones, and the average does not show it. We compute them by hand beside the
intervals of triegp, which are calibrated by leave-one-out predictions and need no hold-out.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor

from triegp import BinaryTreeGPRegressor
from triegp.plots import CalibrationDisplay, PitDisplay

# %%
# The rows
# --------
# Four features. The first two make the function; the third makes the noise, whose deviation grows
# from 0.2 to 2. Noise has heavy tails: Student's t with 5 degrees of freedom.

rng = np.random.default_rng(0)


def make_rows(n):
    """Features in [0, 1] and targets."""
    X = rng.random((n, 4))
    noise = (0.2 + 1.8 * X[:, 2] ** 2) * rng.standard_t(5, n) / np.sqrt(5 / 3)
    return X, 3 * np.sin(6 * X[:, 0]) + 2 * np.abs(X[:, 1] - 0.5) + noise


X, y = make_rows(6_000)
X_new, y_new = make_rows(20_000)

# %%
# Split conformal, by hand
# ------------------------
# Fit any model to one part of the rows, and take the quantile of its absolute residuals on the
# other part as the half width of all intervals. That is all.

fitted, held = slice(0, 4_500), slice(4_500, None)
boosting = HistGradientBoostingRegressor(random_state=0).fit(X[fitted], y[fitted])
residuals = np.abs(y[held] - boosting.predict(X[held]))
level = np.ceil(0.9 * (residuals.size + 1)) / residuals.size  # the correction for finite samples
half = np.quantile(residuals, level, method="higher")
centre = boosting.predict(X_new)
conformal = np.column_stack([centre - half, centre + half])

# %%
# triegp
# ------
# Fit to all rows. The last step of ``fit`` predicts every row from the others, and learns from the
# residuals where they are large, and how heavy their tails are.

model = BinaryTreeGPRegressor(random_state=0).fit(X, y)
own = model.predict_interval(X_new, coverage=0.9)
print(f"fitted in {model.fit_seconds_:.1f} s")

ways = {"split conformal": conformal, "triegp": own}
covered = {
    name: (interval[:, 0] < y_new) & (y_new < interval[:, 1]) for name, interval in ways.items()
}
for name, interval in ways.items():
    print(
        f"{name:16s} {100 * covered[name].mean():.1f} % of the new rows inside, "
        f"intervals {np.mean(interval[:, 1] - interval[:, 0]):.2f} wide on average"
    )

# %%
# The same average, and not the same thing
# ----------------------------------------
# By tenths of the third feature: conformal intervals are too wide for quiet rows and too narrow for
# loud ones. Those of triegp widen with the noise. They are narrower on average, too.

COLOURS = {"split conformal": "#d55e00", "triegp": "#0072b2"}
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
edges = np.linspace(0, 1, 11)
tenth = np.digitize(X_new[:, 2], edges[1:-1])
middle = (edges[1:] + edges[:-1]) / 2

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for (name, interval), marker in zip(ways.items(), ("s", "o"), strict=True):
    style = {"color": COLOURS[name], "marker": marker, "lw": 2, "label": name}
    by_tenth = [covered[name][tenth == k].mean() for k in range(10)]
    widths = [np.mean((interval[:, 1] - interval[:, 0])[tenth == k]) for k in range(10)]
    axes[0].plot(middle, 100 * np.array(by_tenth), **style)
    axes[1].plot(middle, widths, **style)
axes[0].axhline(90, color="#757575", lw=1, ls=(0, (4, 3)))
axes[0].set(xlabel="third feature", ylabel="inside 90 % intervals, %", ylim=(60, 101), xlim=(0, 1))
axes[1].set(xlabel="third feature", ylabel="mean width of intervals", ylim=(0, None), xlim=(0, 1))
axes[0].legend(loc="lower left", frameon=False)

# %%
# Calibrated without a hold-out
# -----------------------------
# Leave-one-out predictions are exact and cost next to nothing, so calibration can be seen from the
# training rows alone. On the left, the share of targets inside central intervals of any coverage,
# and in the middle the same for the new rows: it tells nothing new. On the right, where in its
# predictive distribution each target was found: if the distributions are right, anywhere alike.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
CalibrationDisplay.from_loo(model, ax=axes[0])
CalibrationDisplay.from_estimator(model, X_new, y_new, ax=axes[1])
PitDisplay.from_loo(model, ax=axes[2])
for ax, title in zip(axes, ("leave-one-out", "new rows", "leave-one-out"), strict=True):
    ax.set_title(title)

# %%
# The same check for the conformal intervals can't be made: they are intervals of one coverage, not
# distributions.

plt.show()
