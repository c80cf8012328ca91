"""Random cases of one tree whose rows come later, or go: insertion, overlay, some of the rows.

Inserted rows, and rows that are left after others went, give the bits of conditioning on them at
once. An overlay merges rows of one key in another order: it is compared with dense algebra.
"""

import numpy as np

from triegp.encoding import Codes
from triegp.engines import overlay, paths
from triegp.tree import build_trie, condition, insert
from triegp.tree.posterior import restore
from triegp.tree.trie import select_rows


def check_streams(case, posterior, reference):
    """Errors by name."""
    rng = np.random.default_rng([case.seed, 4])
    first = int(rng.integers(1, case.n + 1))
    left = np.flatnonzero(rng.random(case.n) < rng.choice([0.2, 0.9]))
    errors = {}
    if case.counts[:first].any():
        start = condition_some(case, posterior.trie.engine, np.arange(first))
        codes, y, options = some_rows(case, np.arange(first, case.n))
        same = same_bits(insert(start, codes, y, **options), posterior)
        errors["insertion: same bits"] = 0.0 if same else np.inf
        if case.dtype == np.float64 and case.engine.startswith("cpu"):
            errors |= check_overlay(case, start, reference, rng)
    if case.counts[left].any() and not case.engine.startswith("cuda"):
        fewer = condition_some(case, posterior.trie.engine, left)
        trie, keys = select_rows(posterior.trie, posterior.keys, left)
        rows = posterior.rows.select(left)
        found = restore(trie, keys, case.order, case.noise, rows, case.dtype)
        same = same_bits(found, fewer) and np.array_equal(found.keys, fewer.keys)
        errors["forgetting: same bits"] = 0.0 if same else np.inf
    return errors


def some_rows(case, rows):
    codes = Codes(case.codes.packed[rows], case.codes.precision)
    options = {k: None if v is None else v[rows] for k, v in case.options.items()}
    return codes, case.y[rows], options


def condition_some(case, engine, rows):
    codes, y, options = some_rows(case, rows)
    trie = build_trie(codes, case.order, engine=engine)
    return condition(trie, codes, case.order, y, case.noise, dtype=case.dtype, **options)


def same_bits(found, expected):
    """Whether all messages of two posteriors are equal; one entry of nodes is not used."""
    n = expected.n_rows
    used = np.delete(np.arange(2 * n), n)
    pairs = zip(
        (found.trie.row_idx, *found.inside, *found.messages.outside),
        (expected.trie.row_idx, *expected.inside, *expected.messages.outside),
        strict=True,
    )
    return all(
        np.array_equal(a, b) if a.size == n else np.array_equal(a[used], b[used]) for a, b in pairs
    )


def check_overlay(case, start, reference, rng):
    """Rows after the first few in an overlay, in up to three batches."""
    tries = overlay.hold_tries(
        [start.trie.links],
        [start.keys],
        [case.order.levels],
        [start.trie.row_idx],
        [start.rows.weight],
        [[start.inside]],
    )
    bits = paths.key_bits([start.trie.bits])
    over, n_first = overlay.new_overlay(tries), start.n_rows
    cuts = np.sort(rng.integers(n_first, case.n + 1, 2))
    for rows in np.split(np.arange(n_first, case.n), cuts - n_first):
        over = overlay.append_rows(
            tries,
            over,
            paths.read_keys(bits, [case.codes.packed[rows]]),
            case.y[rows][:, None],
            case.variance[rows][None, :, None],
            case.weights[rows] <= 1.0,
            1,
        )
    some = rng.integers(0, case.n, 2)
    packed = np.concatenate([case.new.packed, case.codes.packed[some]])
    at = np.concatenate([np.arange(case.n, case.n + case.new.n_rows), some])
    query = paths.read_keys(bits, [packed])
    errors = {}
    (mean,), (var,), _ = overlay.predict_rows(tries, over, query, 0, False, 1)
    expected, cov = reference.posterior(at)
    diagonal = type(cov)(np.diag(cov.value), np.diag(cov.first))
    errors["overlay: mean"] = reference.errors(mean, expected)
    errors["overlay: variance"] = reference.errors(var, diagonal)
    found = overlay.predict_rows(tries, over, query, 0, True, 1)
    pairs = zip(found, reference.apart(at), strict=True)
    errors["overlay: apart"] = max(reference.errors(part[0], one) for part, one in pairs)
    return errors
