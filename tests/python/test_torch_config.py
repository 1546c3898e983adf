"""Where lossd.torch.RankingLoss has its config from, and what it says of one that is wrong."""

import math

import pytest
import torch
from lossd_process import LossdProcess
from ranks import BCE, fresh

import lossd
from lossd.torch import RankingLoss

LENGTHS = [3, 0, 4]
LABELS = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]])


def logits():
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"tasks": [{"name": "t", "losses": ["l2_loss"]}]}, "config.tasks[0].losses[0]: expected an object"),
        (BCE["tasks"], "config: expected an object, found an array"),
        ({"tasks": BCE["tasks"][0]}, "config.tasks: expected an array, found an object"),
        ({"tasks": ["t"]}, "config.tasks[0]: expected an object, found a string"),
        ({"tasks": [{"name": "t", "losses": [{"listwise_rank_loss": {"temperature_init": "warm"}}]}]},
         "config.tasks[0].losses[0].listwise_rank_loss.temperature_init: expected a number"),
        ("click", "config: expected an object"),
    ],
)  # fmt: skip
def test_a_config_of_the_wrong_types_is_told_where_it_is_wrong(config, said):
    with pytest.raises(lossd.Error) as caught:
        RankingLoss(config, lossd.Client("127.0.0.1:1", reconnect=0.001), group="g", rank=0, world_size=1)
    assert caught.value.reason == "BAD_CONFIG" and said in str(caught.value)


def test_a_temperature_out_of_range_is_told_by_the_daemon(daemon):
    config = {"tasks": [{"name": "t", "losses": [{"listwise_rank_loss": {"temperature_init": -1}}]}]}
    with pytest.raises(lossd.Error, match="temperature_init"):
        RankingLoss(config, lossd.Client(daemon.unix), group=fresh(), rank=0, world_size=1)


def test_a_declared_group_has_its_config_from_the_daemon():
    """Temperatures that are learned included: those that the file gives, and the default."""
    listwise = [{"name": n, "losses": [{"listwise_rank_loss": loss}]} for n, loss in
                [("a", {"temperature_init": 0.5}), ("b", {}), ("c", {"learnable_temperature": False})]]  # fmt: skip
    summed = {**BCE, "grad_reduce": "GRAD_REDUCE_SUM"}
    configs = {"listwise": {"tasks": listwise}, "sum": summed}
    daemon = LossdProcess({"groups": [{"name": n, "world_size": 1, "config": c} for n, c in configs.items()]})
    declared = RankingLoss(client=lossd.Client(daemon.unix), group="listwise", rank=0, world_size=1)
    given = RankingLoss(configs["listwise"], lossd.Client(daemon.unix), group="given", rank=0, world_size=1)
    assert list(declared.log_scale) == ["a", "b"]
    assert declared.client.config == given.client.config
    losses = [step(logits(), LABELS, LENGTHS) for step in (declared, given)]
    for step, loss in zip((declared, given), losses):
        loss.backward()
        step.leave()
    assert losses[0] == losses[1]
    for name, parameter in declared.log_scale.items():
        assert torch.equal(parameter, given.log_scale[name]) and torch.equal(parameter.grad, given.log_scale[name].grad)
    assert [float(p) for p in declared.parameters()] == pytest.approx([math.log(2), -math.log(0.07)])
    client = lossd.Client(daemon.unix)
    with pytest.raises(ValueError, match="GRAD_REDUCE_SUM"):
        RankingLoss(client=client, group="sum", rank=0, world_size=1)
    assert client.config is None  # it has left
    client.close()
    daemon.stop()
