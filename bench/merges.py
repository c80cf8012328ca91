"""The messages of the worked tree of docs/notation.md: `python -m bench.schematics` draws them."""

from dataclasses import dataclass

import numpy as np

from bench.sketches import BLUE, FAINT, GREEN, GREY, INK, ORANGE, sheet, write
from triegp.engines.messages import merge

TARGETS = (-1.0, -0.5, 1.0, 1.2)  # of the keys 001, 010, 110, 111
KEYS = ("001", "010", "110", "111")
NOISE = 0.1
REMAINING = (1.0, 0.5, 0.2, 0.0)  # R(0..3), of the weights 0.5, 0.3, 0.2


@dataclass(frozen=True)
class Meeting:
    """Two messages (m, s) that were lifted to one depth, the merged one, and what they cost.

    nll: minus the log density of one mean given the other.
    """

    depth: int
    first: tuple[float, float]
    second: tuple[float, float]
    merged: tuple[float, float]
    nll: float


def merges_data():
    """The three meetings, left and right below the root and then at the root; and the total nll.

    At the root the function is 0, the mean of the prior: the last message is compared with that.
    """
    leaves = [(y, NOISE) for y in TARGETS]
    left = meet(1, *(lift(leaf, 3, 1) for leaf in leaves[:2]))
    right = meet(2, *(lift(leaf, 3, 2) for leaf in leaves[2:]))
    root = meet(0, lift(left.merged, 1, 0), lift(right.merged, 2, 0))
    mean, variance = root.merged
    last = (np.log(2 * np.pi * variance) + mean**2 / variance) / 2
    return (left, right, root), left.nll + right.nll + root.nll + last


def lift(message, low, high):
    """A message over the edge from depth low up to depth high."""
    mean, variance = message
    return mean, variance + REMAINING[high] - REMAINING[low]


def meet(depth, first, second):
    (m1, s1), (m2, s2) = first, second
    mean, variance, *_ = merge(m1, s1, m2, s2)
    nll = (np.log(2 * np.pi * (s1 + s2)) + (m1 - m2) ** 2 / (s1 + s2)) / 2
    return Meeting(depth, first, second, (mean, variance), nll)


def merges_figure():
    """Left all messages of the tree; right the merge of rows 110 and 111 as densities."""
    (left, right, root), total = merges_data()
    fig, ax = sheet(3.0)
    places = {left: (1.25, 1.5), right: (3.15, 1.12), root: (2.2, 2.45)}
    leaf_x, leaf_y = (0.6, 1.9, 2.6, 3.7), 0.45
    below = {left: leaf_x[:2], right: leaf_x[2:]}
    for meeting, (x0, y0) in places.items():
        ends = [(x, leaf_y) for x in below.get(meeting, ())] or [places[left], places[right]]
        for (x1, y1), (m, s) in zip(ends, (meeting.first, meeting.second), strict=True):
            ax.plot([x0, x1], [y0, y1], color=GREY, lw=0.9)
            x, y = 0.45 * x0 + 0.55 * x1, 0.45 * y0 + 0.55 * y1
            label(ax, x, y, f"{m:.3g}, {s:.3g}", ORANGE, "white")
        label(ax, x0, y0, f"{meeting.merged[0]:.3g}, {meeting.merged[1]:.3g}", BLUE, "#e3f0f8")
    for x, key, y in zip(leaf_x, KEYS, TARGETS, strict=True):
        label(ax, x, leaf_y, f"{y:.3g}, {NOISE:.3g}", INK, "#f2f2f2")
        write(ax, x, leaf_y - 0.24, key, color=GREY)
    for depth, y in ((0, 2.45), (1, 1.5), (2, 1.12), (3, leaf_y)):
        write(ax, 4.35, y, f"depth {depth}", color=GREY, ha="right", fontsize=7)
    write(ax, 2.2, 2.82, "mean, variance of every message")

    x0, y0, wide, high = 4.75, 0.75, 2.2, 1.5
    m1, m2 = right.first[0], right.second[0]
    at = np.linspace(min(m1, m2) - 1.5, max(m1, m2) + 1.5, 200)
    top = np.max(density(at, *right.merged))
    for message, color, name in (
        (right.first, ORANGE, "110"),
        (right.second, GREEN, "111"),
        (right.merged, BLUE, "merged"),
    ):
        y = y0 + high * density(at, *message) / top
        ax.plot(x0 + wide * (at - at[0]) / np.ptp(at), y, color=color, lw=1.3)
        x = x0 + wide * (message[0] - at[0]) / np.ptp(at)
        side = {"110": -0.5, "111": 0.5, "merged": 0.0}[name]
        height = y0 + high * (1.07 if name == "merged" else 0.62)
        write(ax, x + side, height, name, color=color)
    ax.plot([x0, x0 + wide], [y0, y0], color=FAINT, lw=0.6)
    for value in (0, 1, 2):
        write(ax, x0 + wide * (value - at[0]) / np.ptp(at), y0 - 0.12, value, fontsize=7)
    write(ax, x0 + wide / 2, 2.82, "the merge at depth 2")
    text = f"nll += {right.nll:.3f}"
    write(ax, x0 + wide / 2, y0 - 0.36, text + f"; of the whole tree {total:.3f}", color=GREY)
    return fig


def density(at, mean, variance):
    return np.exp(-((at - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


def label(ax, x, y, text, color, fill):
    box = {"boxstyle": "round,pad=0.3", "facecolor": fill, "edgecolor": color, "linewidth": 0.7}
    write(ax, x, y, text, color=color, bbox=box, zorder=3, fontsize=7)
