"""Draws preference_losses.svg: what each loss of stage dpo says of a pair, by how far apart the pair is.

Run from the top of a checkout: `python docs/figures/preference_losses.py`.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from tunesmith.objectives.losses import preference as losses

MARGINS = torch.linspace(-40.0, 60.0, 401)
"""Log-ratio of the chosen completion minus that of the rejected one, in nats."""

BETA = 0.1


def draw() -> Figure:
    """Return the figure: losses of the margin on the left, of each completion alone on the right."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(MARGINS, losses.sigmoid_loss(MARGINS, beta=BETA), label="sigmoid (DPO)", linewidth=2.2)
    left.plot(MARGINS, losses.sigmoid_loss(MARGINS, beta=BETA, label_smoothing=0.1), label="sigmoid, smoothing 0.1")
    left.plot(MARGINS, losses.robust_loss(MARGINS, beta=BETA, label_smoothing=0.1), label="robust, 0.1")
    left.plot(MARGINS, losses.hinge_loss(MARGINS, beta=BETA), label="hinge")
    left.plot(MARGINS, losses.discopop_loss(MARGINS, beta=BETA, tau=0.05), label="discopop", linestyle="--")
    # For completions of 20 tokens each: the margin per token is a 20th of that of the whole, and beta is as small.
    left.plot(MARGINS, losses.ipo_loss(MARGINS / 20, beta=0.5), label="ipo, 20 tokens, beta 0.5", linestyle=":")
    left.set_xlabel("margin of the pair (nats)")
    left.set_ylabel("loss")
    left.set_ylim(-0.3, 4.5)
    nothing = torch.zeros_like(MARGINS)
    right.plot(MARGINS, losses.bco_pair_loss(MARGINS, nothing, beta=BETA), label="bco_pair")
    right.plot(MARGINS, losses.apo_zero_loss(MARGINS, nothing, beta=BETA), label="apo_zero")
    right.plot(MARGINS, losses.apo_down_loss(nothing, MARGINS, beta=BETA), label="apo_down, of the rejected one")
    kl = torch.zeros(())
    desirable = torch.ones_like(MARGINS, dtype=torch.bool)
    right.plot(MARGINS, losses.kto_loss(MARGINS, desirable, kl, beta=BETA), label="kto, desirable", linestyle="--")
    right.plot(MARGINS, losses.kto_loss(MARGINS, ~desirable, kl, beta=BETA), label="kto, undesirable", linestyle="--")
    right.set_xlabel("log-ratio of the completion alone (nats)")
    right.set_ylim(-0.1, 3.0)
    for axes in (left, right):
        axes.axvline(0.0, color="#bbbbbb", linewidth=0.8)
        axes.legend(frameon=False, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    draw().savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})
