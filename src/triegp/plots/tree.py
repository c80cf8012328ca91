"""The compressed trie of a small model, with its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from triegp.additive.start import depths_of, features_of
from triegp.checks import whole_number
from triegp.devices import to_host
from triegp.metrics.forecasts import choose_target, unwrap
from triegp.plots.canvas import Display, dress
from triegp.plots.palette import current_palette
from triegp.plots.text import show_number
from triegp.plots.weights import part_of_target, working_names
from triegp.tree.posterior import Posterior

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_LEAVES = 40
UPRIGHT = 10  # leaves up to which their labels stand upright
MOST_BITS = 4  # bits of an edge that are written out


@dataclass(eq=False)
class TreeDisplay(Display):
    """The tree of a small model: where rows part, and the message that each node sends up.

    Only depths at which rows part are drawn (`docs/notation.md`). Use `from_estimator` or
    `from_posterior`.

    Attributes
    ----------
    parent : int64 (k,)
        Number of the parent of each node and leaf; -1 for the root. Leaves come first, in key
        order.
    depth : int64 (k,)
        Depth: number of key bits that all rows below share; the length of a key for leaves.
    bits : list of str
        Key bits along the edge above; empty for the root.
    x : float64 (k,)
        Position from left to right: leaves 0, 1, ..., nodes in the middle of their children.
    mean, std : float64 (k,)
        The inside message: what the rows below say about the function there. For a leaf, its
        target and the deviation of its noise.
    row : int64 (k,)
        Number of the training row of a leaf; -1 for nodes, and if rows were folded.
    bit_names : tuple of str
        Name of the bit at each place of a key.
    ax_, figure_
        Axes and figure of the last plot.

    Examples
    --------
    >>> from triegp.encoding import pack_codes
    >>> from triegp.plots import TreeDisplay
    >>> from triegp.tree import BitOrder, build_trie, condition
    >>> codes = pack_codes([[0b110], [0b001], [0b111], [0b010]], precision=3)
    >>> order = BitOrder.from_weights([0, 1, 2], weights=[0.5, 0.3, 0.2], nugget="bit")
    >>> trie = build_trie(codes, order)
    >>> posterior = condition(trie, codes, order, [1.0, -1.0, 1.2, -0.5], noise=0.1)
    >>> display = TreeDisplay.from_posterior(posterior)
    >>> display.row[:4].tolist(), display.depth[4:].tolist()
    ([1, 3, 0, 2], [1, 0, 2])
    >>> display.mean[5].round(4)  # the root
    np.float64(0.0957)
    """

    parent: Ints
    depth: Ints
    bits: list[str]
    x: Floats
    mean: Floats
    std: Floats
    row: Ints
    bit_names: tuple[str, ...]

    @classmethod
    def from_estimator(
        cls, model: Any, *, member: int = 0, target: int | None = None, ax: Any = None
    ) -> Self:
        """The tree of one member of a mixture, in units of the target after its transform.

        Parameters
        ----------
        model : BinaryTreeGPRegressor
            Fitted to at most 40 rows with distinct features, or a pipeline or search that ends in
            one. The trees of a TrieGPRegressor are added up, and have no messages of their own.
        member : int, default=0
            Which tree.
        target : int, optional
            Which target; needed if there are several.
        ax
            As for `plot`.
        """
        fitted, _ = unwrap(model)
        if not hasattr(fitted, "ensembles_"):
            raise TypeError(
                f"model must be a BinaryTreeGPRegressor, got {type(fitted).__name__}: the trees of "
                "a sum have no messages of their own"
            )
        k = choose_target(target, fitted.target_mean_.size)
        ensemble, column = part_of_target(fitted.ensembles_, fitted, k)
        if whole_number("member", member, 0) >= len(ensemble.members):
            raise ValueError(
                f"member must be between 0 and {len(ensemble.members) - 1}, got {member}"
            )
        chosen = ensemble.members[member]
        posterior = chosen.posteriors[column]
        arrays = _arrange(posterior, float(fitted.target_mean_[k]), float(fitted.target_scale_[k]))
        names, bits = working_names(fitted), posterior.trie.bits
        features, depths = features_of(chosen.encoder)[bits], depths_of(chosen.encoder)[bits]
        named = [f"{names[j]}, bit {d + 1}" for j, d in zip(features, depths, strict=True)]
        leaves = arrays["row"] >= 0
        arrays["row"][leaves] = _passed_rows(fitted, posterior.n_rows)[arrays["row"][leaves]]
        return cls(**arrays, bit_names=tuple(named)).plot(ax)

    @classmethod
    def from_posterior(cls, posterior: Posterior, *, bit_names: Any = None, ax: Any = None) -> Self:
        """The tree of a posterior of `triegp.tree`.

        Parameters
        ----------
        posterior : Posterior
            Returned by `triegp.tree.condition`, for at most 40 rows.
        bit_names : sequence of str, optional
            Name of each place of a key, most important first; "bit 1", "bit 2", ... by default.
        ax
            As for `plot`.
        """
        n_levels = posterior.trie.n_levels
        names = tuple(bit_names or (f"bit {d + 1}" for d in range(n_levels)))
        if len(names) != n_levels:
            raise ValueError(f"bit_names must have {n_levels} entries, got {len(names)}")
        return cls(**_arrange(posterior), bit_names=names).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the tree, depth downwards; the left axis names the bits at which rows part.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        """
        palette, n_leaves = current_palette(), (self.parent.size + 1) // 2
        levels, y = np.unique(self.depth[n_leaves:], return_inverse=True)
        upright = n_leaves <= UPRIGHT
        y = np.concatenate([np.full(n_leaves, levels.size), y])
        size = (1.6 + (1.0 if upright else 0.42) * n_leaves, 1.7 + 0.62 * levels.size)
        ax = self._open(ax, (max(size[0], 3.4), max(size[1], 2.2)))
        small = "small" if upright else "x-small"
        for k, parent in enumerate(self.parent.tolist()):
            # A node lies left (-1) or right (1) of its parent; the root is 0.
            side = 0 if parent < 0 else int(np.sign(self.x[k] - self.x[parent]))
            text = f"{show_number(self.mean[k], 3)} ± {show_number(self.std[k], 2)}"
            if k >= n_leaves:  # beside the node, where no edge is
                options = {"va": "bottom", "size": small}
                _write(
                    ax, self.x[k], y[k], text, palette.ink, 6 * side, 2 if side else 7, **options
                )
            else:
                lines = [f"row {self.row[k]}", text] if self.row[k] >= 0 else [text]
                joined = ("\n" if upright else "   ").join(lines)
                turned: dict[str, Any] = {"va": "top", "rotation": 0 if upright else 90}
                _write(ax, self.x[k], y[k], joined, palette.ink, 0, -7, **turned)
            if parent >= 0:
                x, ends = [self.x[parent], self.x[k]], [y[parent], y[k]]
                ax.plot(x, ends, color=palette.faint, linewidth=1.1, zorder=1)
                bits, most = self.bits[k], MOST_BITS if upright else 1
                if len(bits) > most:
                    bits = bits[:most] + "…" * upright
                middle = 0.5 * sum(x), 0.5 * sum(ends)
                _write(ax, *middle, bits, palette.faint, 4 * side, size="x-small")
        for part, marker, color in (
            (slice(n_leaves, None), "o", palette.accent),
            (slice(n_leaves), "s", palette.accent2),
        ):
            ax.plot(self.x[part], y[part], marker, color=color, markersize=5, zorder=3)
        names = [self.bit_names[d] if d < len(self.bit_names) else "same key" for d in levels]
        below = 0.9 if upright else 0.95 + 0.13 * max(2, levels.size)
        ax.set_ylim(levels.size + below, -0.65)
        ax.set_xlim(-0.75 if upright else -1.7, n_leaves - (0.25 if upright else -0.7))
        dress(ax, ylabel="rows part at")
        ax.set_yticks(np.arange(levels.size + 1), [*names, "leaves"])
        ax.set_xticks([])
        for spine in ax.spines.values():
            spine.set_visible(False)
        ax.tick_params(axis="y", length=0)
        return self


def _write(
    ax: Any, x: float, y: float, text: str, color: str, right: int, up: int = 0, **options: Any
) -> None:
    """Write text so many points to the right of and above a place."""
    options = {"size": "small", "va": "center", "zorder": 4, "color": color} | options
    options["ha"] = ("center", "left", "right")[int(np.sign(right))]
    ax.annotate(text, (x, y), (right, up), textcoords="offset points", **options)


def _arrange(posterior: Posterior, mean: float = 0.0, scale: float = 1.0) -> dict[str, Any]:
    """Arrays of a TreeDisplay from a posterior whose messages are in units of `scale`.

    Ids of the engine leave one unused: leaf i is i and node i is n + i, for i > 0; here n + i - 1.
    """
    trie, n = posterior.trie, posterior.n_rows
    if n > MOST_LEAVES:
        raise ValueError(f"a tree of at most {MOST_LEAVES} rows can be drawn, got {n}")
    links = trie.links
    left, right, all_depths = (to_host(part) for part in (links.left, links.right, links.depth))
    used = np.delete(np.arange(2 * n), n)
    depth = all_depths[used].astype(np.int64)
    children = np.stack([left[1:n], right[1:n]], axis=1).astype(np.int64)
    children -= children >= n
    parent = np.full(2 * n - 1, -1, np.int64)
    parent[children] = np.arange(n, 2 * n - 1)[:, None]
    x = np.concatenate([np.arange(n, dtype=np.float64), np.zeros(n - 1)])
    first = np.arange(2 * n - 1)  # a leaf below each, for its key
    for node in _upwards(parent):
        if node >= n:
            below = children[node - n]
            x[node], first[node] = x[below].mean(), first[below[0]]
    keys, bits = to_host(posterior.keys), []
    for k, above in enumerate(parent.tolist()):
        places = range(int(depth[above]), int(depth[k])) if above >= 0 else range(0)
        bits.append("".join(str(_bit(keys[first[k]], place)) for place in places))
    m, s = (to_host(part)[used].astype(np.float64) for part in posterior.inside)
    return {
        "parent": parent,
        "depth": depth,
        "bits": bits,
        "x": x,
        "mean": mean + scale * m,
        "std": scale * np.sqrt(s),
        "row": np.concatenate([to_host(trie.row_idx).astype(np.int64), np.full(n - 1, -1)]),
    }


def _upwards(parent: Ints) -> list[int]:
    """Numbers of nodes and leaves, children before parents."""
    order = [int(np.flatnonzero(parent < 0)[0])]
    for k in order:  # grows while it is read: parents before children
        order.extend(np.flatnonzero(parent == k).tolist())
    return order[::-1]


def _bit(key: npt.NDArray[np.uint64], place: int) -> int:
    return int(key[place // 64]) >> (63 - place % 64) & 1


def _passed_rows(model: Any, n_rows: int) -> npt.NDArray[np.int64]:
    """The row, as it was passed, of each row of the model, (n_rows,); -1 if rows were folded."""
    observations = model._inserted().observations
    if observations is None:
        return np.arange(n_rows)
    passed = np.full(n_rows, -1, np.int64)
    if observations.plain:
        used = np.flatnonzero(observations.index >= 0)
        passed[observations.index[used]] = used
    return passed
