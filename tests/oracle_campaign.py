"""Many random cases against dense algebra: which kind a seed is, and the worst errors so far."""

from dataclasses import dataclass, field

import numpy as np

from oracle_cases import check_case, draw_case, draw_single
from oracle_forests import check_forest, check_smooth, draw_forest, draw_smooth_case
from oracle_models import check_model, draw_model

KINDS = {  # share of the cases
    "tree": (0.79, draw_case, check_case),
    "float32": (0.1, draw_single, check_case),
    "forest": (0.06, draw_forest, check_forest),
    "model": (0.03, draw_model, check_model),
    "smooth": (0.02, draw_smooth_case, check_smooth),
}


def draw(seed):
    """The case of a seed, and what checks it."""
    shares = [share for share, _, _ in KINDS.values()]
    kind = np.random.default_rng([seed, 1]).choice(list(KINDS), p=shares)
    _, make, check = KINDS[kind]
    return make(seed), check


@dataclass
class Worst:
    """Errors of one quantity."""

    cases: int = 0
    error: float = 0.0
    seed: int = -1
    limit: float = 0.0


@dataclass
class Tally:
    """The worst error of each quantity, by what it was judged by."""

    found: dict = field(default_factory=dict)

    def add(self, seed):
        """Check the case of a seed; returns the lines that say what failed."""
        case, check = draw(seed)
        failures = []
        for quantity, reference, error, limit in check(case):
            worst = self.found.setdefault((quantity, reference), Worst(limit=limit))
            worst.cases += 1
            if error > worst.error or worst.seed < 0:
                worst.error, worst.seed = error, seed
            if not error <= limit:
                failures.append(f"{quantity}: {error:.2g} > {limit:g} ({case.describe()})")
        return failures

    def table(self):
        """Lines of Markdown, one per quantity and reference."""
        lines = [
            "| quantity | reference | cases | worst error | limit | seed of the worst |",
            "|---|---|--:|--:|--:|--:|",
        ]
        for (quantity, reference), worst in sorted(self.found.items()):
            cells = [
                f"{worst.cases:,}",
                f"{worst.error:.1e}",
                f"{worst.limit:.0e}",
                f"{worst.seed}",
            ]
            if ":" in quantity and worst.error == 0.0:
                cells[1:] = ["0", "0", "any"]
            lines.append("| " + " | ".join([quantity, reference, *cells]) + " |")
        return lines
