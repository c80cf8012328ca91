"""Where the random numbers of a fit come from, so that a later fit can draw the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from triegp.checks import random_generator
from triegp.models.state import Seed


def draw_seeds(random_state: Any, n: int) -> tuple[Seed, ...]:
    """One source of random numbers per model."""
    seeds = []
    for child in random_generator(random_state).spawn(n):
        sequence: Any = child.bit_generator.seed_seq
        entropy = np.atleast_1d(np.array(sequence.entropy, dtype=object)).tolist()
        seeds.append(Seed(tuple(map(int, entropy)), tuple(map(int, sequence.spawn_key))))
    return tuple(seeds)


def generator_of(seed: Seed) -> np.random.Generator:
    """The generator of a seed, at its beginning."""
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=seed.key))
