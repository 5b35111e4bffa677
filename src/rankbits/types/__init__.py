"""What rooms pass to each other: Codes, Questions, Results, Ranking, Report, Evidence."""

from rankbits.types.codes import Codes, pack
from rankbits.types.decoder import Decoder
from rankbits.types.evidence import Evidence
from rankbits.types.questions import Questions
from rankbits.types.ranking import Ranking
from rankbits.types.report import Figure, Report
from rankbits.types.results import Results

__all__ = [
    "Codes",
    "Decoder",
    "Evidence",
    "Figure",
    "Questions",
    "Ranking",
    "Report",
    "Results",
    "pack",
]
