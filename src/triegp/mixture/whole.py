"""All rows of a training that learns from a sample of them: summed into the cells of every tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from triegp.encoding.grids import encode_grids
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine
from triegp.mixture.cells import (
    Cells,
    Units,
    integer_rows,
    join_cells,
    limit_cells,
    sum_rows,
    sum_squares,
)
from triegp.models.pieces import Piece, Pieces
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows


@dataclass(frozen=True, eq=False)
class Whole:
    """All rows, and the sample that orders are learned from.

    Attributes
    ----------
    pieces : Pieces
        All rows.
    read : callable (Piece) -> Rows
        Rows of a piece as the model reads them: standardised targets (m, k), with their features.
        Rows of weight 0 and rows that the model cannot read are left out. Picklable.
    sample : Rows
        Rows that orders are learned from, with distinct features.
    n_rows : int
        Number of all rows.
    n_summed : int
        Of these, the number that the model does not hold.
    units : Units
        Largest sizes of what is summed.
    unit : float
        Weight of one observation.
    divided : bool
        Whether weights divide the noise of an observation, rather than count it.
    most_cells : int
        Largest number of cells of a tree.
    """

    pieces: Pieces
    read: Callable[[Piece], Rows]
    sample: Rows
    n_rows: int
    n_summed: int
    units: Units
    unit: float
    divided: bool
    most_cells: int

    def sum(self, grids: Sequence[Quantiser], orders: Sequence[BitOrder]) -> Summed:
        """Cells of all rows under each order on its grid. One pass over the rows."""
        most = self.most_cells
        trees = tuple(zip(grids, orders, strict=True))
        work = partial(sum_piece, read=self.read, trees=trees, units=self.units, most=most)
        found: Summed = self.pieces.reduce(work, partial(join_all, most=most))
        return found


class Summed(NamedTuple):
    """Cells of every tree, and the sum of squares of every target (`sum_squares`)."""

    cells: list[Cells]
    squares: tuple[int, ...]


def sum_piece(
    piece: Piece,
    read: Callable[[Piece], Rows],
    trees: Sequence[tuple[Quantiser, BitOrder]],
    units: Units,
    most: int,
) -> Summed:
    """Cells of one piece for each grid with its order. O(K m) for m rows."""
    rows = read(piece)
    alone = CpuEngine(n_threads=1)
    integers = integer_rows(rows, units)
    found = []
    for grid, order in trees:
        (codes,) = encode_grids([grid], rows.features, alone)
        cells = sum_rows(codes, order.key_bits, integers, alone)
        found.append(limit_cells(cells, most))
    return Summed(found, sum_squares(rows, units))


def join_all(one: Summed, other: Summed, most: int) -> Summed:
    """Join the cells of every tree."""
    pairs = zip(one.cells, other.cells, strict=True)
    squares = tuple(map(sum, zip(one.squares, other.squares, strict=True)))
    return Summed([limit_cells(join_cells(*pair), most) for pair in pairs], squares)
