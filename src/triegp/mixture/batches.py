"""Training on an engine that works on many orders at once: candidates in batches, fits in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from triegp.encoding.codes import Codes
from triegp.engines import Engine
from triegp.mixture.lockstep import run_in_step
from triegp.mixture.optimise import Ask, Data, Fit, Plan, fit_order
from triegp.models.jobs import Stopwatch
from triegp.tree.likelihood import Case, Likelihood, evaluate_cases, hold_codes
from triegp.tree.observations import Measured, hold_rows
from triegp.tree.order import BitOrder

BATCH_ROWS = 1 << 26  # rows times orders times targets of one batch; at least one order

Start = tuple[int, BitOrder]  # an order, and on which grid


@dataclass(frozen=True, eq=False)
class Held:
    """What the members of a grid are trained on, in an engine's own memory.

    Attributes
    ----------
    codes : Codes
        The rows, on this grid.
    measured : tuple of Measured
        One a target.
    data : Data
        The same in the host's memory.
    """

    codes: Codes
    measured: tuple[Measured, ...]
    data: Data


class Batches:
    """Likelihoods of many orders at once, over the same rows on several grids.

    Codes are brought into the engine's memory when a grid is first asked for, targets once for all.

    Parameters
    ----------
    data : callable (grid) -> Data
        Of every grid; all have the same rows and targets.
    engine : Engine
        Who evaluates.
    """

    def __init__(self, data: Callable[[int], Data], engine: Engine) -> None:
        self.data, self.engine = data, engine
        self._held: dict[int, Held] = {}
        self._measured: tuple[Measured, ...] | None = None

    def hold(self, grid: int) -> Held:
        """A grid's rows, in the engine's memory from now on."""
        if grid not in self._held:
            data = self.data(grid)
            if self._measured is None:
                rows = data.measured()
                self._measured = tuple(hold_rows(row, self.engine.hold) for row in rows)
            self._held[grid] = Held(hold_codes(data.codes, self.engine), self._measured, data)
        return self._held[grid]

    def split(self, starts: Sequence[Start]) -> Iterator[slice]:
        """Parts of them that are small enough to be evaluated together."""
        if not starts:
            return
        held = self.hold(starts[0][0])
        n_each = held.codes.n_rows * len(held.measured)
        step = max(1, BATCH_ROWS // n_each)
        for first in range(0, len(starts), step):
            yield slice(first, first + step)

    def evaluate(self, starts: Sequence[Start], *, gradient: bool) -> list[list[Likelihood]]:
        """Likelihoods of the orders, one a target, in one batch."""
        held = [self.hold(grid) for grid, _ in starts]
        cases = [
            Case(rows.codes, order, measured)
            for rows, (_, order) in zip(held, starts, strict=True)
            for measured in rows.measured
        ]
        found = evaluate_cases(cases, held[0].data.noise, self.engine, gradient=gradient)
        n_targets = len(held[0].measured)
        return [found[k : k + n_targets] for k in range(0, len(found), n_targets)]


def evaluate_candidates(
    candidates: Sequence[Start],
    batches: Batches,
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[float | None]:
    """Nll a row of all candidates; None for those not reached before the watch said stop.

    Ctrl-C stops the watch and is remembered there. `progress` is called after every batch.
    """
    values: list[float | None] = [None] * len(candidates)
    try:
        for some in batches.split(candidates):
            if watch.stop:
                break
            found = batches.evaluate(candidates[some], gradient=False)
            n_terms = batches.hold(candidates[0][0]).data.n_terms
            values[some] = [sum(part.nll for part in parts) / n_terms for parts in found]
            progress(min(some.stop, len(candidates)))
    except KeyboardInterrupt:
        watch.interrupt()
    return values


def fit_in_step(
    starts: Sequence[Start],
    batches: Batches,
    plan: Plan,
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Fit | None]:
    """`fit_order` from every start, all fits one evaluation at a time and together.

    What is not begun when the watch says stop is None, as in `run_jobs`.
    """

    def fit(start: Start, ask: Callable[[Start], list[Likelihood]]) -> Fit:
        grid, order = start
        own: Ask = lambda at: ask((grid, at))  # noqa: E731
        return fit_order(order, batches.data(grid), plan, batches.engine, watch, own)

    def answer(asked: list[Start]) -> list[list[Likelihood]]:
        parts = [batches.evaluate(asked[some], gradient=True) for some in batches.split(asked)]
        return [one for part in parts for one in part]

    return run_in_step(fit, starts, answer, watch, progress)
