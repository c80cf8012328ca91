"""The likelihood suite: time by stage, memory, growth, threads, prediction, compile time.

    python -m bench.likelihood            all of it, about ten minutes; fills bench/results
    python -m bench.likelihood --quick    small sizes only, a minute; prints, writes nothing

Ratios are taken within one run. One core means one thread; nothing else should run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the dense and SROS routes get one core too

import numpy as np

from bench.measure import RESULTS, extra_peak_bytes, in_fresh_process, machine, seconds, slope
from bench.rows import KINDS, SHAPES, make_codes, make_problem
from triegp import sros
from triegp.engines import CpuEngine
from triegp.engines.cuts import default_cuts
from triegp.tree import (
    build_trie,
    condition,
    insert,
    leave_one_out,
    likelihood,
    predict,
    rebuild_trie,
)

NOISE = 0.01
HOUSE = 1_311_539  # rows of HouseElec, the paper's largest data set
SIZES = tuple(10**k for k in range(3, 8))


def evaluate(codes, order, y, engine):
    """Likelihood and gradient with new keys and sort."""
    trie = build_trie(codes, order, engine=engine)
    return trie, likelihood(trie, order, y, NOISE, gradient=True)


def stages(kind, n, d, p):
    """Seconds of each stage on one core, and of numpy.sort on n keys of 64 bits."""
    codes, order, y = make_problem(kind, n, d, p)
    engine = CpuEngine(n_threads=1)
    trie, _ = evaluate(codes, order, y, engine)
    bits, levels = order.key_bits, order.n_levels
    keys = np.random.default_rng(0).integers(0, 2**63, n, dtype=np.uint64)
    held = []  # the last result stays alive while the next is made, as in training

    def hold(result):
        held[:] = [result]

    sort = seconds(lambda: hold(engine.sort_rows(codes.packed, bits)))
    link = seconds(lambda: hold(engine.link(trie.links.lcp, levels, default_cuts(n))))
    value = seconds(lambda: likelihood(trie, order, y, NOISE))
    both = seconds(lambda: likelihood(trie, order, y, NOISE, gradient=True))
    total = seconds(lambda: hold(evaluate(codes, order, y, engine)))
    return {
        "kind": kind,
        "n": n,
        "d": d,
        "p": p,
        "distinct_keys": trie.n_leaves,
        "keys_and_sort": sort,
        "link": link,
        "up": value,
        "down": both - value,
        "total": total,
        "numpy_sort": seconds(lambda: np.sort(keys)),
    }


def memory(kind, n, d, p):
    """Peak bytes per row of one evaluation beyond its input, in a fresh process."""
    return in_fresh_process("bench.likelihood", "--probe-memory", kind, n, d, p)["bytes_per_row"]


def probe_memory(kind, n, d, p):
    engine = CpuEngine(n_threads=1)
    evaluate(*make_problem(kind, 1_000, d, p), engine)  # compiled code is not the rows' memory
    codes, order, y = make_problem(kind, n, d, p)
    extra = extra_peak_bytes(lambda: evaluate(codes, order, y, engine))
    print(json.dumps({"bytes_per_row": extra / n}))


def against_sros(n, d, p):
    """The SROS route and the trie in one run, on one core, sorting included in both."""
    codes, order, y = make_problem("uniform", n, d, p)
    engine = CpuEngine(n_threads=1)
    noise = NOISE + order.nugget_variance
    weights = order.weights[: order.n_levels]
    held = []

    def by_sros():
        bits = np.unpackbits(codes.packed, axis=1)[:, order.key_bits]
        return sros.gp_likelihood(bits, y, weights, noise)

    def by_trie():
        held[:] = [evaluate(codes, order, y, engine)]
        return held[0][1]

    slow, fast = by_sros(), by_trie()
    by_weight = np.cumsum(fast.gradient.by_level[::-1])[::-1][1:]
    scale = np.abs(slow.weights_gradient).max()
    times = {"sros": seconds(by_sros, repeats=3), "trie": seconds(by_trie, repeats=30)}
    return {
        "n": n,
        "d": d,
        "p": p,
        **times,
        "ratio": times["sros"] / times["trie"],
        "nll_difference": abs(slow.nll / fast.nll - 1),
        "gradient_difference": float(np.abs(slow.weights_gradient - by_weight).max() / scale),
    }


def threads(n, d, p):
    """One evaluation on one thread and on two, in turns."""
    codes, order, y = make_problem("uniform", n, d, p)
    held, times = [], {1: [], 2: []}
    for k in (1, 2) * 5:
        engine = CpuEngine(n_threads=k)
        held[:] = [evaluate(codes, order, y, engine)]
        times[k].append(
            seconds(lambda e=engine: held.__setitem__(0, evaluate(codes, order, y, e)), repeats=3)
        )
    one, two = (float(np.median(times[k])) for k in (1, 2))
    return {"n": n, "one": one, "two": two, "speedup": one / two}


def after_training(n, m):
    """Posterior, prediction, leave-one-out, insertion and re-sorting, one core, (11, 8)."""
    codes, order, y = make_problem("uniform", n, 11, 8)
    new = make_codes("uniform", m, 11, 8, seed=7)
    few = make_codes("uniform", 100, 11, 8, seed=8)
    trie = build_trie(codes, order, engine=CpuEngine(n_threads=1))
    posterior = condition(trie, codes, order, y, NOISE)
    moved = order.bits.copy()
    moved[40:] = moved[40:][::-1]
    other = type(order).from_weights(moved, order.weights)
    return {
        "n": n,
        "m": m,
        "posterior": seconds(lambda: condition(trie, codes, order, y, NOISE), repeats=3),
        "predict_mean_and_variance": seconds(lambda: predict(posterior, new), repeats=3),
        "predict_mean": seconds(lambda: predict(posterior, new, var=False), repeats=3),
        "leave_one_out": seconds(lambda: leave_one_out(posterior), repeats=3),
        "insert_100_rows": seconds(lambda: insert(posterior, few, np.zeros(100)), repeats=3),
        "sort_and_link": seconds(lambda: build_trie(codes, order, engine=trie.engine), repeats=3),
        "resort_below_bit_40": seconds(lambda: rebuild_trie(trie, codes, other), repeats=3),
    }


def compile_times():
    """First call of a fresh process, with an empty numba cache and with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = (
            in_fresh_process("bench.likelihood", "--probe-compile", NUMBA_CACHE_DIR=folder)
            for _ in range(2)
        )
    return {"cold": cold["first_call"], "cached": cached["first_call"], "import": cached["import"]}


def probe_compile():
    """Time the first use of everything an estimator uses; imports are timed apart."""
    code_import = in_fresh_process("bench.likelihood", "--probe-import")["import"]
    codes, order, y = make_problem("uniform", 40_000, 11, 8)

    def first_call():
        trie, _ = evaluate(codes, order, y, CpuEngine())
        moved = order.bits.copy()
        moved[30:] = moved[30:][::-1]
        rebuild_trie(trie, codes, type(order).from_weights(moved, order.weights))
        posterior = condition(trie, codes, order, y, NOISE)
        predict(posterior, codes)
        predict(posterior, codes, var=False)
        leave_one_out(posterior)
        insert(posterior, make_codes("uniform", 10, 11, 8), np.zeros(10))

    print(
        json.dumps({"first_call": seconds(first_call, repeats=1, budget=0), "import": code_import})
    )


def probe_import():
    start = seconds(lambda: subprocess.run([sys.executable, "-c", "import triegp"], check=True), 3)
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 3)
    print(json.dumps({"import": start - bare}))


def run(quick):
    sizes = SIZES[:3] if quick else SIZES
    rows = []
    for d, p in SHAPES:
        for kind in KINDS:
            for n in sizes:
                rows.append(stages(kind, n, d, p))
                print(json.dumps(rows[-1]), flush=True)
    house = 100_000 if quick else HOUSE
    result = {
        "machine": machine(),
        "stages": rows,
        "growth": [
            {"d": d, "p": p, "kind": kind, "slope": _slope(rows, d, p, kind)}
            for d, p in SHAPES
            for kind in KINDS
        ],
        "house": stages("uniform", house, 11, 8),
        "memory": [
            {"d": d, "p": p, "n": house, "kind": kind, "bytes_per_row": memory(kind, house, d, p)}
            for d, p in SHAPES
            for kind in KINDS
        ],
        "sros": [
            against_sros(10_000 if quick else 100_000, 11, 8),
            *(against_sros(10_000, d, p) for d, p in SHAPES),
        ],
        "threads": threads(house, 11, 8),
        "after_training": after_training(100_000 if quick else 1_000_000, house),
        "compile": compile_times(),
    }
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "likelihood.json").write_text(json.dumps(result, indent=1) + "\n")
    for name in ("house", "memory", "sros", "threads", "after_training", "compile", "growth"):
        print(name, json.dumps(result[name]))


def _slope(rows, d, p, kind):
    chosen = [r for r in rows if (r["d"], r["p"], r["kind"]) == (d, p, kind) and r["n"] >= 10_000]
    return slope([r["n"] for r in chosen], [r["total"] for r in chosen])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--probe-memory", nargs=4, metavar=("KIND", "N", "D", "P"))
    parser.add_argument("--probe-compile", action="store_true")
    parser.add_argument("--probe-import", action="store_true")
    options = parser.parse_args()
    if options.probe_memory:
        kind, *numbers = options.probe_memory
        probe_memory(kind, *map(int, numbers))
    elif options.probe_compile:
        probe_compile()
    elif options.probe_import:
        probe_import()
    else:
        run(options.quick)


if __name__ == "__main__":
    main()
