"""Published measurements of whole engines: read, predicted and judged."""

from specmodel.calibrate.serving.first_token import judge_first_tokens
from specmodel.calibrate.serving.judge import judge_serving, serving_errors
from specmodel.calibrate.serving.tables import ServingTable, read_serving

__all__ = ["ServingTable", "judge_first_tokens", "judge_serving", "read_serving", "serving_errors"]
