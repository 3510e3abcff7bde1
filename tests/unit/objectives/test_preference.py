import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.preferences import FixedReference, tiny_objective, uneven_pairs
from tunesmith.config.preference import PREFERENCE_LOSSES, REFERENCE_FREE_LOSSES
from tunesmith.data.batches import BOOKKEEPING_KEYS
from tunesmith.data.collators import build_collator
from tunesmith.data.collators.completions import split_pair
from tunesmith.evaluation.perplexity import measure_loss
from tunesmith.objectives.losses.preference import sigmoid_loss
from tunesmith.objectives.means import complete_step, mean_tensors
from tunesmith.objectives.preference import is_reference_free

ROWS = uneven_pairs(5)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama").train()


@pytest.fixture(scope="module")
def other():
    return tiny_model("llama", seed=4)


def batch_of(rows=ROWS, layout="padded"):
    batch = build_collator(layout, kind="pairs", pad_token_id=417)(rows)
    return {key: value for key, value in batch.items() if key not in BOOKKEEPING_KEYS}


def compute(objective, model, batch):
    """As the trainer does: measure the step first."""
    return objective.compute(model, complete_step(objective, model, batch))


def slow_log_probabilities(model, sequence):
    """One sequence, whole logits, one token after the other."""
    ids = torch.from_numpy(sequence["input_ids"]).long()
    with torch.no_grad():
        log_probabilities = model(input_ids=ids[None]).logits[0].log_softmax(dim=-1)
    start, end = sequence["trained_spans"]
    return [log_probabilities[place - 1, ids[place]].item() for place in range(start, end)]


def mean(found, name):
    return (found.means[name].total / found.means[name].count).item()


def test_the_loss_is_that_of_log_probabilities_taken_one_by_one(model, other):
    objective = tiny_objective(model, reference=FixedReference(other), pref_beta=0.4)
    found = compute(objective, model, batch_of())
    total, margins, chosen_rewards = 0.0, [], []
    for row in ROWS:
        ratios = [
            sum(slow_log_probabilities(model, sequence)) - sum(slow_log_probabilities(other, sequence))
            for sequence in split_pair(row)
        ]
        margins.append(0.4 * (ratios[0] - ratios[1]))
        chosen_rewards.append(0.4 * ratios[0])
        total += math.log1p(math.exp(-margins[-1]))
    assert found.total.item() == pytest.approx(total, abs=1e-4)
    assert found.items == 5
    assert mean(found, "rewards/margins") == pytest.approx(sum(margins) / 5, abs=1e-4)
    assert mean(found, "rewards/accuracies") == pytest.approx(sum(margin > 0 for margin in margins) / 5)
    assert mean(found, "rewards/chosen") == pytest.approx(sum(chosen_rewards) / 5, abs=1e-4)
    expected = [sum(slow_log_probabilities(model, split_pair(row)[1])) for row in ROWS]
    assert mean(found, "logps/rejected") == pytest.approx(sum(expected) / 5, abs=1e-4)


def test_logits_and_entropy_are_means_over_tokens(model):
    found = compute(tiny_objective(model), model, batch_of())
    sums = {"chosen": [0.0, 0], "rejected": [0.0, 0]}
    entropy = 0.0
    for row in ROWS:
        for kind, sequence in zip(sums, split_pair(row), strict=True):
            start, end = sequence["trained_spans"]
            with torch.no_grad():
                logits = model(input_ids=torch.from_numpy(sequence["input_ids"]).long()[None]).logits[
                    0, start - 1 : end - 1
                ]
            sums[kind][0] += logits.mean(dim=-1).sum().item()
            sums[kind][1] += end - start
            entropy += torch.distributions.Categorical(logits=logits).entropy().sum().item()
    assert mean(found, "logits/chosen") == pytest.approx(sums["chosen"][0] / sums["chosen"][1], abs=1e-5)
    assert mean(found, "logits/rejected") == pytest.approx(sums["rejected"][0] / sums["rejected"][1], abs=1e-5)
    assert mean(found, "entropy") == pytest.approx(entropy / (sums["chosen"][1] + sums["rejected"][1]), abs=1e-5)


def twin(row):
    """The row with its chosen completion on both sides."""
    chosen = row["input_ids"][row["prompt_end"] : row["chosen_end"]]
    ids = [*row["input_ids"][: row["chosen_end"]], *chosen]
    end = row["chosen_end"]
    spans = np.array([row["prompt_end"], end, end, len(ids)], dtype=np.int32)
    return {**row, "input_ids": np.array(ids, dtype=np.int32), "trained_spans": spans}


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_an_identical_pair_gives_exactly_log_2_and_no_gradient(model, layout):
    batch = batch_of([twin(ROWS[0])], layout)
    model.zero_grad()
    found = compute(tiny_objective(model), model, batch)
    assert found.total.item() == torch.tensor(2.0).log().item()
    found.total.backward()
    largest = max(parameter.grad.abs().max().item() for parameter in model.parameters())
    assert largest < 1e-6 if layout == "padded" else largest < 1e-4  # one line is rounded differently from another


def test_an_identical_pair_moves_neither_completion():
    """On the level of scores the gradient is nothing, not only nearly so."""
    chosen = torch.tensor([-3.0], requires_grad=True)
    sigmoid_loss(chosen - chosen, beta=0.1).sum().backward()
    assert chosen.grad.item() == 0.0


def test_a_policy_that_is_its_reference_has_a_loss_of_log_2(model):
    found = compute(tiny_objective(model), model, batch_of())
    assert found.total.item() / 5 == pytest.approx(math.log(2), abs=1e-6)
    assert mean(found, "rewards/margins") == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", PREFERENCE_LOSSES)
def test_every_loss_can_be_learnt_and_adds_up(model, other, name):
    smoothing = {"dpo_label_smoothing": 0.1} if name in ("exo", "robust") else {}
    objective = tiny_objective(model, reference=FixedReference(other), pref_loss=(name,), **smoothing)
    model.zero_grad()
    whole = compute(objective, model, batch_of())
    whole.total.backward()
    assert any(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    if name != "kto_pair":  # which looks at the whole step
        parts = [compute(objective, model, batch_of([row])).total for row in ROWS]
        torch.testing.assert_close(sum(parts), whole.total, atol=1e-4, rtol=1e-5)
    free = objective.reference is None
    assert free is (name in REFERENCE_FREE_LOSSES) is is_reference_free(objective.config)


def test_losses_are_added_up_with_their_weights(model, other):
    def total(**settings):
        return compute(tiny_objective(model, reference=FixedReference(other), **settings), model, batch_of()).total

    both = total(pref_loss=("hinge", "ipo"), pref_loss_weights=(2.0, 0.5))
    torch.testing.assert_close(both, 2.0 * total(pref_loss=("hinge",)) + 0.5 * total(pref_loss=("ipo",)))
    mixed = total(pref_bco_weight=3.0)
    torch.testing.assert_close(mixed, (total() + 3.0 * total(pref_loss=("bco_pair",))) / 4.0)


def test_fine_tuning_on_the_side_is_the_mean_over_the_tokens_of_each_chosen_completion(model):
    plain, with_side = (
        compute(tiny_objective(model, pref_ftx=weight), model, batch_of()).total for weight in (0.0, 2.0)
    )
    expected = 0.0
    for row in ROWS:
        values = slow_log_probabilities(model, split_pair(row)[0])
        expected -= 2.0 * sum(values) / len(values)
    assert (with_side - plain).item() == pytest.approx(expected, abs=1e-4)


def test_length_discounts_weigh_what_only_the_longer_completion_has(model, other):
    objective = tiny_objective(model, reference=FixedReference(other, ld_alpha=0.25), ld_alpha=0.25, pref_beta=1.0)
    found = compute(objective, model, batch_of())
    margins = []
    for row in ROWS:
        mine, theirs = ([slow_log_probabilities(each, side) for side in split_pair(row)] for each in (model, other))
        shared = min(map(len, mine))
        sums = []
        for own, reference in zip(mine, theirs, strict=True):
            ratios = [a - b for a, b in zip(own, reference, strict=True)]
            sums.append(sum(ratios[:shared]) + 0.25 * sum(ratios[shared:]))
        margins.append(sums[0] - sums[1])
    assert mean(found, "rewards/margins") == pytest.approx(sum(margins) / 5, abs=1e-4)


def test_length_normalisation_makes_a_token_the_measure(model, other):
    settings = {"pref_length_normalization": True, "pref_beta": 2.0}
    found = compute(tiny_objective(model, reference=FixedReference(other), **settings), model, batch_of())
    total = 0.0
    for row in ROWS:
        means = []
        for sequence in split_pair(row):
            values = slow_log_probabilities(model, sequence)
            means.append((sum(values) - sum(slow_log_probabilities(other, sequence))) / len(values))
        total += math.log1p(math.exp(-2.0 * (means[0] - means[1])))
    assert found.total.item() == pytest.approx(total, abs=1e-4)


def test_losses_that_know_means_alone_show_means(model):
    found = compute(tiny_objective(model, pref_loss=("simpo",), pref_beta=2.0), model, batch_of())
    values = [slow_log_probabilities(model, split_pair(row)[0]) for row in ROWS]
    expected = sum(sum(each) / len(each) for each in values) / 5
    assert mean(found, "logps/chosen") == pytest.approx(expected, abs=1e-4)
    assert mean(found, "rewards/chosen") == pytest.approx(2.0 * expected, abs=1e-4)


def test_router_losses_are_kept():
    settings = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "output_router_logits": True}
    model = tiny_model("qwen3_moe", head_dim=8, router_aux_loss_coef=0.5, **settings).train()
    with_router = compute(tiny_objective(model), model, batch_of())
    model.config.router_aux_loss_coef = 0.0
    without = compute(tiny_objective(model), model, batch_of())
    assert with_router.total > without.total
    model.eval()
    measured = compute(tiny_objective(model), model, batch_of())
    assert measured.total.item() == pytest.approx(without.total.item(), abs=1e-4)


def test_models_whose_head_cannot_be_taken_apart_give_the_same(model, other):
    objective = tiny_objective(model, reference=FixedReference(other))
    whole = replace(
        objective, scorer=replace(objective.scorer, head=replace(objective.scorer.head, is_separable=False))
    )
    expected, found = (compute(each, model, batch_of()) for each in (objective, whole))
    torch.testing.assert_close(found.total, expected.total, atol=1e-5, rtol=1e-5)
    assert mean(found, "entropy") == pytest.approx(mean(expected, "entropy"), abs=1e-5)


class Counter:
    """Counts how often a model is run, and whether for a gradient."""

    def __init__(self, *models):
        self.runs = {"with gradient": 0, "without": 0}
        self.handles = [each.register_forward_pre_hook(self._note) for each in models]

    def _note(self, module, arguments):
        self.runs["with gradient" if torch.is_grad_enabled() else "without"] += 1

    def __enter__(self):
        return self.runs

    def __exit__(self, *failure):
        for handle in self.handles:
            handle.remove()


def pair_objective(model, other):
    reference = FixedReference(other)
    return tiny_objective(model, reference=reference, pref_loss=("kto_pair",), pref_beta=0.4), reference


def test_a_step_of_one_batch_is_scored_once(model, other):
    """Its loss takes the means that it compares with from the scores that it learns from."""
    objective, reference = pair_objective(model, other)
    expected = compute(objective, model, batch_of())
    with Counter(model) as policy_runs, Counter(reference.model) as reference_runs:
        found = objective.compute(
            model, {**batch_of(), "reduce_means": lambda means: mean_tensors(means, lambda values: values, CPU)}
        )
    assert policy_runs == {"with gradient": 1, "without": 0}
    assert reference_runs == {"with gradient": 0, "without": 1}
    torch.testing.assert_close(found.total, expected.total)
    gradients = []
    for total in (expected.total, found.total):
        model.zero_grad()
        total.backward()
        gradients.append(model.lm_head.weight.grad.clone())
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(*gradients)


def test_the_reference_is_scored_once_in_a_step_of_several_batches(model, other):
    objective, reference = pair_objective(model, other)
    parts = [batch_of(ROWS[:2]), batch_of(ROWS[2:])]
    with Counter(model) as policy_runs, Counter(reference.model) as reference_runs:
        with torch.no_grad():
            measured = objective.measure(model, parts)
        means = {"step_means": mean_tensors(measured.means, lambda values: values, CPU)}
        found = [
            objective.compute(model, {**part, **own, **means})
            for part, own in zip(parts, measured.by_batch, strict=True)
        ]
    assert policy_runs == {"with gradient": 2, "without": 2}  # the means are known only after all of them
    assert reference_runs == {"with gradient": 0, "without": 2}
    torch.testing.assert_close(sum(part.total for part in found), compute(objective, model, batch_of()).total)


def test_in_evaluation_policy_and_reference_are_scored_once(model, other):
    objective, reference = pair_objective(model, other)
    expected = compute(objective, model, batch_of())
    batches = [batch_of(ROWS[:2]), batch_of(ROWS[2:])]
    with Counter(model) as policy_runs, Counter(reference.model) as reference_runs:
        found = measure_loss(model, batches, objective, dict)
    assert model.training
    assert policy_runs == reference_runs == {"with gradient": 0, "without": 2}
    assert found.loss == pytest.approx(expected.total.item() / 5, abs=1e-6)
    assert found.means["rewards/margins"] == pytest.approx(mean(expected, "rewards/margins"), abs=1e-6)
    assert found.means["entropy"] == pytest.approx(mean(expected, "entropy"), abs=1e-6)
