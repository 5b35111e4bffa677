"""Compare runs, codes and reports: tables, drawings and one self-contained page."""

from rankbits.report.comparison import Comparison, Pair, compare
from rankbits.report.cost import Cost
from rankbits.report.entries import Entry, read_entry
from rankbits.report.groups import Group, group_entries
from rankbits.report.significance import Difference, compare_paired, correct_by_holm
from rankbits.report.statistics import Statistics, measure_codes

__all__ = [
    "Comparison",
    "Cost",
    "Difference",
    "Entry",
    "Group",
    "Pair",
    "Statistics",
    "compare",
    "compare_paired",
    "correct_by_holm",
    "group_entries",
    "measure_codes",
    "read_entry",
]
