"""docs/calibration.md and its plot, from the stored cells."""

from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from bench import battery_page
from bench.calibration import ESTIMATORS, LEVELS, OBSERVATIONS, mean_coverage, read, seeds_of
from bench.calibration_cases import CASES
from bench.measure import machine
from bench.tables import table

DOCS = Path(__file__).parents[1] / "docs"
READING = Path(__file__).with_name("calibration_reading.md")
POINTS = 5.0  # a coverage further off is marked
RATIO = 2.0  # so is a ratio beyond this, or below its inverse
PLACES = {"new": "at new inputs", "training": "at training inputs"}
VERSIONS = ("triegp", "numpy", "scipy", "scikit-learn", "numba")
PLOTTED = "heteroscedastic-*"


def main(folder=DOCS):
    text = "\n".join(line for section in sections() for line in section).rstrip() + "\n"
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    figure = draw_by_noise()
    figure.savefig(folder / "figures" / "calibration.svg", metadata={"Date": None})
    (folder / "calibration.md").write_text(text)
    print(folder / "calibration.md")


# What the cells say


def cells():
    """(case, estimator, cell) of all that is stored."""
    found = ((case, name, read(case.name, name)) for case in CASES for name in ESTIMATORS)
    return [entry for entry in found if entry[2] is not None]


def is_off(value, level, at_least=False):
    """Whether a coverage in per cent is off by more than POINTS, as it is shown."""
    off = round(value, 1) - level
    return off < -POINTS or (off > POINTS and not at_least)


def is_shown(case, place):
    """Whether a case has a row in the table of a place."""
    return place == "new" or case.training


def covered(case, cell, place):
    """[(level, coverage in per cent, whether it is marked)]; empty if not shown."""
    if cell is None or cell["status"] != "ok" or not is_shown(case, place):
        return []
    at_least = case.at_least and place == "new"
    found = mean_coverage([seed[place] for seed in cell["seeds"]])
    return [(c, value, is_off(value, c, at_least)) for c, value in found.items()]


def groups_of_noise(cell):
    """[(mean deviation, {level: coverage in per cent})], from the least noise to the most."""
    if cell is None or cell["status"] != "ok":
        return []
    groups = zip(*(seed["by_noise"] for seed in cell["seeds"]), strict=True)
    return [
        (float(np.mean([part["deviation"] for part in group])), mean_coverage(group))
        for group in groups
    ]


def latent_ratio(cell):
    """RMS deviation of the function over RMS error of the mean, at new inputs."""
    if cell is None or cell["status"] != "ok":
        return None
    parts = [np.mean([seed[key] for seed in cell["seeds"]]) for key in ("latent_ms", "error_ms")]
    return float(np.sqrt(parts[0] / parts[1]))


def ratio_is_off(ratio):
    """Whether a ratio is marked, as it is shown."""
    return not 1 / RATIO <= round(ratio, 2) <= RATIO


def failures():
    """[(case, estimator, text)] of the cells that have something marked."""
    out = []
    for case, name, cell in cells():
        if cell["status"] != "ok":
            out.append((case, name, f"raises {cell['note']}"))
            continue
        parts = []
        for place, where in PLACES.items():
            marked = [(c, value) for c, value, off in covered(case, cell, place) if off]
            if marked:
                parts.append(f"{where}: {listed(marked)}")
        for deviation, found in groups_of_noise(cell):
            marked = [(c, value) for c, value in found.items() if is_off(value, c)]
            if marked:
                parts.append(f"where the noise is {deviation:.2f}: {listed(marked)}")
        ratio = latent_ratio(cell)
        if ratio_is_off(ratio):
            parts.append(f"deviation of the function over error: {ratio:.2f}")
        if parts:
            out.append((case, name, "; ".join(parts)))
    return out


def listed(marked):
    return ", ".join(f"{value:.1f} for {c} %" for c, value in marked)


# Tables


def mark(text, off):
    return f"**{text}**" if off else text


def head_of(*first):
    return [*first, *(f"{name} {c} %" for name in ESTIMATORS for c in LEVELS)]


def texts_of(cell, entries):
    """Three texts: coverages, or what happened."""
    if cell is None:
        return ["not run"] * len(LEVELS)
    if cell["status"] != "ok":
        return ["failed"] * len(LEVELS)
    return [mark(f"{value:.1f}", off) for _, value, off in entries]


def coverage_table(group, place):
    """One row per case, both estimators."""
    rows = []
    for case in CASES:
        if case.group != group or not is_shown(case, place):
            continue
        row = [case.about]
        for name in ESTIMATORS:
            cell = read(case.name, name)
            row += texts_of(cell, covered(case, cell, place))
        rows.append(row)
    return table(head_of("case"), rows)


def noise_table():
    """One row per case and fifth of its noise."""
    rows = []
    for case in CASES:
        by_name = {name: read(case.name, name) for name in ESTIMATORS}
        known = {name: groups_of_noise(cell) for name, cell in by_name.items()}
        for i in range(max(map(len, known.values()))):
            deviation = next(groups[i][0] for groups in known.values() if groups)
            row = [case.about, f"{deviation:.2f}"]
            for name, groups in known.items():
                found = groups[i][1].items() if groups else ()
                entries = [(c, value, is_off(value, c)) for c, value in found]
                row += texts_of(by_name[name], entries)
            rows.append(row)
    return table(head_of("case", "noise"), rows)


def latent_table():
    """Deviation of the function over the error of the mean."""
    rows = []
    for case in CASES:
        row = [f"{case.group.lower()}: {case.about}"]
        for name in ESTIMATORS:
            cell = read(case.name, name)
            ratio = latent_ratio(cell)
            if ratio is None:
                row.append("not run" if cell is None else "failed")
            else:
                row.append(mark(f"{ratio:.2f}", ratio_is_off(ratio)))
        rows.append(row)
    return table(["case", *ESTIMATORS], rows)


# The reasons that a person wrote


def reasons():
    """[(patterns, lines)] from the sections of calibration_reading.md."""
    out = []
    for section in f"\n{READING.read_text()}".split("\n## ")[1:]:
        title, *lines = section.rstrip().splitlines()
        out.append((title.split(", "), lines))
    return out


def failure_sections():
    """Failures under the reason that is given for them, then those without one."""
    left = failures()
    if not left:
        yield ["Nothing is marked.", ""]
    for patterns, lines in reasons():
        here = [f for f in left if any(fnmatch(f"{f[0].name} {f[1]}", p) for p in patterns)]
        if not here:
            print(f"{READING.name}: nothing fails any more for {', '.join(patterns)}")
            continue
        left = [f for f in left if f not in here]
        yield ["\n".join(lines).strip(), "", *failure_table(here), ""]
    if left:
        yield ["No reason is written down for these:", "", *failure_table(left), ""]


def failure_table(some):
    rows = [[case.name, name, text.replace("|", "/")] for case, name, text in some]
    return table(["case", "estimator", "what is marked"], rows)


# The page


def sections():
    """The page, section by section, as lines."""
    stored = cells()
    where = stored[0][2]["machine"] if stored else machine()
    yield [
        "# Calibration",
        "",
        "**The promise.** An interval of `predict_interval(X, coverage=0.9)` contains a new observation at X with",
        "a probability of 90 %, and likewise for other coverages. This should hold at new inputs and at training",
        "inputs, where the noise is small and where it is large, for few rows and for many, with weights and",
        "copies, and after `partial_fit`.",
        "",
        "**How it is checked.** The data are synthetic, so that the function and the noise are known. In most cases",
        "y = sin(6 x0) + x1^2 + noise, with three uniform features, of which the last has no effect, and normal",
        "noise of standard deviation 0.3. Both estimators are fitted with their default settings. Fresh",
        f"observations are drawn from the true distribution, {OBSERVATIONS:,} per fit and place, and those in the 50,",
        "90 and 99 % intervals are counted. Inputs are either new, or training inputs that are observed once more.",
        "",
        "* B is `BinaryTreeGPRegressor`, F is `TrieGPRegressor`. Tables show coverage in per cent, as means over",
        f"  {seeds_text()}.",
        f"* **Bold** figures are more than {POINTS:g} points off. The draw of the observations gives one fit a",
        "  standard error of 1.1 points for 50 %, 0.7 for 90 % and 0.2 for 99 %.",
        '* "failed" means that the estimator raised an error, which is quoted under [where it fails](#where-it-fails).',
        f"* {', '.join(f'{name} {where[name]}' for name in VERSIONS if where.get(name))}.",
        "",
        "Run: `python -m bench calibration` measures what is not stored in `bench/results/calibration` and writes",
        "this page. `--cases CASE --estimators B --again` measures some cases again.",
        "",
        "The tables of the next section were measured on 2026-11-19, those after it on 2026-11-16, before the",
        "calibration was rewritten to learn from rows without their fold (both are version 0.1.0.dev0).",
        "",
    ]
    yield battery_page.section()
    for group in dict.fromkeys(case.group for case in CASES):
        yield [f"## {group}", ""]
        if any(case.at_least for case in CASES if case.group == group):
            yield ["Outside the training box only coverage that is too low is marked.", ""]
        for place, text in PLACES.items():
            yield [f"Coverage {text}:", "", *coverage_table(group, place), ""]
    yield [
        "## Coverage by noise",
        "",
        "In cases in which the noise varies: coverage at new inputs by fifth of the true standard deviation of the",
        'noise, or by its values if there are only two. "noise" is the mean deviation of the fifth.',
        "",
        *noise_table(),
        "",
        "![Coverage by fifth of the true noise deviation](figures/calibration.svg)",
        "",
        "## Deviation of the function",
        "",
        "`predict(X, return_std=True, latent=True)` returns the standard deviation of the function, without noise.",
        "The table divides its root mean square at new inputs by the root mean square error of the mean. 1 is",
        f"right; below 1 the deviation is too small. Ratios below {1 / RATIO:g} or above {RATIO:g} are bold.",
        "",
        *latent_table(),
        "",
        "## Where it fails",
        "",
    ]
    yield from failure_sections()


def seeds_text():
    """How many seeds the cases have."""
    counts = sorted({len(seeds_of(case)) for case in CASES}, reverse=True)
    return f"{counts[0]} seeds up to 100 rows, {counts[1]} up to 1,000, {counts[2]} beyond"


# The plot


def draw_by_noise():
    """Coverage against the true deviation, one panel per estimator."""
    from bench.plots import COLOURS, FAINT, new_figure

    figure, axes = new_figure(7.0, 3.4)
    figure.delaxes(axes)
    panels = figure.subplots(1, len(ESTIMATORS), sharey=True)
    for panel, name in zip(panels, ESTIMATORS, strict=True):
        for c in LEVELS:
            panel.axhline(c, color=FAINT, linewidth=0.8, linestyle=":")
        plotted = [case for case in CASES if fnmatch(case.name, PLOTTED)]
        for colour, case in zip(COLOURS, plotted, strict=False):
            groups = groups_of_noise(read(case.name, name))
            for c in LEVELS if groups else ():
                label = f"{case.n_rows:,} rows" if c == LEVELS[0] else None
                x, y = zip(*((deviation, found[c]) for deviation, found in groups), strict=True)
                panel.plot(x, y, color=colour, marker=".", linewidth=1, label=label)
        panel.set(title=name, xlabel="true standard deviation of the noise", ylim=(0, 102))
        panel.set_yticks([0, 25, *LEVELS])
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("observations in the interval, %")
    if panels[0].lines[len(LEVELS) :]:
        panels[0].legend(frameon=False, fontsize=8, loc="lower right")
    return figure
