"""Rows in pieces, wherever they lie: in memory, in files, or on other machines.

An algorithm that works by pieces asks for two things: a small result from each piece, or one result
for all of them, joined two at a time. It does not know who computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from triegp.models.jobs import Stopwatch, run_jobs

Result = TypeVar("Result")


class Piece(NamedTuple):
    """Some of the rows.

    Attributes
    ----------
    first : int
        Number of its first row among all rows.
    X : table (m, d)
        An array or a data frame.
    y : array (m,) or (m, k)
        Targets.
    weight : array (m,) or None
        Sample weights.
    """

    first: int
    X: Any
    y: Any
    weight: Any


class Pieces(Protocol):
    """Rows in pieces.

    Functions that are passed in take a `Piece` of at least one row, and may be sent to another
    process: they are picklable, and small.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows in all pieces."""
        ...

    def collect(self, work: Callable[[Piece], Result]) -> list[Result]:
        """Result of every piece, in their order.

        Parameters
        ----------
        work : callable
            Called with each piece.
        """
        ...

    def reduce(
        self, work: Callable[[Piece], Result], join: Callable[[Result, Result], Result]
    ) -> Result:
        """Results of all pieces, joined two at a time; join must be associative.

        Parameters
        ----------
        work : callable
            Called with each piece.
        join : callable
            Called with two results; associative.
        """
        ...

    def concat(self, tables: Sequence[Any]) -> Any:
        """Parts of X as one table, in their order.

        Parameters
        ----------
        tables : sequence
            Parts of X, as pieces have them.
        """
        ...


class LocalPieces:
    """Pieces that this process reads, in parallel on threads.

    Parameters
    ----------
    firsts : sequence of int
        Number of the first row of each piece, rising from 0.
    n_rows : int
        Number of rows.
    read : callable (k) -> Piece
        Reads piece k; called from several threads.
    concat : callable (tables) -> table
        Joins parts of X.
    n_threads : int
        Number of pieces that are read at a time.
    """

    def __init__(
        self,
        firsts: Sequence[int],
        n_rows: int,
        read: Callable[[int], Piece],
        concat: Callable[[Sequence[Any]], Any],
        n_threads: int,
    ) -> None:
        self._firsts, self._n_rows = firsts, n_rows
        self._read, self._concat, self._n_threads = read, concat, n_threads

    @property
    def n_rows(self) -> int:
        """Number of rows in all pieces."""
        return self._n_rows

    def collect(self, work: Callable[[Piece], Result]) -> list[Result]:
        """Result of every piece, in their order.

        Parameters
        ----------
        work : callable
            Called with each piece.
        """
        return self._run(lambda k: work(self._read(k)), range(len(self._firsts)))

    def reduce(
        self, work: Callable[[Piece], Result], join: Callable[[Result, Result], Result]
    ) -> Result:
        """Results of all pieces, joined as soon as they are there; few are held at a time.

        Parameters
        ----------
        work : callable
            Called with each piece.
        join : callable
            Called with two results; associative.
        """
        turns = range(len(self._firsts))
        found: list[Result] = []
        for first in range(0, len(turns), self._n_threads):
            some = turns[first : first + self._n_threads]
            found += self._run(lambda k: work(self._read(k)), some)
            while len(found) > 1:
                found.append(join(found.pop(0), found.pop(0)))
        return found[0]

    def concat(self, tables: Sequence[Any]) -> Any:
        """Parts of X as one table.

        Parameters
        ----------
        tables : sequence
            Parts of X, as pieces have them.
        """
        return self._concat(tables)

    def _run(self, work: Callable[[Any], Result], items: Sequence[Any]) -> list[Result]:
        watch = Stopwatch()
        results = run_jobs(work, items, self._n_threads, watch)
        if watch.interrupted:
            raise KeyboardInterrupt
        return [one for one in results if one is not None]
