"""The largest batch within a time per token, in words."""

from __future__ import annotations

from specmodel.answers.within import LargestBatches
from specmodel.show.facts import lines

_LINES = (
    "No batch meets {tpot_target:s}: least {least_tpot:s} at batch size {least_tpot_at}.",
    "Within {tpot_target:s} a token: batch size {largest_batch}{largest_batch.ends} with"
    " speculation, {throughput_within:.0f} tokens/s.",
    "Within {tpot_target:s} a token without speculation: batch size {largest_batch_plain}"
    "{largest_batch_plain.ends}, {throughput_within_plain:.0f} tokens/s.",
    "Contexts: {context_within} with speculation, {context_within_plain} without.",
    "More tokens/s: {most_within:.0f} at batch size {most_within_at}.",
    "Next: {next_batch} takes {next_longer:.2%} longer.",
    "Next: {next_without_room} does not fit in memory.",
    "Tried: up to batch size {largest_tried}.",
    "Under load: batches are steady here, in a simulation requests come and wait (specmodel load"
    " --tpot-target {tpot_target:s}).",
)
"""The headline of a target, and the facts below it."""


class Within(LargestBatches):
    """The largest batches within a target, and what is told of them."""

    def told(self) -> list[str]:
        """Return the headline and the lines below it; [] where nothing fits."""
        facts = self.facts()
        return lines(_LINES, facts) if len(facts) > 1 else []


within_target = Within.searched
