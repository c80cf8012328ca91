"""Where training starts: random orders of every grid, of which the most likely are chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from triegp.encoding.precision import paper_precision
from triegp.encoding.quantiser import Quantiser
from triegp.engines import CpuEngine
from triegp.mixture.batches import Batches, Start, evaluate_candidates
from triegp.mixture.optimise import Problem
from triegp.mixture.settings import Settings
from triegp.models.jobs import run_jobs
from triegp.models.run import Run
from triegp.tree.likelihood import rows_likelihood
from triegp.tree.order import BitOrder, random_bits, uniform_weights
from triegp.tree.trie import build_trie

Floats = npt.NDArray[np.float64]

# Planning for a time budget. Times are in evaluations of one candidate.
CANDIDATE_SHARE = 1 / 3  # largest share of the time for candidates
LEAST_EVALUATIONS = 20  # with gradient, that every member can have
GRADIENT_EVALUATIONS = 1.5  # time of one of them
FINISH_EVALUATIONS = 5.0  # time of a member's posterior
WEIGH_EVALUATIONS = 1.5  # time of a member's leave-one-out, not in parallel
WEIGH_SECONDS = 0.3  # time of the mixture weights
LARGER_ROWS = 2.0  # times as long per row as on a part: they do not fit the caches


def draw_candidates(
    precision: npt.NDArray[np.int64],
    settings: Settings,
    rng: np.random.Generator,
    drawn: npt.NDArray[np.int64] | None = None,
) -> Iterator[BitOrder]:
    """Random orders with uniform weights, except that the last weight cycles through a list.

    Each is drawn when it is asked for.

    drawn: bits per feature of the orders that are drawn, at least `precision`, which is the
    default. Bits that a feature does not have are then left out, and the weight of such a bit goes
    to the bit before it. So the others start with weights that differ.
    """
    drawn = precision if drawn is None else drawn
    n_drawn = int(drawn.sum())
    weights = [
        uniform_weights(n_drawn, last if n_drawn > 1 else None) for last in settings.last_weights
    ]
    depth = np.arange(n_drawn) - np.repeat(np.cumsum(drawn) - drawn, drawn)
    there = depth < np.repeat(precision, drawn)
    name = np.cumsum(there) - 1  # of each bit that is kept
    for i in range(settings.n_candidates):
        bits = random_bits(drawn, rng)
        kept = np.flatnonzero(there[bits])  # begins with 0: the first bit of a feature is kept
        own = np.add.reduceat(weights[i % len(weights)], kept)
        yield BitOrder.from_weights(name[bits[kept]], own, nugget=settings.nugget)


def drawn_precision(encoder: Quantiser) -> npt.NDArray[np.int64]:
    """Bits per feature with which orders are drawn, (n_features,).

    A feature of many bits has its first bit early in a random order. The only bit of a two-valued
    feature, which matters as much, is drawn as early as that. With further bits that are constant,
    training would take the same steps: the likelihood does not depend on them.
    """
    precision = encoder.precision_
    if encoder.two_valued_ is None:
        return precision
    usual = paper_precision(precision.size) + (encoder.shift_ is not None)
    return np.where(encoder.two_valued_, np.maximum(precision, usual), precision)


def boltzmann_pick(log_likelihood: Floats, n_picks: int, rng: np.random.Generator) -> list[int]:
    """Draw candidates without replacement, with probability proportional to exp(z).

    z is the standardised log likelihood. The best candidate is always drawn, and comes first.
    """
    best = int(np.argmax(log_likelihood))
    spread = float(np.std(log_likelihood))
    z = (log_likelihood - np.mean(log_likelihood)) / (spread if spread > 0 else 1.0)
    # Sorting by z + Gumbel noise is drawing without replacement.
    drawn = np.argsort(-(z + rng.gumbel(size=z.size)))
    others = [int(i) for i in drawn if i != best]
    return [best, *others[: n_picks - 1]]


def choose_starts(
    settings: Settings,
    grids: Sequence[Quantiser],
    problems: Mapping[int, Problem],
    streams: Sequence[np.random.Generator],
    run: Run,
    batches: Batches | None,
    share: float,
) -> tuple[list[Start], float]:
    """Evaluate the candidates of every grid, and choose the orders to train.

    share: part of all rows that the problems have. Also returns the seconds to reserve for what
    follows training; 0 without a time budget.
    """
    drawn = [
        draw_candidates(encoder.precision_, settings, stream, drawn_precision(encoder))
        for encoder, stream in zip(grids, streams, strict=False)  # one stream is for all
    ]
    first = (0, next(drawn[0]))

    def evaluate(candidate: Start) -> float:
        grid, order = candidate
        return nll_per_row(problems[grid], order, settings.noise)

    per_grid, n_members, later = settings.n_candidates, settings.n_members, 0.0
    if run.watch.limited:
        at_once = run.n_threads if batches is None else 1
        measured = []
        for _ in range(3):  # the first ones may find cold caches
            began = run.watch.elapsed()
            if batches is None:
                evaluate(first)
            else:
                batches.evaluate([first], gradient=False)
            measured.append(run.watch.elapsed() - began)
            if run.watch.left() < 10 * measured[-1]:
                break
        seconds = min(measured)
        per_grid, n_members, later = plan_ensemble(
            run.watch.left(), seconds, at_once, settings, share
        )
    n_seen = min(n_members, len(grids)) if settings.shift else 1
    candidates = [first]
    for grid in range(n_seen):
        rest = islice(drawn[grid], per_grid - (grid == 0))
        candidates += [(grid, order) for order in rest]
    n_all = settings.n_candidates * len(grids)
    if len(candidates) < n_all:
        run.leave_out(f"{n_all - len(candidates)} of {n_all} candidates")
    tell = run.tell("candidates", len(candidates))
    values: list[float | None]
    if batches is not None:
        values = evaluate_candidates(candidates, batches, run.watch, tell)
    else:
        values = run_jobs(evaluate, candidates, run.n_threads, run.watch, tell)
    if all(value is None for value in values):
        values[0] = 0.0
    nll = np.array([np.inf if value is None else value for value in values])
    if settings.shift:
        by_grid = nll.reshape(n_seen, per_grid)
        seen = [grid for grid in range(n_seen) if np.isfinite(by_grid[grid]).any()]
        best = [grid * per_grid + int(np.argmin(by_grid[grid])) for grid in seen]
        return [candidates[k] for k in best], later
    found = np.flatnonzero(np.isfinite(nll))
    picks = boltzmann_pick(-nll[found], n_members, streams[-1])
    return [candidates[int(found[i])] for i in picks], later


def plan_ensemble(
    left: float, seconds: float, n_threads: int, settings: Settings, share: float = 1.0
) -> tuple[int, int, float]:
    """What fits into a time budget: candidates per grid, members, and seconds after training.

    left: seconds left. seconds: time of one evaluation of a candidate on one thread. Candidates
    take at most a third of the time, and there are only as many members as can be trained for 20
    evaluations each. There is at least one of both. share: part of all rows that a candidate is
    evaluated on.
    """
    seconds = max(seconds, 1e-9)
    seconds_of_all = seconds / share * (LARGER_ROWS if share < 1.0 else 1.0)
    each = seconds_of_all * (FINISH_EVALUATIONS / n_threads + WEIGH_EVALUATIONS)
    trained = seconds * LEAST_EVALUATIONS * GRADIENT_EVALUATIONS / n_threads
    shortest = seconds / n_threads if settings.shift else 0.0  # one candidate per grid
    members = (left - WEIGH_SECONDS) / (each + trained + shortest)
    members = min(members, left / 2 / each)  # no more than half of the time is for what follows
    n_members = settings.n_members if members >= settings.n_members else max(1, int(members))
    n_grids = n_members if settings.shift else 1
    most = left * CANDIDATE_SHARE * n_threads / (seconds * n_grids)
    per_grid = settings.n_candidates if most >= settings.n_candidates else max(1, int(most))
    return per_grid, n_members, min(n_members * each + WEIGH_SECONDS, left / 2)


def nll_per_row(problem: Problem, order: BitOrder, noise: float) -> float:
    """Nll of a candidate, divided by the number of observations; targets share one trie."""
    codes, targets = problem
    trie = build_trie(codes, order, engine=CpuEngine(n_threads=1))
    nll = sum(rows_likelihood(trie, order, rows, noise).nll for rows in targets)
    return nll / problem.n_terms
