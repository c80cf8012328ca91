"""`python -m triegp` is the command `triegp`."""

from triegp.cli import main

if __name__ == "__main__":
    main()
