"""Where labels meet rankings."""

from rankbits.evaluate.judge import evaluate, evaluate_run, h2q_average_precision

__all__ = ["evaluate", "evaluate_run", "h2q_average_precision"]
