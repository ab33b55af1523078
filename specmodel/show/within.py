"""What is carried within a target, in words: the largest batch, of alternatives too."""

from __future__ import annotations

from specmodel.answers.within import LargestBatches
from specmodel.show.facts import lines

_LINES = (
    "No batch meets {tpot_target:s}: least {least_tpot:s} at batch size {least_tpot_at}.",
    "Within {tpot_target:s} a token: batch size {largest_batch}{largest_batch.ends} with"
    " speculation, {throughput_within:.0f} tokens/s.",
    "Within {tpot_target:s} a token without speculation: batch size {largest_batch_plain}"
    "{largest_batch_plain.ends}, {throughput_within_plain:.0f} tokens/s.",
    "Next: {missed_at} takes longer.",
    "Next: {without_room_at} does not fit in memory.",
    "Under load: batches are steady here, in a simulation requests come and wait (specmodel load"
    " --tpot-target {tpot_target:s}).",
)
"""The headline of a target, and the facts below it."""
WITHIN = (
    "Within {tpot_target:s} a token, most per GPU: {carries_most},"
    " {throughput_per_gpu_within:.0f} tokens/s with {largest_batch_size} requests at once. Batches"
    " are steady here, in a simulation requests come and wait (--for-load).",
    "Within {within}, most per GPU: {carries_most}, {capacity_per_gpu} requests/s.",
)
NONE_WITHIN = "Within the target no alternative has a batch."
"""What is told of alternatives, and of those of which none meets the target."""


class Within(LargestBatches):
    """The largest batches within a target, and what is told of them."""

    def told(self) -> list[str]:
        """Return the headline and the lines below it; [] where nothing fits."""
        facts = self.facts()
        return lines(_LINES, facts) if len(facts) > 1 else []


within_target = Within.searched
