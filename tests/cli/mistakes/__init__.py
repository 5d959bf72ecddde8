"""User mistakes, by command."""

from mistakes.of_others import BENCH, INSPECT, UNITS_COMMAND
from mistakes.of_prepare import PREPARE
from mistakes.of_runs import EVAL, SAMPLE
from mistakes.of_train import TRAIN

MISTAKES = {**PREPARE, **TRAIN, **EVAL, **SAMPLE, **INSPECT, **UNITS_COMMAND, **BENCH}
"""Command -> exit status and error line, without the leading "seqmodel: "."""
