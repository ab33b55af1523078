"""A kind of layer that is not attention: a record of its own, and nothing else knows it."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused

from specmodel import eagle_drafter, load_architecture, mtp_drafter
from specmodel.core.cost import pass_work
from specmodel.core.layers import LayerGroup, Layout, Work, sequence_group
from specmodel.core.layers.parts import TokenMixer


class Recurrence(TokenMixer, frozen=True, kw_only=True, tag="recurrence"):
    """Channels with a state of their own, whatever the context, cut over GPUs one by one."""

    channels: int = 512
    for_head = None

    def cuts(self, degree):
        return not self.channels % degree

    def weights(self, hidden_size, tensor_parallel=1):
        return hidden_size * self.channels / tensor_parallel

    def sequence_bytes(self, entries, stream, tensor_parallel):
        return 0 * entries + self.channels / tensor_parallel * 4.0

    def work(self, run, layers):
        state = self.sequence_bytes(np.ones(()), run.stream, 1)
        read = run.replica.num_sequences * (float(state) * layers)
        return {"recurrence": Work(cache_bytes=read, kernels=layers, kind="attention")}


def with_layers(*layers):
    return replace(load_architecture("gpt-oss-20b"), layers=layers)


RECURRENT = LayerGroup(count=3, mixer=Recurrence())
HYBRID = with_layers(RECURRENT, *load_architecture("gpt-oss-20b").layers)


def test_its_state_and_work_are_part_of_the_model():
    plain = load_architecture("gpt-oss-20b")
    assert HYBRID.num_layers == plain.num_layers + 3
    assert HYBRID.sequence_bytes(1000.0) - plain.sequence_bytes(1000.0) == 3 * 512 * 4
    work = pass_work(HYBRID, sequence_group(batch_size=4, context_length=1000))
    assert work.components["recurrence"].cache_bytes == 4 * 3 * 512 * 4
    assert HYBRID.total_parameters - plain.total_parameters == 3 * 2880 * (512 + 1)


def test_layout_that_does_not_cut_it_is_refused_without_heads():
    refused(r"tensor_parallel: got 3; .*recurrence .*: 1, 2, 4, 8", HYBRID.check_layout, Layout(3))


@pytest.mark.parametrize("build", [eagle_drafter, mtp_drafter])
def test_a_head_takes_the_attention_of_a_hybrid_wherever_it_stands(build):
    """There must be some."""
    (head,) = build(HYBRID).architectures
    attention = next(iter(load_architecture("gpt-oss-20b").mixers))
    assert list(head.mixers) == [replace(attention, window=None)]
    block = LayerGroup(count=1, feed_forward=HYBRID.layers[1].feed_forward)
    refused(r"target: got 'gpt-oss-20b'; .*with attention", build, with_layers(RECURRENT, block))
