"""A piece of advice: what is off with a model, by which evidence, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_NAMES = 5  # names in one sentence


@dataclass(frozen=True)
class Advice:
    """One piece of advice.

    Attributes
    ----------
    rule : str
        Name of the rule that found it.
    serious : bool
        Whether predictions or error bars suffer; otherwise it is a remark.
    title, reason, action : str
        What is off, the evidence, and what to do.
    target : str or None
        Target that it is about; None if it is about the model.
    """

    rule: str
    serious: bool
    title: str
    reason: str
    action: str
    target: str | None = None


def problem(rule: str, title: str, reason: str, action: str) -> Advice:
    """Advice about something that predictions or error bars suffer from."""
    return Advice(rule, True, title, reason, action)


def remark(rule: str, title: str, reason: str, action: str) -> Advice:
    """Advice that may help."""
    return Advice(rule, False, title, reason, action)


def listed(names: Sequence[str]) -> str:
    """Names in quotes; of many, the first five and how many more there are."""
    shown = [f"“{name}”" for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        return f"{', '.join(shown)} and {len(names) - MOST_NAMES:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def counted(names: Sequence[str], noun: str) -> str:
    """How many there are, with their noun, as the beginning of a sentence."""
    return f"One {noun}" if len(names) == 1 else f"{len(names):,} {noun}s"


def either(names: Sequence[str], singular: str, plural: str) -> str:
    """A word in the singular or the plural."""
    return singular if len(names) == 1 else plural
