"""Run the property tests with new seeds until the time is over.

    python tools/fuzz.py --seconds 300      new seeds, every one printed
    python tools/fuzz.py --seed 123         one run with this seed

Each run takes one seed: hypothesis draws its examples from it, and the files are run in an order
that it decides, so that a run cut off by the clock does not always leave out the same tests. The
first failure ends everything, with the command that repeats it.
"""

from __future__ import annotations

import argparse
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
GRACE = 20.0  # seconds to end a test that was interrupted


def property_files() -> list[str]:
    """Test files with hypothesis in them, relative to the repository."""
    return sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if "from hypothesis import" in path.read_text()
    )


def command_of(seed: int) -> list[str]:
    """The pytest command that runs all property tests with this seed."""
    files = property_files()
    random.Random(seed).shuffle(files)
    options = ["-q", "-x", "-m", "hypothesis", "--hypothesis-profile=fuzz"]
    return [sys.executable, "-m", "pytest", *options, f"--hypothesis-seed={seed}", *files]


def run(seed: int, seconds: float | None) -> int | None:
    """Exit status of one run; None if the time was over before it was."""
    process = subprocess.Popen(command_of(seed), cwd=ROOT)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            status = process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return status if status == 1 else None  # 1: a test had failed before


def main() -> int:
    """Loop over seeds; 1 after a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="for how long (300)")
    parser.add_argument("--seed", type=int, help="one run with this seed, however long it takes")
    options = parser.parse_args()
    if options.seed is not None:
        return run(options.seed, None) or 0
    deadline = time.monotonic() + options.seconds
    seeds: list[int] = []
    status: int | None = 0
    while (left := deadline - time.monotonic()) > 0:
        seeds.append(secrets.randbits(32))
        print(f"\nfuzz: seed {seeds[-1]}, {left:.0f} s left", flush=True)
        status = run(seeds[-1], left)
        if status:
            print(f"\nfuzz: failed with seed {seeds[-1]}. Repeat it with\n")
            print(f"    make fuzz SEED={seeds[-1]} CASES=0\n")
            print("or add the decorator @reproduce_failure(...) that is printed above to the test.")
            return 1
    print(f"\nfuzz: no failure. Seeds: {' '.join(map(str, seeds))}")
    if status is None:
        print("fuzz: the last one was cut off by the clock")
    return 0


if __name__ == "__main__":
    sys.exit(main())
