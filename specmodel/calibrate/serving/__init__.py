"""Measurements of whole engines, published or a user's own: read, predicted and judged."""

from specmodel.calibrate.serving.benchmarks import read_benchmarks
from specmodel.calibrate.serving.first_token import judge_first_tokens
from specmodel.calibrate.serving.judge import judge_serving, serving_errors
from specmodel.calibrate.serving.runs import Run, check_model, need_plain, served_runs
from specmodel.calibrate.serving.tables import ServingTable, read_serving

__all__ = [
    "Run",
    "ServingTable",
    "check_model",
    "judge_first_tokens",
    "judge_serving",
    "need_plain",
    "read_benchmarks",
    "read_serving",
    "served_runs",
    "serving_errors",
]
