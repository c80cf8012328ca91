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
        "Made by `make bench` and `python -m bench.report` from `bench/results/likelihood.json`. "
        f"Machine: {machine['cpu']}, {machine['cores']} cores, shared; {packages}. "
        "Times are medians in seconds, on one core where nothing else is said. "
        "Likelihood + gradient always includes new keys and a new sort.",
        "",
        "## Against the SROS route",
        "",
        "The paper's algebra (`triegp.sros`, vectorised numpy) and the trie, one run, one core, "
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
        f"n = {house['n']:,}, (d, p) = (11, 8), the size of the paper's HouseElec:",
        "",
        "| keys, sort, lcp | trie | up | down | likelihood + gradient | numpy.sort of n keys |",
        "|---|---|---|---|---|---|",
        f"| {house['keys_and_sort']:.4f} | {house['link']:.4f} | {house['up']:.4f} "
        f"| {house['down']:.4f} | {house['total']:.4f} | {house['numpy_sort']:.4f} |",
        "",
        f"Two threads: {result['threads']['one']:.4f} becomes {result['threads']['two']:.4f}, "
        f"a factor of {result['threads']['speedup']:.2f}.",
        "",
        "## After training",
        "",
        f"{after['n']:,} training rows, {after['m']:,} new rows, (11, 8), one core:",
        "",
        "| what | seconds |",
        "|---|---|",
    ]
    for name, value in after.items():
        if name not in ("n", "m"):
            lines.append(f"| {name.replace('_', ' ')} | {value:.4f} |")
    lines += [
        "",
        "## Memory",
        "",
        "Peak of one evaluation in a fresh process, beside packed codes and targets:",
        "",
        "| n | (d, p) | data | bytes a row |",
        "|---|---|---|---|",
    ]
    for row in result["memory"]:
        lines.append(
            f"| {row['n']:,} | ({row['d']}, {row['p']}) | {row['kind']} "
            f"| {row['bytes_per_row']:.0f} |"
        )
    first = result["compile"]
    lines += [
        "",
        "## First call",
        "",
        "Everything that training, prediction, leave-one-out and insertion use, first call in a "
        f"fresh process: {first['cold']:.1f} s with an empty numba cache, "
        f"{first['cached']:.2f} s with a full one, "
        f"after an import of {first['import']:.2f} s.",
        "",
        "## Growth",
        "",
        "Least-squares slope of log time over log n, 10^4 to 10^7 rows:",
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
        "| (d, p) | data | n | distinct keys | keys, sort | trie | up | down | total | ns a row "
        "| to numpy.sort |",
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


if __name__ == "__main__":
    main()
