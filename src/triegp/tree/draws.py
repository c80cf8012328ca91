"""Functions drawn from one tree, which can be evaluated at any rows, later and elsewhere.

On its way down a key, f changes at level i + 1 by N(0, w), with w the variance of the level. While
the key runs along the edge above node c, whose rows say (m_c, s_c) at its depth b, the data say
(m_c, s_c + W(b) - W(i + 1)) =: (m, s) at depth i + 1, and

    f_{i+1} | f_i ~ N(f_i + w / (w + s) (m - f_i), w s / (w + s)).

Below the point at which the key leaves the trie, f_{i+1} = f_i + N(0, w). By the Markov property of
the tree, this is the joint posterior at any set of rows, if the normal of each level is a function
of the seed and the first i + 1 bits of the key.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import Codes
from triegp.engines import draws, threads_of
from triegp.tree.posterior import Posterior
from triegp.tree.trie import sorted_keys

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


def evaluate_draws(posterior: Posterior, codes: Codes, seeds: Words) -> Floats:
    """Functions drawn from the posterior at m rows inside the box, (m, k). O(m (D k + log n)).

    A value depends on the row and the seed only, to the last bit.

    Parameters
    ----------
    posterior : Posterior
        Returned by `condition` or `insert`, in the host's memory.
    codes : Codes
        The rows, encoded by the same encoder as the training rows.
    seeds : uint64 (k,)
        One per function.
    """
    trie, n_threads = posterior.trie, threads_of(posterior.trie.engine)
    out = np.empty((codes.n_rows, seeds.size))
    if not codes.n_rows:
        return out
    query = sorted_keys(trie, codes)
    located = trie.engine.locate(trie.links, posterior.keys, query.keys, query.row_idx)
    given = (located, trie.links, posterior.order.levels, posterior.inside)
    found = draws.walk_posterior(query.keys, query.lcp, *given, seeds, n_threads)
    out[query.row_idx] = found
    return out
