"""Print the lower bounds of a pyproject.toml as pip constraints: `numpy>=1.26` as `numpy==1.26`."""

import sys
import tomllib
from pathlib import Path


def main(path: str) -> None:
    """Print one constraint a line, for the core and all extras."""
    project = tomllib.loads(Path(path).read_text())["project"]
    extras = project["optional-dependencies"]
    everything = [*project["dependencies"], *(r for extra in extras.values() for r in extra)]
    for requirement in everything:
        name, _, bound = requirement.partition(">=")
        if bound:  # constraints know no extras
            print(f"{name.partition('[')[0]}=={bound}")


if __name__ == "__main__":
    main(sys.argv[1])
