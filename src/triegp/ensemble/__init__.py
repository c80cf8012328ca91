"""An ensemble of trees over the same rows: each a process of its own; what they say is mixed."""

from triegp.ensemble.members import Ensemble, Member
from triegp.ensemble.packing import pack_ensemble, unpack_ensemble
from triegp.ensemble.training import (
    Recipe,
    card_bytes,
    check_encoders,
    recipe_of,
    train,
    weigh,
)

__all__ = [
    "Ensemble",
    "Member",
    "Recipe",
    "card_bytes",
    "check_encoders",
    "pack_ensemble",
    "recipe_of",
    "train",
    "unpack_ensemble",
    "weigh",
]
