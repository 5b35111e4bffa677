"""The first two minutes: turn digits or texts into bits with commands that can be copied."""

from rankbits.quickstart.digits import digits_service, quickstart, tie_blind_map
from rankbits.quickstart.texts import quickstart_texts

__all__ = ["digits_service", "quickstart", "quickstart_texts", "tie_blind_map"]
