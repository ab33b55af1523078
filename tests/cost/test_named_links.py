"""Links between small boxes, by name: what they take, beside published numbers; who is refused."""

import numpy as np
import pytest
from printed import refused
from rows import listed, one_case

from specmodel import deploy, load_hardware, predict
from specmodel.core.algebra.collectives import all_reduce_time
from specmodel.core.cost.passes import links_of
from specmodel.core.machines.hardware import LINKS

QWEN = {"target": "qwen3-30b-a3b", "drafter": None, "batch_size": 1, "draft_length": 0}


def all_reduce(name, num_gpus, size, gpu="gb10"):
    links = links_of(load_hardware(gpu).joined_by(name), "vllm")
    return float(all_reduce_time(size, num_gpus, links.link.peak_bytes_per_s, links.all_reduce))


def pass_time(**arguments):
    return float(predict(**QWEN | arguments).forward_time.item())


@listed
def test_an_all_reduce_of_two_gb10_takes_what_was_measured(size, seconds):
    assert all_reduce("roce-200g", 2, size) == pytest.approx(np.mean(seconds), rel=0.15)


def test_a_ring_of_more_boxes_waits_for_more_hops():
    link = LINKS["roce-200g"]
    for boxes in (2, 4, 8):
        waits = link["collective_latency"] + 2 * (boxes - 1) * link["hop_latency"]
        assert all_reduce("roce-200g", boxes, 0) == pytest.approx(waits, rel=1e-12)


@one_case("name", *LINKS)
def test_each_link_has_what_a_link_needs(name):
    joined = load_hardware("strix_halo").joined_by(name)
    assert joined.link.kind == "network"
    assert 2 <= joined.link.num_gpus <= 256
    assert 1e-6 <= joined.link.hop_latency <= 1e-3
    for other in (name.upper(), name.replace("-", " "), *LINKS[name]["others"].split()):
        assert load_hardware("strix_halo").joined_by(other) == joined


@listed
def test_small_boxes_are_predicted_with_a_link(hardware, link, boxes):
    one = pass_time(hardware=hardware)
    several = pass_time(hardware=f"{boxes}x{hardware}", link=link, tensor_parallel=boxes)
    waits = 2 * 48 * all_reduce(link, boxes, 0)  # after attention and experts of each layer
    assert several > waits + 0.5 * one / boxes


def test_what_ifs_change_the_link_that_was_named():
    where = {"hardware": "2xstrix_halo", "link": "usb4", "tensor_parallel": 2}
    slower = pass_time(**where, changes={"hardware.link.hop_latency": 1e-3})
    hops = 2 * 48 * 2  # there and back, after attention and experts of each layer
    assert slower - pass_time(**where) >= hops * (1e-3 - 6.5e-5) * 0.999


def test_slower_links_take_longer():
    names = ("roce-200g", "usb4-rdma", "usb4", "10gbe")
    times = [pass_time(hardware="2xgb10", tensor_parallel=2, link=name) for name in names]
    assert times == sorted(times)
    assert len({*times}) == len(times)


def test_of_boxes_with_several_gpus_it_is_the_network_between_them():
    within = load_hardware("rtx_4090")
    joined = within.joined_by("25gbe")
    assert joined.link == within.link
    assert within.network is None
    assert joined.network.peak_bytes_per_s == pytest.approx(3.125e9 * 0.95)
    where = {"hardware": "rtx_4090", "link": "25gbe"}
    apart, _ = deploy(target="llama-3.1-70b", tensor_parallel=16, **where)
    assert apart.hardware.network == joined.network
    assert pass_time(hardware="4xrtx_4090", tensor_parallel=4, link="25gbe") == pass_time(
        hardware="4xrtx_4090", tensor_parallel=4
    )


@listed
def test_what_nothing_joins_is_refused_with_the_way_out(hardware, degree, link, told):
    arguments = {"link": link} if link is not None else {}
    where = {"target": "qwen3-32b", "hardware": hardware, "tensor_parallel": degree}
    refused(told, deploy, **where, **arguments)
