"""
A stream that drifts
====================

Rows come in batches, each is predicted before it is learned, and half way through the inputs begin
to wander off to where no row has been. What happens to intervals then, in a model that never
learns, in one that only adds rows, and in one that is fitted anew when it has to be?
"""

import textwrap
import warnings

import numpy as np
from matplotlib import pyplot as plt

from triegp import BinaryTreeGPRegressor

# %%
# The stream
# ----------
# Two features, 60 batches of 200 rows. From batch 20 on the first feature drifts upwards, and from
# batch 40 on it stays at its new place. The function is the same all the time; nobody has seen the
# right half of it in the beginning.

N_BATCHES, N_ROWS, N_START = 60, 200, 2_000
rng = np.random.default_rng(0)


def function(X):
    """The mean of y."""
    return 3 * np.sin(4 * X[:, 0]) + X[:, 1] ** 2


def make_rows(shift, n):
    """Rows whose first feature is moved by `shift`, with noise of deviation 0.3."""
    X = rng.random((n, 2)) + np.array([shift, 0])
    return X, function(X) + 0.3 * rng.standard_normal(n)


shifts = np.clip((np.arange(N_BATCHES) - 20) / 20, 0, 1)
first = make_rows(0, N_START)
stream = [make_rows(shift, N_ROWS) for shift in shifts]

# %%
# Three ways to go on
# -------------------
# All three begin with the same 2,000 rows. ``partial_fit`` queues new rows at no cost and inserts
# them before the next prediction. ``refit="auto"``, the default, trains again when the number of
# rows has doubled or when more than a tenth of them lie outside the training box.

ways = {
    "never updated": BinaryTreeGPRegressor(random_state=0),
    "rows added, no refit": BinaryTreeGPRegressor(refit=False, random_state=0),
    "rows added, refit when due": BinaryTreeGPRegressor(random_state=0),
}
coverage, width, outside, refits = {}, {}, {}, {}
for name, model in ways.items():
    model.fit(*first)
    lines, times, refits[name] = [], model.fit_seconds_, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch, (X, y) in enumerate(stream):
            low, high = model.predict_interval(X, coverage=0.9).T
            if model.fit_seconds_ != times:  # trained again, before this prediction
                times = model.fit_seconds_
                refits[name].append(batch)
            lines.append(((low < y) & (y < high), high - low, model.outside_box(X)))
            if name != "never updated":
                model.partial_fit(X, y)
    coverage[name], width[name], outside[name] = np.mean(lines, axis=2).T
    print(f"{name}; trained again before batches: {refits[name] or 'none'}")
    for message in dict.fromkeys(str(one.message) for one in caught):
        print(textwrap.fill(message, 90, initial_indent="  ", subsequent_indent="    "))

# %%
# The models say when something is odd, once each.
#
# Coverage over time
# ------------------
# While the stream is where it has always been, all three are alike. When it drifts, intervals widen
# beyond the training box with the distance, so even the model that never learns keeps its promise,
# at the price of intervals that tell little. Rows that are only added do not help outside the box:
# they are set aside until the next fit. The model that is trained again pays with a few seconds,
# and is back to narrow intervals soon after the drift has ended. Dashed lines mark its refits: the
# first is due because the number of rows has doubled, the others because of the drift.

COLOURS = dict(zip(ways, ("#757575", "#d55e00", "#0072b2"), strict=True))
STYLES = dict(zip(ways, (":", "--", "-"), strict=True))
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})

figure, axes = plt.subplots(3, 1, figsize=(8, 6.4), layout="constrained", sharex=True)
half = 164 * np.sqrt(0.9 * 0.1 / (5 * N_ROWS))  # 90 % of averages over five batches are this close
axes[0].fill_between([0, N_BATCHES - 1], 90 - half, 90 + half, color="0.85", lw=0)
for name, colour in COLOURS.items():
    smooth = np.convolve(np.pad(coverage[name], 2, mode="edge"), np.ones(5) / 5, "valid")
    style = {"color": colour, "ls": STYLES[name], "lw": 2, "label": name}
    axes[0].plot(100 * smooth, **style)
    axes[1].plot(width[name], **style)
    axes[2].plot(100 * outside[name], **style)
for ax in axes:
    ax.axvspan(20, 40, color="#f0e442", alpha=0.15, lw=0)
    for batch in refits["rows added, refit when due"]:
        ax.axvline(batch, color=COLOURS["rows added, refit when due"], lw=1, ls="--", alpha=0.6)
axes[0].set(ylabel="inside 90 %\nintervals, %", ylim=(70, 101), xlim=(0, N_BATCHES - 1))
axes[0].text(30, 71, "the inputs drift", ha="center", color="#757575")
axes[1].set(ylabel="width of\nintervals", yscale="log")
axes[1].legend(loc="upper left", frameon=False, fontsize="small")
axes[2].set(ylabel="outside the\nbox, %", ylim=(-3, 103), xlabel="batch of 200 rows")

# %%
# What it knows in the end
# ------------------------
# The function along the first feature, at 0.5 of the second, after the last batch.

at = np.linspace(0, 2, 400)
line = np.column_stack([at, np.full(at.size, 0.5)])
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, ways.items(), strict=True):
    low, high = model.predict_interval(line, coverage=0.9).T
    ax.axvspan(0, 1, color="0.93", lw=0)
    ax.fill_between(at, low, high, color=COLOURS[name], alpha=0.25, lw=0, label="90 % interval")
    ax.plot(at, model.predict(line), color=COLOURS[name], lw=2, label="mean")
    ax.plot(at, function(line), color="black", lw=1, ls="--", label="truth")
    ax.set_title(name, fontsize="medium")
    ax.set(xlabel="first feature", xlim=(0, 2), ylim=(-12, 12))
axes[0].text(0.5, -11, "first 2,000 rows", ha="center", color="#757575", fontsize="small")
axes[2].legend(loc="upper left", frameon=False, fontsize="small")

plt.show()
