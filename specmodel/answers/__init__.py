"""Answers that a deployment needs, from predictions: pure functions and the records they return."""

from specmodel.answers.fragments import FORMATS, Format
from specmodel.answers.schedule import Schedule, draft_length_schedule, runs

__all__ = ["FORMATS", "Format", "Schedule", "draft_length_schedule", "runs"]
