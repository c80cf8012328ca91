"""Rules for a model of several layers in a model file."""

from __future__ import annotations

import numpy as np

from triegp.files import forest, mixture
from triegp.files.codec import LEAST, RULES, Rule, rising
from triegp.layers.effects import MainEffects
from triegp.layers.layered import Below, Layered

__all__ = ["Layered", "forest", "mixture"]  # a model holds records of these modules

LARGEST = 1e100  # standardised targets, and what layers add to them


def _check_effects(effects: MainEffects) -> None:
    starts, knots = effects.starts, effects.knots
    if starts[0] != 0 or starts[-1] != knots.size or starts.size != effects.features.size + 1:
        raise ValueError(f"starts must cut {knots.size} knots into functions")
    inner = np.ones(max(knots.size - 1, 0), bool)
    inner[starts[1:-1] - 1] = False
    if not (np.diff(knots)[inner] > 0).all() or (np.diff(starts) < 2).any():
        raise ValueError("a function must have at least two knots, which increase")


def _check_layered(model: Layered) -> None:
    base, rest, effects = model.base, model.rest, model.below.effects
    n_targets = rest.n_targets
    sizes = {part.size for part in (model.scale, model.below.gain, effects.level)}
    if base.n_targets != n_targets or sizes != {n_targets}:
        raise ValueError(f"all layers must have {n_targets} targets")
    if model.known.shape != (model.n_rows, n_targets):
        raise ValueError(f"known must have shape {(model.n_rows, n_targets)}")
    n_features = rest.members[0].encoder.n_working
    if effects.features.size and not 0 <= effects.features[0] <= effects.features[-1] < n_features:
        raise ValueError(f"features must be below {n_features}")


RULES[Layered] = Rule(
    "scale:k known:N,k",
    {"scale": (LEAST, LARGEST), "known": (-LARGEST, LARGEST)},
    check=_check_layered,
)
RULES[Below] = Rule(
    "gain:k bound:k", {"gain": (0, 1), "bound": (0, LARGEST), "usual": (0, LARGEST)}
)
RULES[MainEffects] = Rule(
    "features:A starts:s knots:K values:K,k level:k spread:A,k",
    {
        "features": rising,
        "starts": rising,
        "knots": (-np.finfo(float).max, np.finfo(float).max),
        "values": (-LARGEST, LARGEST),
        "level": (-LARGEST, LARGEST),
        "spread": (0, LARGEST),
    },
    check=_check_effects,
)
