"""Write docs/benchmarks.md from bench/results/likelihood.json: `python -m bench.report`."""

import json
from pathlib import Path

from bench.measure import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def main():
    result = json.loads((RESULTS / "likelihood.json").read_text())
    machine = result["machine"]
    house, after = result["house"], result["after_training"]
    packages = ", ".join(f"{k} {machine[k]}" for k in ("python", "numpy", "numba"))
    lines = [
        "# Benchmarks",
        "",
        "`make bench` measures and writes `bench/results/likelihood.json`. "
        "`python -m bench.report` writes this page from it.",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, shared with other work; {packages}.",
        "Times are medians in seconds, on one core unless stated otherwise.",
        "Likelihood + gradient always includes new keys and a new sort.",
        "[Notation](notation.md) and [engine](engine.md) define keys, sort, lcp, trie, up and down.",
        "(d, p) means d features of p bits.",
        "",
        "## Compared with the paper's algebra",
        "",
        "The paper's algebra ([`triegp.sros`](sros.md), vectorised numpy) and the trie in one run, "
        "likelihood + gradient:",
        "",
        "| n | (d, p) | SROS | trie | ratio | gradients differ by |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["sros"]:
        lines.append(
            f"| {row['n']:,} | ({row['d']}, {row['p']}) | {row['sros']:.3f} | {row['trie']:.5f} "
            f"| {row['ratio']:.0f} | {row['gradient_difference']:.0e} |"
        )
    lines += [
        "",
        "## One large evaluation",
        "",
        f"n = {house['n']:,} and (d, p) = (11, 8), the size of the paper's HouseElec data:",
        "",
        "| keys, sort, lcp | trie | up | down | likelihood + gradient | numpy.sort of n keys |",
        "|---|---|---|---|---|---|",
        f"| {house['keys_and_sort']:.4f} | {house['link']:.4f} | {house['up']:.4f} "
        f"| {house['down']:.4f} | {house['total']:.4f} | {house['numpy_sort']:.4f} |",
        "",
        f"Two threads take {result['threads']['two']:.4f} s and one thread {result['threads']['one']:.4f} s, "
        f"a factor of {result['threads']['speedup']:.2f}.",
        "",
        "## After training",
        "",
        f"{after['n']:,} training rows, {after['m']:,} new rows, (d, p) = (11, 8):",
        "",
        "| step | seconds |",
        "|---|---|",
    ]
    for name, value in after.items():
        if name not in ("n", "m"):
            lines.append(f"| {name.replace('_', ' ')} | {value:.4f} |")
    lines += [
        "",
        "## Memory",
        "",
        "Peak memory of one evaluation in a fresh process, besides packed codes and targets:",
        "",
        *memory_table(result["memory"]),
    ]
    first = result["compile"]
    lines += [
        "",
        "## First call",
        "",
        f"Importing triegp takes {first['import']:.2f} s. After that, the first call of everything that training, "
        "prediction,",
        f"leave-one-out and insertion use takes {first['cold']:.1f} s with an empty numba cache and "
        f"{first['cached']:.2f} s with a full one.",
        "",
        "## Growth",
        "",
        "Least-squares slope of log time against log n, for 10^4 to 10^7 rows:",
        "",
        "| (d, p) | data | slope |",
        "|---|---|---|",
    ]
    for row in result["growth"]:
        lines.append(f"| ({row['d']}, {row['p']}) | {row['kind']} | {row['slope']:.3f} |")
    lines += [
        "",
        "## All sizes",
        "",
        '"up" and "down" are the sweeps. The last column is the total time divided by that of numpy.sort.',
        "",
        "| (d, p) | data | n | distinct keys | keys, sort | trie | up | down | total | ns per row "
        "| total / numpy.sort |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["stages"]:
        lines.append(
            f"| ({row['d']}, {row['p']}) | {row['kind']} | {row['n']:,} "
            f"| {row['distinct_keys']:,} | {row['keys_and_sort']:.5f} | {row['link']:.5f} "
            f"| {row['up']:.5f} | {row['down']:.5f} "
            f"| {row['total']:.5f} | {1e9 * row['total'] / row['n']:.0f} "
            f"| {row['total'] / row['numpy_sort']:.2f} |"
        )
    PAGE.write_text("\n".join(lines) + "\n")
    print(PAGE)


def memory_table(rows):
    """Bytes per row; by kind of data if that was stored."""
    kinds = ["kind"] if all("kind" in row for row in rows) else []
    head = ["n", "(d, p)", *("data" for _ in kinds), "bytes per row"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        texts = [f"{row['n']:,}", f"({row['d']}, {row['p']})", *(row[kind] for kind in kinds)]
        lines.append("| " + " | ".join([*texts, f"{row['bytes_per_row']:.0f}"]) + " |")
    return lines


if __name__ == "__main__":
    main()
