"""Random cases against dense algebra, with new seeds every time.

    python tools/oracle_fuzz.py                    100,000 cases from a new seed, which is printed
    python tools/oracle_fuzz.py --seed 123         the same cases again: seeds 123, 124, ...
    python tools/oracle_fuzz.py --seed 456 --cases 1        one case
    python tools/oracle_fuzz.py --seconds 300      as many cases as there is time for

What is drawn and computed is in `tests/oracle_cases.py` and `tests/oracle_forests.py`, how errors
are measured in `tests/oracle_reference.py`. The table at the end has the worst error of each
quantity. A failure ends everything, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import importlib
import math
import secrets
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TELL_EVERY = 60.0  # seconds


def main() -> int:
    """Check the cases; 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000, help="how many (100,000)")
    parser.add_argument("--seed", type=int, help="seed of the first case (a new one)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for how long (no limit)")
    options = parser.parse_args()
    first = secrets.randbits(32) if options.seed is None else options.seed
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    importlib.import_module("conftest")  # the simulator, one thread for BLAS, the cache of kernels
    campaign = importlib.import_module("oracle_campaign")
    warnings.simplefilter("error")
    return run(campaign.Tally(), first, options.cases, options.seconds)


def run(tally: Any, first: int, n_cases: int, seconds: float = math.inf) -> int:
    """Check so many cases, or as many as there is time for, and print the table.

    Returns 1 after a failure.
    """
    print(f"oracle: seeds {first} to {first + n_cases - 1}", flush=True)
    start = told = time.monotonic()
    done = 0
    for seed in range(first, first + n_cases):
        try:
            failures = tally.add(seed)
        except Exception:
            failures = [traceback.format_exc()]
        if failures:
            print("\n".join(tally.table()))
            print(f"\noracle: failed with seed {seed}\n")
            print("\n".join(failures))
            print("\nRepeat it with\n")
            print(f"    python tools/oracle_fuzz.py --seed {seed} --cases 1\n")
            return 1
        done += 1
        now = time.monotonic()
        if now - start > seconds:
            break
        if now - told > TELL_EVERY:
            told = now
            print(f"oracle: {done:,} cases, {now - start:.0f} s", flush=True)
    print("\n".join(tally.table()))
    print(f"\noracle: seeds {first} to {first + done - 1}")
    print(f"oracle: no failure in {done:,} cases, {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
