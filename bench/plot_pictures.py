"""The pictures of docs/plots.md, drawn by triegp.plots.

python -m bench.plot_pictures     half a minute; needs matplotlib, pandas; writes docs/figures
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.encoding import pack_codes
from triegp.plots import (
    CalibrationDisplay,
    CoverageByFeatureDisplay,
    CoverageByWidthDisplay,
    ImportanceDisplay,
    PartialEffectDisplay,
    PitDisplay,
    PredictiveBandDisplay,
    ResidualDisplay,
    TrainingCurveDisplay,
    TreeDisplay,
    WeightsDisplay,
)
from triegp.tree import BitOrder, build_trie, condition

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
STYLE = {"font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "triegp"}
N_ROWS, N_TRAIN = 4_000, 2_500
DAYS = ["workday", "Saturday", "Sunday"]


def demand(n_rows=N_ROWS, seed=0):
    """Made-up power demand of a town: steps by the hour, smooth in temperature, uneven noise."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "temperature, °C": rng.normal(10, 8, n_rows).round(1),
            "hour": rng.integers(0, 24, n_rows),
            "day": rng.choice(DAYS, n_rows, p=[5 / 7, 1 / 7, 1 / 7]),
            "wind, m/s": rng.gamma(2, 2, n_rows).round(1),
        }
    )
    heat = 0.04 * np.maximum(16 - frame["temperature, °C"], 0) ** 1.2
    awake = np.where((frame["hour"] >= 7) & (frame["hour"] < 23), 1.0, 0.2)
    rest = frame["day"].map({"workday": 1.0, "Saturday": 0.8, "Sunday": 0.65})
    noise = 0.05 + 0.03 * frame["wind, m/s"]
    return frame, (5 * (awake * rest + heat) + noise * 3 * rng.standard_normal(n_rows)).to_numpy()


def line(seed=3):
    """One feature with a jump and a gap."""
    rng = np.random.default_rng(seed)
    x = rng.random(260)
    x = x[(x < 0.3) | (x > 0.4)]
    y = np.sin(7 * x) + 1.2 * (x > 0.6) + 0.15 * rng.standard_normal(x.size)
    return x[:, None], y


def band_figure():
    fig, ax = sheet(7.2, 3.2)
    model = TrieGPRegressor(random_state=0).fit(*line())
    PredictiveBandDisplay.from_estimator(model, n_samples=3, ax=ax)
    return fig


def calibration_figure(model, X, y):
    fig, axes = sheet(9.0, 3.6, 2)
    CalibrationDisplay.from_estimator(model, X, y, ax=axes[0])
    PitDisplay.from_estimator(model, X, y, ax=axes[1])
    return fig


def coverage_figure(model, X, y):
    fig, axes = sheet(9.0, 6.4, 2, 2)
    CoverageByWidthDisplay.from_estimator(model, X, y, ax=axes[0, 0])
    CoverageByFeatureDisplay.from_estimator(model, X, y, "day", ax=axes[0, 1])
    CoverageByFeatureDisplay.from_estimator(model, X, y, "wind, m/s", ax=axes[1, 0])
    ResidualDisplay.from_estimator(model, X, y, ax=axes[1, 1])
    return fig


def effect_figure(model, X):
    fig, axes = sheet(9.0, 9.0, 2, 3)
    for feature, ax in zip(X.columns, axes[:2].flat, strict=True):
        PartialEffectDisplay.from_estimator(model, X, feature, ax=ax)
        ax.set_ylabel("mean effect, MW")
    PartialEffectDisplay.from_estimator(model, X, ["hour", "temperature, °C"], ax=axes[2])
    return fig


def model_figure(model, mixture):
    fig, axes = sheet(9.0, 6.2, 2, 2)
    ImportanceDisplay.from_estimator(model, ax=axes[0, 0])
    ImportanceDisplay.from_estimator(mixture, kind="heatmap", ax=axes[0, 1])
    WeightsDisplay.from_estimator(mixture, ax=axes[1, 0])
    TrainingCurveDisplay.from_estimator(model, ax=axes[1, 1])
    return fig


def tree_figure():
    """The worked tree of docs/notation.md."""
    codes = pack_codes([[0b110], [0b001], [0b111], [0b010]], precision=3)
    order = BitOrder.from_weights([0, 1, 2], weights=[0.5, 0.3, 0.2], nugget="bit")
    trie = build_trie(codes, order)
    posterior = condition(trie, codes, order, [1.0, -1.0, 1.2, -0.5], noise=0.1)
    fig, ax = sheet(5.4, 3.3)
    TreeDisplay.from_posterior(posterior, ax=ax)
    return fig


def sheet(width, height, n_columns=1, n_rows=1):
    """A figure, and its axes (n_rows, n_columns) without dimensions of length 1."""
    fig = Figure(figsize=(width, height), layout="constrained")
    axes = fig.subplots(n_rows, n_columns, squeeze=False)
    if n_columns == 1:
        return fig, axes[0, 0]
    return fig, axes[0] if n_rows == 1 else axes


def figures():
    """Pairs of names and figures."""
    X, y = demand()
    train = X.iloc[:N_TRAIN], y[:N_TRAIN]
    test = X.iloc[N_TRAIN:], y[N_TRAIN:]
    model = TrieGPRegressor(n_trees=32, max_iter=120, random_state=0).fit(*train)
    mixture = BinaryTreeGPRegressor(n_members=8, random_state=0).fit(*train)
    yield "plots_band", band_figure()
    yield "plots_calibration", calibration_figure(model, *test)
    yield "plots_coverage", coverage_figure(model, *test)
    yield "plots_effects", effect_figure(model, train[0])
    yield "plots_model", model_figure(model, mixture)
    yield "plots_tree", tree_figure()


def main(folder=FOLDER):
    """Write all figures."""
    with rc_context(STYLE):
        for name, figure in figures():
            figure.savefig(Path(folder) / f"{name}.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
