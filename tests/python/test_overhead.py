"""What Python may add to the C client: 5 us a call, and 1.3 times its call for a whole step of 10^5 x 3."""

import bench_overhead
import pytest
import torch


pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def figures(daemon):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    call = bench_overhead.overhead_of_a_call(daemon, rounds=15, repeats=100)
    step = bench_overhead.step_of_a_loop(daemon, rounds=15, repeats=5)
    torch.set_num_threads(threads)
    return bench_overhead.figures_of(call, step)


def test_a_call_costs_little_more_than_the_c_clients(figures, say):
    say(f"Client.compute over lossd_compute: {figures['call_overhead_us']:.2f} us")
    assert figures["call_overhead_us"] <= 5


def test_a_step_of_a_training_loop_costs_little_more_than_the_c_clients_call(figures, say):
    say(
        f"step() on 10^5 candidates x 3 tasks / the C client's call: {figures['step_ratio']:.2f} with the same columns "
        f"copied in, {figures['step_ratio_without_copy']:.2f} with none"
    )
    assert figures["step_ratio"] <= 1.3
