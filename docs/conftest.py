"""Programs of the site, and what it builds, hold no doctests."""

collect_ignore = ["conf.py", "_ext", "_build", "auto_examples", "api"]
