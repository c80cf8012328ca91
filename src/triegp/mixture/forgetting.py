"""A mixture given some of its rows, or its rows with other weights, at the same parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from triegp.engines import Engine
from triegp.mixture.members import Ensemble, Member
from triegp.mixture.placing import place_ensemble
from triegp.tree.posterior import lend_posterior, restore
from triegp.tree.rows import Rows
from triegp.tree.trie import select_rows, with_engine

Ints = npt.NDArray[np.int64]


def reweigh_ensemble(ensemble: Ensemble, rows: Rows, source: Ints, host: Engine) -> Ensemble:
    """The mixture given m rows instead of its own, with the same orders, weights and noise.

    Row i stands where row source[i] of the mixture does, and has its noise; source rises. rows: y
    (m, n_targets), weights, copies and scatter, on the host. O(n) per member, on the host; a
    mixture on a device is moved there and back.
    """
    assert ensemble.held is None  # cells cannot give rows back
    targets = [replace(rows.target(j), X=None) for j in range(ensemble.n_targets)]
    there, here = ensemble.engine, place_ensemble(ensemble, host)

    def condition(alone: Engine, k: int) -> Member:
        member = here.members[k]
        first = member.posteriors[0]
        trie, keys = select_rows(with_engine(first.trie, alone), first.keys, source)
        posteriors = []
        for old, own in zip(member.posteriors, targets, strict=True):
            noise = old.rows.total_noise
            own = replace(own, noise=noise if noise.size == 1 else noise[source])
            found = restore(trie, keys, old.order, old.noise, own, old.dtype)
            posteriors.append(lend_posterior(found, host))
        return replace(member, posteriors=tuple(posteriors))

    members = host.each(condition, range(len(here.members)))
    return place_ensemble(replace(here, members=tuple(members)), there)
