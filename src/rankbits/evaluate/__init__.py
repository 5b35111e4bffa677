"""Judge rankings by labels."""

from rankbits.evaluate.judge import evaluate, evaluate_run

__all__ = ["evaluate", "evaluate_run"]
