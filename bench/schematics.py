"""Pictures of the model for the docs, their numbers taken from the library.

python -m bench.schematics        seconds, needs matplotlib; writes docs/figures/*.svg
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure

from bench.merges import merges_figure
from bench.sketches import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    STYLE,
    TINTS,
    WIDTH,
    bit_box,
    matrix,
    node,
    number,
    sheet,
    sign,
    square,
    write,
)
from triegp import BitEncoder, sros
from triegp.encoding import pack_codes
from triegp.tree import (
    BitOrder,
    build_trie,
    draw_samples,
    joint_prior,
    product,
    trie_keys,
    uniform_weights,
)

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
ROWS = ([0b110], [0b001], [0b111], [0b010])  # the worked tree of docs/notation.md
WEIGHTS = (0.5, 0.3, 0.2)
LEVEL_WEIGHTS = (0.4, 0.3, 0.2, 0.1)
SEED = 6
POINT = (0.7, 0.35)
BITS = (0, 1, 4, 5, 2, 6, 3, 7)  # two features of four bits: 0-3 and 4-7
LABELS = (0, 0, 1, 2, 1, 2), (0, 1, 1, 0, 2, 2)
FACTORS = (1.0, 2.0, 1.0, 3.0, 2.0, 1.0), (2.0, 1.0, 1.0, 3.0, 1.0, 2.0)


@dataclass(frozen=True)
class Tree:
    """Rows as leaves in key order: row (n,), bits (n, D), kernel (n, n); weights (D,).

    share (D + 1,) is W(0..D), depth (n - 1,) where neighbouring leaves part.
    """

    row: np.ndarray
    bits: np.ndarray
    kernel: np.ndarray
    weights: np.ndarray
    share: np.ndarray
    depth: np.ndarray


@dataclass(frozen=True)
class Draws:
    """values (n_levels + 1, n_cells, n_samples): f cut at each depth, on the finest cells.

    x (n_cells,) are their midpoints; weights (n_levels,).
    """

    x: np.ndarray
    values: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Order:
    """A point (2,), its canonical bits (q,) and key (q,), and a bit's place in the key (q,).

    Of all m cells of the grid: codes (m, 2), keys (m, q), rank (m,) in key order, and lcp (m,), the
    leading bits they share with the point.
    """

    point: np.ndarray
    bits: np.ndarray
    key: np.ndarray
    place: np.ndarray
    codes: np.ndarray
    keys: np.ndarray
    rank: np.ndarray
    lcp: np.ndarray


def tree_data():
    """The worked tree: keys and kernel of four rows."""
    codes = pack_codes(ROWS, precision=len(WEIGHTS))
    order = BitOrder.from_weights(np.arange(len(WEIGHTS)), WEIGHTS, nugget="bit")
    trie = build_trie(codes, order)
    kernel = product(trie, order.levels, np.eye(trie.n_rows))
    row = trie.row_idx
    return Tree(
        row,
        key_bits(trie, codes),
        kernel[np.ix_(row, row)],
        order.weights,
        order.scale - order.levels,
        trie.links.lcp[1:],
    )


def draws_data(weights=LEVEL_WEIGHTS, n_samples=1, seed=SEED):
    """Draws of f on [0, 1], cut at every depth.

    The increments of one level are themselves a draw, from the kernel whose weight is all there.
    """
    n_levels = len(weights)
    x = (np.arange(2**n_levels) + 0.5) / 2**n_levels
    codes = BitEncoder(precision=n_levels).fit([[0.0], [1.0]]).encode(x[:, None])
    rng = np.random.default_rng(seed)
    values = [np.zeros((x.size, n_samples))]
    for only, weight in zip(np.eye(n_levels), weights, strict=True):
        level = BitOrder.from_weights(np.arange(n_levels), only, scale=weight, nugget="bit")
        values.append(values[-1] + draw_samples(joint_prior(codes, level), n_samples, rng))
    return Draws(x, np.stack(values), np.array(weights))


def order_data(point=POINT, bits=BITS):
    """From the unit square to keys: the point, and every cell of the finest grid."""
    precision = len(bits) // 2
    encoder = BitEncoder(precision=precision).fit([[0.0, 0.0], [1.0, 1.0]])
    order = BitOrder.from_weights(bits, uniform_weights(len(bits)), nugget="bit")
    step = (np.arange(2**precision) + 0.5) / 2**precision
    cells = np.stack(np.meshgrid(step, step), axis=-1).reshape(-1, 2)
    codes = encoder.encode(np.vstack([cells, point]))
    trie = build_trie(codes, order)
    keys = trie.unsort(key_bits(trie, codes))
    is_point = np.arange(codes.n_rows) == len(cells)
    lcp = product(trie, np.arange(len(bits), -1.0, -1.0), is_point.astype(float))  # W(l) = l
    return Order(
        np.array(point),
        np.unpackbits(codes.packed[-1]),
        keys[-1],
        np.argsort(order.bits),
        encoder.transform(cells),
        keys[:-1],
        np.argsort(trie.row_idx[trie.row_idx < len(cells)]),
        lcp[:-1].round().astype(int),
    )


def sros_data():
    """L(p, p', u, u') and its parts, one per label, (1 + r, n, n) (paper, Definition 2)."""
    (p, p_cols), (u, u_cols) = np.array(LABELS), np.array(FACTORS)
    kept = [u, *(np.where(p == label, u, 0.0) for label in range(p.max() + 1))]
    return np.stack([dense(sros.Sros, p, p_cols, u_part, u_cols) for u_part in kept])


def kernel_data(bits, weights):
    """A kernel matrix and its parts, one per level, (1 + D, n, n) (paper, Definition 3)."""
    whole = sros.kernel_sros(bits, weights)
    columns = zip(whole.partition.T, whole.coefficient.T, whole.factor.T, strict=True)
    parts = [dense(sros.SymmetricSros, *column) for column in columns]
    return np.stack([sros.to_dense(whole), *parts])


def dense(form, *columns):
    """The matrix of an operator with one column."""
    return sros.to_dense(form(*(column[:, None] for column in columns)))


def key_bits(trie, codes):
    """Keys of the trie's rows as bits (n, D), in key order, for D <= 64."""
    shift = np.uint64(63) - np.arange(trie.n_levels, dtype=np.uint64)
    return (trie_keys(trie, codes)[:, :1] >> shift & np.uint64(1)).astype(np.uint8)


def tree_figure():
    """Left the tree, with W where paths part; right the kernel in the same colours."""
    data = tree_data()
    n_levels, (left, pitch, top, drop) = data.weights.size, (0.95, 0.42, 2.22, 0.6)
    fig, ax = sheet(2.45)

    def place(prefix):
        middle = (number(prefix) + 0.5) * 2 ** (n_levels - len(prefix)) - 0.5
        return left + pitch * middle, top - drop * len(prefix)

    visited = {tuple(key[:depth]) for key in data.bits for depth in range(n_levels + 1)}
    branches = [b for depth in range(n_levels) for b in np.ndindex(*[2] * (depth + 1))]
    for branch in sorted(branches, key=visited.__contains__):  # the rows' paths on top
        (x0, y0), (x1, y1) = place(branch[:-1]), place(branch)
        ax.plot([x0, x1], [y0, y1], color=INK if branch in visited else FAINT, lw=0.9)
        if branch in visited:
            x, y = 0.4 * x0 + 0.6 * x1, 0.4 * y0 + 0.6 * y1 + 0.03
            write(ax, x + (0.1 if x1 > x0 else -0.1), y, branch[-1], color=GREY)
    for i, weight in enumerate(data.weights):
        write(ax, 0.15, top - drop * (i + 0.5), f"$w_{i + 1} = {weight:.2g}$", ha="left")
    for i, depth in enumerate(data.depth):
        node(ax, *place(data.bits[i, :depth]), data.share[depth])
    for key, row in zip(data.bits, data.row, strict=True):
        x, y = place(key)
        node(ax, x, y, data.share[-1])
        write(ax, x, y - 0.27, f"$x_{row + 1}$")

    cell, x0, y0 = 0.42, 5.1, 2.06
    matrix(ax, x0, y0, cell, data.kernel, TINTS(data.kernel))
    for i, row in enumerate(data.row):
        write(ax, x0 - 0.2, y0 - cell * (i + 0.5), f"$x_{row + 1}$")
        write(ax, x0 + cell * (i + 0.5), y0 + 0.17, f"$x_{row + 1}$")
    write(ax, x0 + cell * len(data.row) / 2, y0 - cell * len(data.row) - 0.2, "$k(x, x')$")
    return fig


def draws_figure():
    """One panel per depth: the function, the one before in grey, and the increments between."""
    data = draws_data()
    values = data.values[:, :, 0]
    fig = Figure(figsize=(WIDTH, 2.1))
    panels = fig.subplots(1, len(values), sharey=True)
    fig.subplots_adjust(left=0.065, right=0.985, bottom=0.14, top=0.81, wspace=0.12)
    edges = np.linspace(0, 1, data.x.size + 1)
    for depth, ax in enumerate(panels):
        n_cells, title = 2**depth, f"depth {depth}\n1 cell"
        if depth:
            title = f"depth {depth}\n{n_cells} cells, $w_{depth} = {data.weights[depth - 1]:g}$"
            ax.stairs(values[depth - 1], edges, baseline=None, color=GREY, lw=0.8)
            steps = values[depth - 1 : depth + 1].reshape(2, n_cells, -1)[:, :, 0]
            ax.vlines((np.arange(n_cells) + 0.5) / n_cells, *steps, color=ORANGE, lw=0.8)
        ax.stairs(values[depth], edges, baseline=None, color=BLUE, lw=1.4)
        ax.set_title(title, fontsize=8, linespacing=1.4)
        ax.set(xlim=(-0.03, 1.03), xticks=[0, 1], xticklabels=["0", "1"])
        ax.set_xlabel("$x$", labelpad=-8)
        ax.tick_params(length=2.5, labelleft=depth == 0)
    panels[1].text(0.77, -0.1, "increment", color=ORANGE, fontsize=7, ha="center", va="top")
    panels[0].set_ylabel("$f(x)$", labelpad=2)
    return fig


def order_figure():
    """The wiring of one point's bits, what it shares with other cells, and all cells in order."""
    data = order_data()
    half = data.key.size // 2
    fig, ax = sheet(2.7)

    box, gap, x0, y_codes, y_key = 0.23, 0.16, 0.15, 1.75, 0.6
    for bit, place in enumerate(data.place):
        feature = bit // half
        color = (BLUE, ORANGE)[feature]
        x_code, x_key = x0 + box * bit + gap * feature, x0 + gap / 2 + box * place
        bit_box(ax, x_code, y_codes, box, data.bits[bit], color)
        bit_box(ax, x_key, y_key, box, data.key[place], color)
        ends = x_code + box / 2, x_key + box / 2
        ax.plot(ends, [y_codes, y_key + box], color=color, lw=0.9)
        if bit % half == 0:
            text = f"$x_{feature + 1} = {data.point[feature]:g}$"
            write(ax, x_code + box * half / 2, y_codes + box + 0.15, text, color=color)
    middle = x0 + gap / 2 + box * half
    write(ax, middle, 2.52, "a point's bits, in the order of the key")
    write(ax, middle, y_key - 0.15, "key")

    side, size, y0 = 2**half, 2.0, 0.37
    at = (data.codes + 0.5) * size / side
    x0 = 2.68
    square(ax, x0, y0, size, data.lcp.reshape(side, side), "leading bits shared with the point")
    for shared in range(6):
        x, y = at[data.lcp == shared].mean(axis=0)
        write(ax, x0 + x, y0 + y, shared)
    x, y = size * data.point
    ax.plot(x0 + x, y0 + y, "o", color=INK, ms=3)

    x0 = 5.05
    square(ax, x0, y0, size, data.rank.reshape(side, side), "all cells, in key order")
    x, y = at[np.argsort(data.rank)].T
    ax.plot(x0 + x, y0 + y, color=INK, lw=0.4)
    return fig


def sros_figure():
    """Two sums: one pair of partitions by its labels, and a kernel matrix by its levels."""
    (p, p_cols), (u, u_cols) = np.array(LABELS), np.array(FACTORS)
    colors = np.array([BLUE, ORANGE, GREEN])
    pale = 0.75 + 0.25 * to_rgba_array(colors)
    fig, ax = sheet(4.05)
    left, pitch, cell, y0 = 0.62, 1.74, 0.2, 3.33
    end = cell * p.size
    write(ax, 0.15, 3.89, "a part for each label", ha="left")
    for k, values in enumerate(sros_data()):
        x0 = left + pitch * k
        fills = np.where(values[:, :, None] != 0, pale[p][:, None], 1.0)
        matrix(ax, x0, y0, cell, values, fills, zero="")
        for a, (row, col) in enumerate(zip(p, p_cols, strict=True)):
            if k in (0, row + 1):
                write(ax, x0 - 0.11, y0 - cell * (a + 0.5), f"{u[a]:g}", color=colors[row])
            if k in (0, col + 1):
                write(ax, x0 + cell * (a + 0.5), y0 + 0.1, f"{u_cols[a]:g}", color=colors[col])
        title = f"$p = p' = {k - 1}$" if k else "$L(p, p', u, u')$"
        write(ax, x0 + end / 2, y0 - end - 0.15, title)
        sign(ax, k, x0 - 0.37, y0 - end / 2)
    for a, (row, col) in enumerate(zip(p, p_cols, strict=True)):
        write(ax, left - 0.3, y0 - cell * (a + 0.5), row, color=colors[row])
        write(ax, left + cell * (a + 0.5), y0 + 0.27, col, color=colors[col])
    names = {"u": (-0.11, 0.1), "p": (-0.3, 0.1), "u'": (end + 0.1, 0.1), "p'": (end + 0.1, 0.27)}
    for name, (x, y) in names.items():
        write(ax, left + x, y0 + y, f"${name}$")

    tree, cell, y0 = tree_data(), 0.3, 1.52
    write(ax, 0.15, 1.71, "a part for each level", ha="left")
    for k, values in enumerate(kernel_data(tree.bits, tree.weights)):
        x0, end = left + pitch * k, cell * len(tree.row)
        matrix(ax, x0, y0, cell, values, TINTS(values), zero="")
        for a, key in enumerate(tree.bits):
            prefix = "".join(map(str, key[: k or None]))
            write(ax, x0 - 0.06, y0 - cell * (a + 0.5), prefix, ha="right")
        title = f"$w_{k} = {tree.weights[k - 1]:.2g}$" if k else "$K$"
        write(ax, x0 + end / 2, y0 - end - 0.15, title)
        sign(ax, k, x0 - 0.4, y0 - end / 2)
    return fig


FIGURES = {
    "tree": tree_figure,
    "draws": draws_figure,
    "order": order_figure,
    "sros": sros_figure,
    "merges": merges_figure,
}


def main(folder=FOLDER):
    """Write all figures; the same bytes every time."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        with style.context(STYLE, after_reset=True):
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
