"""Known vulnerabilities of what is installed in an environment, by pip-audit.

    python tools/audit.py AUDIT_PYTHON SITE_PACKAGES

AUDIT_PYTHON is a Python with pip-audit, SITE_PACKAGES the folder to look at. Exits with 1 if there
is a vulnerability, and with 2 if there is none known but some packages could not be looked up, as
all without a network: that is no result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

OURSELVES = "triegp"


def report(found: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Lines to print, and the number of vulnerabilities; found: pip-audit's "dependencies"."""
    others = [one for one in found if one["name"] != OURSELVES]
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in "
        f"{', '.join(flaw.get('fix_versions', [])) or 'no version'}"
        for one in others
        for flaw in one.get("vulns", [])
    ]
    n_flaws = len(lines)
    skipped = [one["name"] for one in others if "skip_reason" in one]
    lines.append(f"{len(others) - len(skipped)} packages audited, {n_flaws} vulnerabilities")
    if skipped:
        lines.append(f"NOT AUDITED, {len(skipped)} packages: {', '.join(sorted(skipped))}")
    return lines, n_flaws


def main() -> int:
    """Run pip-audit and print what it found."""
    python, folder = sys.argv[1:]
    command = [python, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run([*command, "--path", folder], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        print(f"NOT AUDITED: pip-audit ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return 2
    lines, n_flaws = report(found)
    print("\n".join(lines))
    if n_flaws:
        return 1
    return 2 if lines[-1].startswith("NOT AUDITED") else 0


if __name__ == "__main__":
    sys.exit(main())
