"""Random cases of one tree at new rows: rows apart, joint samples, and functions drawn.

Samples are a linear map of normals. It is read off by normals that are unit vectors: the map times
its transpose is the covariance of the posterior. A function is drawn level by level, with a normal
that is keyed by its seed and the leading bits of the row. With the same normals, dense algebra
gives the same function.
"""

import numpy as np

from triegp.encoding import Codes
from triegp.engines import keyed
from triegp.tree import condition, draw_samples, joint_posterior, predict
from triegp.tree.draws import evaluate_draws

GOLDEN, WORD = int(keyed.GOLDEN), (1 << 64) - 1
DRAWN_ROWS = 40  # most rows of a case whose functions are drawn


class Units:
    """Normals that are unit vectors."""

    def standard_normal(self, shape):
        return np.eye(*shape)


def check_points(case, posterior, reference):
    """Errors by name."""
    rng = np.random.default_rng([case.seed, 3])
    some = rng.integers(0, case.n, 2)
    packed = np.concatenate([case.new.packed, case.codes.packed[some]])
    points = Codes(packed, case.codes.precision)
    at = np.concatenate([np.arange(case.n, case.n + case.new.n_rows), some])
    errors = check_apart(posterior, reference, points, at)
    errors |= check_samples(case, posterior, reference, points, at)
    if case.exact and case.n <= DRAWN_ROWS and not case.engine.startswith("cuda"):
        errors |= check_functions(case, posterior, reference, points, at, rng)
    return errors


def check_apart(posterior, reference, points, at):
    found = predict(posterior, points, apart=True)
    mean, var, run = reference.apart(at)
    return {
        "mean apart": reference.errors(found.mean, mean),
        "variance apart": reference.errors(found.var, var),
        "run apart": reference.errors(found.run, run),
    }


def check_samples(case, posterior, reference, points, at):
    """The map from normals to samples, given targets that are 0: its entries do not cancel."""
    given = (case.codes, case.order, np.zeros(case.n), case.noise)
    quiet = condition(posterior.trie, *given, dtype=case.dtype, **case.options)
    root = draw_samples(joint_posterior(quiet, points), 2 * len(at), Units())
    _, cov = reference.posterior(at)
    with np.errstate(under="ignore"):
        return {"samples: covariance": reference.errors(root @ root.T, cov)}


def check_functions(case, posterior, reference, points, at, rng):
    j = int(rng.integers(len(at)))
    seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
    found = evaluate_draws(posterior, points, seed)[[j], 0]
    normals = path_normals(case.all_bits[at[j]], case.order.n_levels, int(seed[0]))
    return {"function draws": reference.errors(found, reference.walk(at[j], normals))}


def path_normals(bits, n_levels, seed):
    """The normal of each level: of a hash of the leading bits of the key, word by word."""
    before, word, out = 0, 0, np.empty(n_levels)
    for i in range(n_levels):
        word |= int(bits[i]) << (63 - i % 64)
        name = mix(before + word) + (i + 1) * GOLDEN
        out[i] = keyed.normal(np.uint64(mix(name + seed)))
        if i % 64 == 63:
            before, word = mix(before + word + GOLDEN), 0
    return out


def mix(word):
    """SplitMix64's finaliser, of an integer modulo 2^64."""
    word &= WORD
    word = ((word ^ (word >> 30)) * int(keyed.FIRST)) & WORD
    word = ((word ^ (word >> 27)) * int(keyed.SECOND)) & WORD
    return word ^ (word >> 31)
