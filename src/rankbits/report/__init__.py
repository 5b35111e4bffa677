"""Tables, drawings and one self-contained page of judged runs, codes and reports."""

from rankbits.report.comparison import Compared, Comparison, compare
from rankbits.report.cost import Cost
from rankbits.report.entries import Entry, read
from rankbits.report.groups import Group, grouped
from rankbits.report.seen import Seen, look
from rankbits.report.significance import Difference, difference, holm

__all__ = [
    "Compared",
    "Comparison",
    "Cost",
    "Difference",
    "Entry",
    "Group",
    "Seen",
    "compare",
    "difference",
    "grouped",
    "holm",
    "look",
    "read",
]
