import torch

from tunesmith.objectives.router_loss import router_loss_weight, weigh_router_loss


def test_router_loss_is_weighted_by_items():
    part = weigh_router_loss({"aux_loss": torch.tensor(3.0)}, torch.tensor(4), 0.5)
    assert part.item() == 6.0  # 0.5 * 3 * 4
    assert weigh_router_loss({}, torch.tensor(4), 0.5) == 0.0


def test_router_loss_only_counts_where_the_model_reports_it():
    assert router_loss_weight({"router_aux_loss_coef": 0.01, "output_router_logits": True}) == 0.01
    assert router_loss_weight({"router_aux_loss_coef": 0.01}) == 0.0
    assert router_loss_weight({}) == 0.0
