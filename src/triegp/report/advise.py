"""All advice that the facts of a report support."""

from __future__ import annotations

from dataclasses import replace

from triegp.report.advice import Advice
from triegp.report.advice_on_fit import on_data, on_target, on_training
from triegp.report.advice_on_intervals import on_intervals, on_test_set
from triegp.report.facts import Facts


def advise(facts: Facts) -> tuple[Advice, ...]:
    """All advice that the facts support, serious advice first."""
    pieces = [*on_training(facts), *on_data(facts)]
    several = len(facts.fit.targets) > 1
    for target in facts.targets:
        for piece in (*on_target(target, facts), *on_intervals(target), *on_test_set(target)):
            pieces.append(replace(piece, target=target.name if several else None))
    return tuple(sorted(pieces, key=lambda piece: not piece.serious))
