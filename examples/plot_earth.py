"""
A map of the Earth with its uncertainty
=======================================

How high is the land, and how deep is the sea, at a place where nobody has measured? We keep a tenth
of a map of the Earth, hide the rest, and let a Gaussian process fill it in. It fits 58,000 rows in
seconds, and says for each place how far it may be off.
"""

# needs: etopo20

import os
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, LogNorm, TwoSlopeNorm

from triegp import BinaryTreeGPRegressor
from triegp.plots import CoverageByWidthDisplay


def read(name):
    """X and y of a data set in $TRIEGP_DATA, or in shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("TRIEGP_DATA", beside)).expanduser() / name / "data.npz"
    if not path.exists():
        raise SystemExit(f"{path} is not there; it should hold the arrays X and y of {name}")
    with np.load(path) as data:
        return data["X"], data["y"].ravel()


# %%
# The rows
# --------
# The table has a row for each third of a degree: longitude, latitude and the elevation in metres,
# from ETOPO. A tenth of the rows, drawn at random, is for training.

place, elevation = read("etopo20")
order = np.lexsort((place[:, 0], place[:, 1]))  # south to north, in each row west to east
place, elevation = place[order], elevation[order]
shape = (len(np.unique(place[:, 1])), len(np.unique(place[:, 0])))

seen = np.random.default_rng(0).random(len(elevation)) < 0.1
print(f"{seen.sum():,} of {len(elevation):,} rows are seen")

# %%
# Longitude and latitude make poor features: 180 degrees west and 180 degrees east are the same
# place, and near the poles all longitudes are neighbours. A point on the unit sphere has neither
# problem.


def on_sphere(place):
    """Coordinates (n, 3) on the unit sphere of longitudes and latitudes (n, 2) in degrees."""
    longitude, latitude = np.deg2rad(place).T
    around = np.cos(latitude)
    return np.column_stack(
        [around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude)]
    )


X = on_sphere(place)
model = BinaryTreeGPRegressor(random_state=0).fit(X[seen], elevation[seen])
mean, std = model.predict(X, return_std=True)
print(f"fitted in {model.fit_seconds_:.1f} s")

# %%
# Two maps
# --------
# On the left, the prediction for the whole Earth; on the right, its standard deviation. Plains and
# the deep sea are known to some tens of metres, although most of their rows were hidden. Mountain
# ranges, trenches and the edges of the continents stand out: a row that is not seen may be a
# kilometre off there.

SEA = ["#08204a", "#0f3f7d", "#2a6fb0", "#6aaed6", "#c3e3f0"]
LAND = ["#3f7f4c", "#8fb56a", "#d9cf8f", "#b98c56", "#8a6248", "#e9e4e0"]
steps = [*zip(np.linspace(0, 0.5, len(SEA)), SEA, strict=True)]
steps += [*zip(np.linspace(0.5, 1, len(LAND)), LAND, strict=True)]
terrain = {
    "cmap": LinearSegmentedColormap.from_list("land and sea", steps, N=1024),
    "norm": TwoSlopeNorm(0, -7_000, 5_000),
}
error = {"cmap": "magma", "norm": LogNorm(30, 1_500)}


def draw_map(ax, values, title, label, style):
    """An equal-area map of one value per row."""
    longitude, latitude = np.deg2rad(place.T.reshape(2, *shape))
    cells = ax.pcolormesh(
        longitude, latitude, values.reshape(shape), shading="nearest", rasterized=True, **style
    )
    ax.set_title(title, pad=12)
    ax.set_axis_off()
    bar = ax.figure.colorbar(
        cells, ax=ax, orientation="horizontal", shrink=0.6, pad=0.04, aspect=30
    )
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


figure, axes = plt.subplots(
    1, 2, figsize=(12, 4.4), layout="constrained", subplot_kw={"projection": "mollweide"}
)
draw_map(axes[0], mean, "predicted from a tenth of the rows", "elevation, m", terrain).set_ticks(
    [-6_000, -4_000, -2_000, 0, 2_000, 4_000]
)
draw_map(axes[1], std, "how far it may be off", "standard deviation, m", error).set_ticks(
    [30, 100, 300, 1_000], labels=["30", "100", "300", "1,000"]
)

# %%
# A closer look
# -------------
# South-east Asia: the rows that were seen, what the model makes of them, and the whole map.
# Islands smaller than the gaps between rows that are seen can't be found; the deviation is large
# wherever they might be.

part = (abs(place[:, 0] - 115) < 25) & (abs(place[:, 1] - 5) < 20)
part_shape = (len(np.unique(place[part, 1])), len(np.unique(place[part, 0])))
west, east = place[part, 0].min(), place[part, 0].max()
south, north = place[part, 1].min(), place[part, 1].max()

panels = {
    "seen": (np.where(seen, elevation, np.nan), terrain),
    "predicted": (mean, terrain),
    "true": (elevation, terrain),
    "deviation": (std, error),
}
figure, axes = plt.subplots(1, 4, figsize=(12, 2.9), layout="constrained", sharey=True)
for ax, (title, (values, style)) in zip(axes, panels.items(), strict=True):
    image = values[part].reshape(part_shape)
    ax.imshow(image, origin="lower", extent=(west, east, south, north), **style)
    ax.set(title=title, xlabel="degrees east")
axes[0].set_ylabel("degrees north")

# %%
# Are the deviations right?
# -------------------------
# The hidden rows tell. Nine in ten of them should lie inside their 90 % intervals: on average, and
# also among the places where the model is sure, and among those where it is not. In the picture,
# hidden rows are sorted into ten groups by the width of their intervals: those at both ends are a
# little wider than they need be.

hidden = np.flatnonzero(~seen)[::5]
found = model.predict_distribution(X[hidden])
truth = elevation[hidden]
low, high = found.interval(0.9).T
inside = (low < truth) & (truth < high)
print(f"hidden rows: rmse {np.sqrt(np.mean((found.mean() - truth) ** 2)):.0f} m, ", end="")
print(f"90 % intervals cover {100 * inside.mean():.1f} %")
display = CoverageByWidthDisplay.from_predictions(truth, found)
display.ax_.set_xticklabels(f"{width:,.0f}" for width in display.width)
display.ax_.set_xlabel("width of intervals, m")

plt.show()
