"""Plots of the results page, as SVG: run time of the paper's protocol, and scaling."""

import numpy as np

from bench import paper, scaling
from bench.cells import read
from bench.data import SEVEN
from bench.tables import summary

INK, FAINT = "#222222", "#999999"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b")


def new_figure(width=7.0, height=4.2):
    """A figure with one pair of logarithmic axes in the house style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "triegp", "svg.fonttype": "none", "font.size": 9})
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#dddddd", linewidth=0.5)
    return figure, axes


def trend(n, seconds):
    """Slope and intercept of log10 seconds over log10 n."""
    return np.polyfit(np.log10(n), np.log10(seconds), 1)


def runtime():
    """The paper's times and ours against n, with trend lines."""
    figure, axes = new_figure()
    series = []
    for k, method in enumerate(("BT", "Matern-BBMM", "SGPR", "SVGP")):
        rows = [
            (int(paper.UNIQUE[name]["n"]), 60 * minutes[0])
            for name in paper.NAMES.values()
            if (minutes := paper.TABLES.get(("table1", name, method, "minutes")))
        ]
        series.append((f"{method}, paper (GPU)", rows, COLOURS[k + 1], "o"))
    ours = []
    for d in SEVEN:
        found = summary(read("test", d, "paper-bte"), "fit")
        if found:
            ours.append((int(paper.UNIQUE[paper.NAMES[d]]["n"]), found[0]))
    series.append(("BT and BTE, here (2 cores)", ours, COLOURS[0], "s"))
    for label, rows, colour, marker in series:
        if not rows:
            continue
        n, seconds = np.array(sorted(rows), float).T
        axes.scatter(n, seconds, s=14, color=colour, marker=marker, linewidths=0)
        if len(rows) > 2:
            slope, start = trend(n, seconds)
            ends = np.array([n.min(), n.max()])
            line = 10 ** (start + slope * np.log10(ends))
            axes.plot(ends, line, color=colour, linewidth=1, label=f"{label}: n^{slope:.2f}")
    axes.set(xlabel="training rows", ylabel="seconds")
    axes.legend(frameon=False, fontsize=8)
    return figure


def growth():
    """Fit time of every method against n."""
    figure, axes = new_figure(7.0, 4.6)
    found = scaling.read()
    for k, method in enumerate(scaling.ALL):
        good = [row for row in found.get(method, []) if row["status"] == "ok"]
        if not good:
            continue
        n, seconds = zip(*((row["n"], row["fit_seconds"]) for row in good), strict=True)
        slope = scaling.growth(good)
        label = f"{method} (GPU)" if good[-1].get("machine", {}).get("gpu") else method
        label += "" if slope is None else f": n^{slope:.2f}"
        colour = INK if method == scaling.EVALUATION else COLOURS[(k - 1) % len(COLOURS)]
        ours = method in ("triegp", scaling.EVALUATION)
        style = "-" if ours else ("--" if k <= len(COLOURS) else ":")
        width = 1.8 if ours else 1.0
        axes.plot(n, seconds, style, color=colour, linewidth=width, marker=".", label=label)
    axes.set(xlabel="training rows", ylabel="fit, seconds")
    if axes.lines:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (("runtime", runtime), ("scaling", growth)):
        draw().savefig(folder / f"{name}.svg", metadata={"Date": None})
