"""Sheets of paper in inches, and what the schematics draw on them."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "mathtext.fontset": "dejavusans",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.solid_capstyle": "butt",
    "svg.fonttype": "path",
    "svg.hashsalt": "triegp",
}
INK, GREY, FAINT = "#222222", "#808080", "#c4c4c4"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"  # Okabe and Ito's palette
# From white for 0 to a blue for 1 on which dark text stays readable.
TINTS = LinearSegmentedColormap.from_list("tints", ["white", "#6fb0d8"])
WIDTH = 7.2  # inches, of every figure


def sheet(height):
    """A figure and its one axes, in inches from the lower left corner."""
    fig = Figure(figsize=(WIDTH, height))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, height))
    ax.set_axis_off()
    return fig, ax


def write(ax, x, y, text, **options):
    ax.text(x, y, text, **{"ha": "center", "va": "center", "color": INK, **options})


def square(ax, x, y, size, values, title):
    """The unit square of two features, its cells coloured by value."""
    edges = np.linspace(0, size, len(values) + 1)
    ax.pcolormesh(x + edges, y + edges, values, cmap=TINTS, edgecolor="face", lw=0.2)
    ax.add_patch(Rectangle((x, y), size, size, fill=False, edgecolor=INK, lw=0.6))
    write(ax, x + size / 2, y + size + 0.15, title)
    for end, text in enumerate("01"):
        write(ax, x + size * end, y - 0.12, text)
        write(ax, x - 0.1, y + size * end, text)
    write(ax, x + size / 2, y - 0.14, "$x_1$", color=BLUE)
    write(ax, x - 0.13, y + size / 2, "$x_2$", color=ORANGE)


def sign(ax, k, x, y):
    if k:
        write(ax, x, y, "=" if k == 1 else "+", fontsize=11)


def bit_box(ax, x, y, size, bit, color):
    corner = x + 0.04 * size, y + 0.04 * size
    ax.add_patch(Rectangle(corner, 0.92 * size, 0.92 * size, fill=False, edgecolor=color, lw=0.9))
    write(ax, x + size / 2, y + size / 2, bit)


def node(ax, x, y, share):
    ax.add_patch(Circle((x, y), 0.15, facecolor=TINTS(share), edgecolor=INK, lw=0.8, zorder=3))
    write(ax, x, y, f"{share:.2g}", zorder=4)


def matrix(ax, x, y, cell, values, colors, zero="0"):
    """Squares with their numbers, (x, y) the upper left corner."""
    for (i, j), value in np.ndenumerate(values):
        corner = x + cell * j, y - cell * (i + 1)
        ax.add_patch(Rectangle(corner, cell, cell, fc=colors[i, j], ec=FAINT, lw=0.5))
        text = f"{value:.2g}" if value else zero
        write(ax, corner[0] + cell / 2, corner[1] + cell / 2, text)


def number(bits):
    return int("".join(map(str, bits)) or "0", 2)
