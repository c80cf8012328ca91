"""Unique bit strings before and after the ECDF transform: `python -m bench unique`.

Writes bench/results/unique.json: shares of the training rows, seed 0, of every data set that can be
loaded without a download.
"""

import json

import numpy as np

from bench.data import available, load
from bench.measure import RESULTS
from bench.methods.trees import RAISED
from bench.paper import NAMES, UNIQUE
from bench.plan import LARGE
from triegp import BitEncoder

PATH = RESULTS / "unique.json"


def share_unique(rows):
    """Per cent of the rows that are the first of their kind."""
    whole = np.ascontiguousarray(rows)
    as_bytes = whole.view([("row", f"V{whole.shape[1] * whole.itemsize}")]).ravel()
    return 100 * np.unique(as_bytes).size / as_bytes.size


def bit_strings(X, scaling, precision):
    encoder = BitEncoder(scaling=scaling, precision=precision, margin=1e-6).fit(X)
    return share_unique(encoder.encode(X).packed), int(encoder.precision_[0])


def row_of(name):
    ((X, _),) = load(name, 0, "train")
    before, p = bit_strings(X, "minmax", "paper")
    published = UNIQUE.get(NAMES.get(name), {})
    p_new = int(published.get("p_new") or RAISED.get(name, p))
    after, _ = bit_strings(X, "ecdf", p_new)
    return {
        "data": name,
        "n": len(X),
        "d": X.shape[1],
        "p": p,
        "rows": share_unique(X + 0.0),  # one zero, not two
        "bits": before,
        "bits_ecdf": after,
        "p_new": p_new,
    }


def main():
    found = [row_of(name) for name in (*NAMES, *LARGE) if available(name)]
    PATH.write_text(json.dumps(found, indent=1) + "\n")
    for row in found:
        print(
            f"{row['data']:22s} n {row['n']:9,} p {row['p']} rows {row['rows']:5.1f} "
            f"bits {row['bits']:5.1f} after ECDF (p {row['p_new']}) {row['bits_ecdf']:5.1f}"
        )


if __name__ == "__main__":
    main()
