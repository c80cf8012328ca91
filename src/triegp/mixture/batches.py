"""Training on an engine that evaluates many orders at once: candidates and orders in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from triegp.encoding.codes import hold_codes
from triegp.engines import Engine
from triegp.mixture.lockstep import run_in_step
from triegp.mixture.optimise import Ask, Problem, TrainedOrder, train_order
from triegp.mixture.settings import Settings
from triegp.models.jobs import Stopwatch
from triegp.tree.likelihood import Case, Likelihood, evaluate_cases
from triegp.tree.order import BitOrder
from triegp.tree.rows import Rows, hold_rows

BATCH_ROWS = 1 << 26  # largest rows * orders * targets of a batch with more than one order

Start = tuple[int, BitOrder]  # index of a grid, and an order on it


class Batches:
    """Likelihoods of many orders at once, over the same rows on several grids.

    Codes are copied into the engine's memory when their grid is first used; targets are copied
    once.

    Parameters
    ----------
    problems : {grid: Problem}
        One per grid; all have the same targets.
    noise : float
        Noise floor.
    engine : Engine
        The engine that evaluates.
    """

    def __init__(self, problems: Mapping[int, Problem], noise: float, engine: Engine) -> None:
        self._problems, self._noise, self._engine = problems, noise, engine
        self._held: dict[int, Problem] = {}
        self._targets: tuple[Rows, ...] | None = None
        self._any = next(iter(problems.values()))
        self.n_terms = self._any.n_terms

    def hold(self, grid: int) -> Problem:
        """The problem on a grid, in the engine's memory; copied there on first use."""
        if grid not in self._held:
            codes, targets = self._problems[grid]
            if self._targets is None:
                self._targets = tuple(hold_rows(rows, self._engine.hold) for rows in targets)
            self._held[grid] = Problem(hold_codes(codes, self._engine.hold), self._targets)
        return self._held[grid]

    def split(self, starts: Sequence[Start]) -> Iterator[slice]:
        """Slices of the orders, each small enough for one batch."""
        codes, targets = self._any
        step = max(1, BATCH_ROWS // (codes.n_rows * len(targets)))
        for first in range(0, len(starts), step):
            yield slice(first, first + step)

    def evaluate(self, starts: Sequence[Start], *, gradient: bool) -> list[list[Likelihood]]:
        """Likelihoods of the orders, one per order and target, in one batch."""
        cases = [
            Case(self.hold(grid).codes, order, rows)
            for grid, order in starts
            for rows in self.hold(grid).targets
        ]
        found = evaluate_cases(cases, self._noise, self._engine, gradient=gradient)
        n_targets = len(self._any.targets)
        return [found[k : k + n_targets] for k in range(0, len(found), n_targets)]


def evaluate_candidates(
    candidates: Sequence[Start],
    batches: Batches,
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[float | None]:
    """Nll per row of all candidates; None for those not reached before the watch stopped.

    Ctrl-C stops the watch and sets `watch.interrupted`. `progress` is called after each batch with
    the number of candidates done.
    """
    values: list[float | None] = [None] * len(candidates)
    try:
        for some in batches.split(candidates):
            if watch.stop:
                break
            found = batches.evaluate(candidates[some], gradient=False)
            values[some] = [sum(part.nll for part in parts) / batches.n_terms for parts in found]
            progress(min(some.stop, len(candidates)))
    except KeyboardInterrupt:
        watch.interrupt()
    return values


def train_in_step(
    starts: Sequence[Start],
    batches: Batches,
    settings: Settings,
    watch: Stopwatch,
    progress: Callable[[int], None] = lambda done: None,
) -> list[TrainedOrder | None]:
    """`train_order` from every start in parallel; each evaluation is a batch of all orders.

    The result is None for orders that had not begun when the watch stopped, as in `run_jobs`.
    """

    def train(start: Start, ask: Callable[[Start], list[Likelihood]]) -> TrainedOrder:
        grid, order = start
        own: Ask = lambda at: ask((grid, at))  # noqa: E731
        return train_order(order, batches.n_terms, settings, watch, own)

    def answer(asked: list[Start]) -> list[list[Likelihood]]:
        parts = [batches.evaluate(asked[some], gradient=True) for some in batches.split(asked)]
        return [one for part in parts for one in part]

    return run_in_step(train, starts, answer, watch, progress)
