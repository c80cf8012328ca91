"""Rows divided into blocks of close rows, in random order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.engines import cells

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

BLOCK_ROWS, LAST_ROWS = 32, 8  # of a block on average; of one that comes last
MOST_ROWS = 64  # of a block


def divide_rows(
    scaled: Floats, late: npt.NDArray[np.bool_], rng: np.random.Generator, n_threads: int
) -> tuple[Ids, Ids]:
    """Blocks of scaled inputs (n, d): an order of the rows, (n,), and where each block starts.

    late: bool (n,), rows that come last.
    """
    parts = list[Ids]()
    for rows, size in ((np.flatnonzero(~late), BLOCK_ROWS), (np.flatnonzero(late), LAST_ROWS)):
        if rows.size:
            clustered = cells.make_cells(scaled[rows], -(-rows.size // size), n_threads)
            by_cell = np.split(rows[clustered.rows], clustered.starts[1:-1])
            few = [part for cell in by_cell if cell.size for part in cut(cell)]
            parts += [few[b] for b in rng.permutation(len(few))]
    return np.concatenate(parts), np.append(0, np.cumsum([part.size for part in parts]))


def cut(rows: Ids) -> list[Ids]:
    """Rows of a cell in blocks of at most MOST_ROWS."""
    return np.array_split(rows, -(-rows.size // MOST_ROWS))
