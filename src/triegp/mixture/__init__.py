"""Many trees averaged: each is a Gaussian process of its own, their predictions are mixed."""

from triegp.mixture.members import Ensemble, Member
from triegp.mixture.train import card_bytes, check_encoders, recipe_of, train_ensemble, weigh

__all__ = [
    "Ensemble",
    "Member",
    "card_bytes",
    "check_encoders",
    "recipe_of",
    "train_ensemble",
    "weigh",
]
