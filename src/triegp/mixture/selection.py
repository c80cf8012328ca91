"""Members that the average can do without, found before they are trained on more rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from triegp.encoding.quantiser import Quantiser
from triegp.engines import Engine
from triegp.mixture.members import Member, leave_out_members
from triegp.mixture.optimise import Problem, TrainedOrder
from triegp.mixture.settings import LEAST_MEMBERS, Settings
from triegp.mixture.weights import average
from triegp.tree.posterior import condition_rows
from triegp.tree.trie import build_trie

Learned = tuple[int, TrainedOrder]  # index of a grid, and an order on it


def select_useful(
    learned: Sequence[Learned],
    grids: Sequence[Quantiser],
    problems: Mapping[int, Problem],
    settings: Settings,
    engine: Engine,
) -> list[Learned]:
    """Leave out the orders that get no weight in the average over a part of the rows.

    Parameters
    ----------
    learned : sequence of (grid, TrainedOrder)
        The orders, with the index of their grid.
    grids : sequence of Quantiser
        All grids.
    problems : mapping of int to Problem
        The part of the rows, on the grid of every order.
    settings : Settings
        How to train; orders are left out only if members are averaged.
    engine : Engine
        The engine in whose memory the problems lie.

    Returns
    -------
    list of (grid, TrainedOrder)
        Those with weight for any target. If these are fewer than 8, those of lowest nll join them.

    Notes
    -----
    O(K n) for K orders and n rows of the part, and O(K^2 n) for the weights.
    """
    if settings.mixture != "calibrated" or len(learned) <= LEAST_MEMBERS:
        return list(learned)

    def condition(alone: Engine, item: Learned) -> Member:
        grid, one = item
        codes, targets = problems[grid]
        trie = build_trie(codes, one.order, engine=alone)
        posteriors = tuple(
            condition_rows(trie, codes, one.order, rows, settings.floor(rows.count))
            for rows in targets
        )
        return Member(grids[grid], one, posteriors)

    members = engine.each(condition, learned)
    useful = np.zeros(len(members), bool)
    for target, posterior in enumerate(members[0].posteriors):
        left, rows = leave_out_members(members, target), posterior.rows
        # Observations at one input are left out together: they count once, as in `weigh`.
        count = rows.weight if rows.copies is None or rows.pulling else None
        useful |= average(left.mean, left.var, rows.y, count, left.noise) > 0
    by_nll = np.argsort([one.nll_per_row for _, one in learned], kind="stable")
    missing = max(LEAST_MEMBERS - int(useful.sum()), 0)
    useful[by_nll[~useful[by_nll]][:missing]] = True
    return [item for item, keep in zip(learned, useful.tolist(), strict=True) if keep]
