"""Write docs/results.md and its plots from the cells: `python -m bench page`."""

import json
from pathlib import Path

import numpy as np

from bench import plan, plots, scaling, tables, unique
from bench.cells import read
from bench.data import SEVEN
from bench.measure import RESULTS, machine

DOCS = Path(__file__).parents[1] / "docs"
READING = Path(__file__).with_name("reading.md")
SHOWN = ("nll", "rmse", "crps", "cover90", "width90", "fit", "predict", "memory")
TIMES = RESULTS / "times.json"
REST = ("cover50", "cover99", "width50", "width99")


def command(*names):
    """What regenerates a table."""
    return ["", ", ".join(f"`python -m bench {name}`" for name in names), ""]


def least(metric):
    """Says so under a table of least values."""
    if metric not in tables.LEAST:
        return []
    return ["", "The least of the seeds; `-`: not kept."]


def sections():
    """The page, section by section, as lines."""
    peers = ("triegp", "triegp-forest", "paper-bte", "paper-bt", *plan.PEERS)
    cells = [c for d in SEVEN for c in read("test", d, "triegp")]
    where = cells[0]["machine"] if cells else machine()
    gpus = {c["machine"].get("gpu") for d in SEVEN for m in peers for c in read("test", d, m)}
    gpu = ", ".join(sorted(filter(None, gpus))) or "none was used"
    yield [
        "# Results",
        "",
        "Written by `python -m bench page` from one JSON a (data, method, seed) in `bench/results/cells`; the command "
        "under a table runs its cells (those that are there are kept: `--again` runs them anew), and "
        "`python -m bench run DATA --methods METHOD --seeds SEED --again` any single one.",
        "",
        "Splits, seeds (0, 1, 2) and scores are the paper's: 64 % of the rows to train, 16 % to validate (early stopping "
        "of the methods that have it), 20 % to test; NLL, RMSE, CRPS and widths on the standardised target. Means over "
        "the seeds ± two standard errors; of times and memory the least, as the machines are shared. A cell may take ten minutes. "
        f"Times: {where['cpu']}, {where['cores']} cores, unless a row says GPU ({gpu}): compare times only within one machine.",
        "",
    ]
    yield [*READING.read_text().rstrip().splitlines(), ""]
    yield ["## The methods", "", *tables.methods_table(peers), *command("methods")]
    yield [
        "## Against what people use",
        "",
        "The seven sets of the paper that are at hand. The best of a column is bold. Quantile methods have no density and "
        "so no NLL; their CRPS is a sum over the levels they have, which flatters seven levels by about 5 % and those of the forest by 0.3 %.",
        "",
    ]
    for metric in SHOWN:
        title = tables.METRICS[metric][0]
        yield [
            f"### {title}",
            "",
            *tables.peers_table(metric, SEVEN, peers),
            *least(metric),
            *command("peers", "table1"),
        ]
    yield ["### More of the intervals", ""]
    for metric in REST:
        title = tables.METRICS[metric][0]
        yield [f"{title}:", "", *tables.peers_table(metric, SEVEN, peers), ""]
    yield command("peers", "table1")[1:]
    yield ["## Large sets", "", "One seed where no error is given.", ""]
    for metric in ("nll", "rmse", "crps", "cover90", "fit", "predict", "memory"):
        rows = tables.peers_table(metric, plan.LARGE, plan.ON_LARGE)
        yield [f"### {tables.METRICS[metric][0]} ", "", *rows, *least(metric), *command("large")]
    yield ["## The paper's Table 1", ""]
    for metric, title in (("nll", "NLL"), ("rmse", "RMSE"), ("minutes", "Minutes")):
        note = (
            " (paper: one V100; here: two CPU cores, the least of the seeds)"
            if metric == "minutes"
            else ""
        )
        yield [f"{title}{note}:", "", *tables.paper_table(metric), ""]
    yield command("table1")[1:]
    yield [
        "## Run time against n",
        "",
        "The paper's figure, with its trend lines, and our times for the same protocol.",
        "",
        "![Run time of the paper's protocol against n](figures/runtime.svg)",
        *command("table1"),
    ]
    yield ["## Precision", "", *tables.precision_table(), *command("precision")]
    yield [
        "## Unique bit strings",
        "",
        "Of the training rows, seed 0; the paper's figures in brackets.",
        "",
        *tables.unique_table(json.loads(unique.PATH.read_text())),
        *command("unique"),
    ]
    yield [
        "## ECDF",
        "",
        "The paper used it, with more bits, on 3DRoad, Song and Buzz, which are not at hand; the two stand-ins where "
        "min-max loses most rows. NLL of the paper's mixture:",
        "",
        *tables.ecdf_table("nll"),
        "",
        "RMSE:",
        "",
        *tables.ecdf_table("rmse"),
        *command("ecdf"),
    ]
    yield [
        "## Simplex-GP",
        "",
        "The paper's table, its figures, and ours on the same splits (Simplex-GP itself was not run).",
        "",
        *tables.simplex_table(),
        *command("table1"),
    ]
    yield [
        "## Scaling",
        "",
        "Synthetic rows of 8 features, fit in seconds, one run; a method stops where a fit takes more than its time or memory; blank: not tried.",
        "",
        "![Fit time against n](figures/scaling.svg)",
        "",
        *scaling_table(),
        *command("scaling"),
    ]
    yield ["## Fit times of the defaults in one run", "", *times_section(), "", *forest_times()]
    yield [
        "## Ablation",
        "",
        "NLL of the validation part with one choice changed, less that of the defaults (positive: the default is better).",
        "",
        *tables.ablation_table(),
        *command("ablation"),
    ]
    yield [
        "## The paper's drawings",
        "",
        "![A small tree and its kernel values](figures/tree.svg)",
        "![Functions drawn from the kernel at depths 0 to 4](figures/draws.svg)",
        "![A bit order as a map from the unit square to 8 bits](figures/order.svg)",
        "![An SROS matrix and its parts](figures/sros.svg)",
        *command("schematics"),
    ]


def times_section():
    """Against LightGBM side by side, growth, and what is not likelihood."""
    if not TIMES.exists():
        return ["Not run."]
    found = json.loads(TIMES.read_text())
    ratios = [
        [row["data"], f"{row['triegp']:.2f}", f"{row['lightgbm']:.2f}", f"{row['ratio']:.2f}"]
        for row in found["lightgbm"]
    ]
    rows = [
        [f"{row['n']:,}", f"{row['fit']:.1f}", f"{row['evaluations']:,}"]
        for row in found["growth"]["rows"]
    ]
    overhead = ", ".join(f"{row['ratio']:.2f} at {row['n']:,} rows" for row in found["overhead"])
    return [
        "Median of three fits in turns with LightGBM's (settings as above):",
        "",
        *tables.table(["data", "triegp, s", "LightGBM, s", "ratio"], ratios),
        "",
        f"Growth on synthetic rows of 8 features: n^{found['growth']['slope']:.2f}.",
        "",
        *tables.table(["rows", "fit, s", "evaluations"], rows),
        "",
        f"Fit time over (evaluations x time of one evaluation with all cores busy / cores): {overhead}.",
        "",
        "`python -m bench.times`",
    ]


def forest_times():
    """Times of the forest, if they were measured."""
    path = RESULTS / "forest_times.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    rows = [[f"{row['n']:,}", f"{row['fit']:.0f}"] for row in found["growth"]["rows"]]
    return [
        f"The forest of {found['n_trees']} trees on a part of houseelectric_2007h1, and on all of it; growth n^{found['growth']['slope']:.2f}. "
        f"10,000 rows of kin40k take {found['kin40k_10000_fit']:.0f} s, means at 100,000 new rows {found['means_100000']:.2f} s.",
        "",
        *tables.table(["rows", "fit, s"], rows),
        "",
        "`python -m bench.forest_times`",
        "",
    ]


def scaling_table():
    """Fit seconds by n and growth; prediction and memory at the largest n that worked."""
    found = scaling.read()
    rows = []
    for method in scaling.ALL:
        if method not in found:
            rows.append([method, *["not run"] * len(scaling.SIZES), "", "", ""])
            continue
        by_n = {row["n"]: row for row in found[method]}
        texts = []
        for n in scaling.SIZES:
            row = by_n.get(n)
            if row is None:
                texts.append("")
            elif row["status"] == "ok":
                texts.append(f"{row['fit_seconds']:.4g}")
            else:
                texts.append(ended(row))
        good = [row for row in found[method] if row["status"] == "ok"]
        grows = scaling.growth(found[method])
        last = good[-1] if good else {}
        gpu = last.get("machine", {}).get("gpu")
        memory = last.get("gpu_memory_peak" if gpu else "memory_peak")
        rows.append(
            [
                f"{method} (GPU)" if gpu else method,
                *texts,
                "" if grows is None else f"n^{grows:.2f}",
                f"{last['predict_seconds_per_million']:.1f}" if memory else "",
                f"{memory / 2**20:,.0f}" if memory else "",
            ]
        )
    head = ["", *(f"{n:,}" for n in scaling.SIZES), "growth from 10^4"]
    more = ("predict a million, s", "peak MiB (GPU: of the card)")
    return tables.table([*head, *more], rows)


def ended(row):
    """How a measurement that did not go well ended."""
    if row["status"] == "time-out":
        return f"> {row['limit_s']:.0f}"
    return "no memory" if "memory" in row.get("note", "").lower() else "failed"


def main(folder=DOCS):
    lines = [line for section in sections() for line in section]
    text = "\n".join(lines).rstrip() + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    plots.main(folder / "figures")
    (folder / "results.md").write_text(text)
    print(folder / "results.md")


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
