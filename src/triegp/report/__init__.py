"""Reports: one HTML file that explains a fitted model to a person."""

from triegp.report.write import write_report

__all__ = ["write_report"]
