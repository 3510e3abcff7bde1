import pytest

DPO = {"stage": "dpo"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pref_loss": "sigmoid,sigmoid"}, "`pref_loss` names sigmoid more than once; give it one weight."),
        ({"pref_loss": []}, "`pref_loss` is empty; allowed is sigmoid, hinge, ipo"),
        (
            {"pref_loss": "sigmoid,ipo", "pref_loss_weights": "1"},
            "`pref_loss_weights` has 1 value and `pref_loss` has 2; give one weight for each loss. (see pref_loss)",
        ),
        (
            {"pref_loss_weights": "1,2"},
            "`pref_loss_weights` has 2 values and `pref_loss` has 1; give one weight for each loss.",
        ),
        ({"pref_loss": "exo"}, "`pref_loss: exo` compares with a soft label; set `dpo_label_smoothing` above 0"),
        (
            {"pref_loss": "hinge", "dpo_label_smoothing": 0.1},
            "`dpo_label_smoothing: 0.1` has no effect with `pref_loss: hinge`; remove it, or use one of",
        ),
        (
            {"dpo_label_smoothing": 0.5},
            "`dpo_label_smoothing` is 0.5; allowed is a number, 0 or more and less",
        ),
        (
            {"pref_loss": "ipo,orpo", "pref_length_normalization": True},
            "`pref_length_normalization: true` has no effect with `pref_loss: ipo,orpo`, which goes by token anyway",
        ),
        ({"pref_loss": "simpo", "ld_alpha": 0.5}, "`ld_alpha: 0.5` has no effect with `pref_loss: simpo`"),
        ({"ld_alpha": 1.5}, "`ld_alpha` is 1.5; allowed is a number, from 0 to 1"),
        ({"train_on_prompt": True}, "`train_on_prompt: true` is about the answers of `stage: sft` and has no effect"),
        ({"mask_history": True}, "`mask_history: true` is about the answers of `stage: sft` and has no effect"),
        (
            {"ignore_pad_token_for_loss": False, "padding_free": False},
            "`ignore_pad_token_for_loss: false` would make padding a part of completions; with `stage: dpo` remove it.",
        ),
        ({"neftune_noise_alpha": 5.0}, "`neftune_noise_alpha: 5` adds noise, by which a policy would differ"),
        ({"pref_loss": "sigmoyd"}, "`pref_loss` is 'sigmoyd'"),
        ({"pref_beta": 0}, "`pref_beta` is 0; allowed is a number, more than 0"),
        ({"ref_model": "./nowhere"}, "`ref_model` is './nowhere'; nothing is there"),
        ({"ref_model": "data"}, "`ref_model` is 'data'; that folder holds no config.json"),
        (
            {"ref_model": "model", "ref_model_adapters": "./nowhere"},
            "`ref_model_adapters` has './nowhere'; nothing is there",
        ),
        ({"ref_model_adapters": "a"}, "`ref_model_adapters: a` is about `ref_model`, which is not set"),
        ({"ref_model_quantization_bit": 4}, "`ref_model_quantization_bit: 4` is about `ref_model`, which is not set"),
        (
            {"precompute_reference": True, "streaming": True, "max_steps": 9},
            "`precompute_reference: true` goes over all rows before the first step",
        ),
        ({"stage": "rm", "sample_steps": 5}, "`sample_steps: 5` has a model write text, and with `stage: rm` it gives"),
    ],
)
def test_what_does_not_go_together_is_refused(problems, changes, message):
    (problem,) = problems(**{**DPO, **changes})
    assert message in problem


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pref_loss": "sigmoid,bco_pair,ipo", "pref_loss_weights": "0.8,0.2,1"},
        {"pref_loss": "exo", "dpo_label_smoothing": 0.001},
        {"pref_loss": "simpo", "simpo_gamma": 1.0, "pref_beta": 2.5},
        {"pref_loss": "orpo,hinge", "ld_alpha": 0.5, "pref_length_normalization": True},
        {"stage": "kto", "kto_chosen_weight": "auto", "kto_rejected_weight": 2},
        {"stage": "sft", "ref_model": "./nowhere"},
        {"stage": "sft", "dpo_label_smoothing": 0.1, "pref_loss": "hinge"},  # a file for another run
    ],
)
def test_what_goes_together_is_accepted(problems, changes):
    assert problems(**{**DPO, **changes}) == []


def test_settings_are_typed(load):
    preference = load(stage="dpo", pref_loss="sigmoid, ipo", pref_loss_weights=[1, "0.5"], ld_alpha=None).preference
    assert preference.pref_loss == ("sigmoid", "ipo")
    assert preference.pref_loss_weights == (1.0, 0.5)
    assert load(stage="kto", kto_chosen_weight="auto").preference.kto_chosen_weight == "auto"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"stage": "sft", "pref_beta": 0.2}, "`pref_beta: 0.2` is not used: it is not for `stage: sft`."),
        ({"stage": "kto", "pref_loss": "ipo"}, "`pref_loss: ipo` is not used: it is not for `stage: kto`."),
        (
            {**DPO, "simpo_gamma": 1, "discopop_tau": 0.1},
            "`simpo_gamma: 1` is not used: `pref_loss` has no simpo.",
        ),
        (
            {**DPO, "label_smoothing_factor": 0.1, "z_loss": 0.1},
            (
                "`label_smoothing_factor: 0.1`, `z_loss: 0.1` are not used: the loss of `stage: dpo` is of whole "
                "completions, not of tokens."
            ),
        ),
        (
            {**DPO, "lora_dropout": 0.1},
            (
                "`lora_dropout: 0.1` is not used: with `stage: dpo` dropout is off, or a policy would differ from its "
                "reference by chance."
            ),
        ),
    ],
)
def test_what_a_run_has_no_use_for_is_said(load, changes, note):
    assert note in load(**changes).notes()


@pytest.mark.parametrize("metric", ["rewards/accuracies", "eval_rewards/margins", "loss"])
def test_preferences_have_metrics_of_their_own(problems, metric):
    measured = {"val_size": 0.1, "eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    assert problems(**DPO, **measured, metric_for_best_model=metric) == []
    (problem,) = problems(stage="sft", **measured, metric_for_best_model="rewards/margins")
    assert "which this run does not measure; allowed is one of loss, perplexity" in problem


def test_rows_that_come_one_by_one_have_no_partner(problems):
    rows = {"streaming": True, "max_steps": 9}
    assert any("gives each the completion of a row half the set away" in each for each in problems(stage="kto", **rows))
    packed = problems(**DPO, **rows, packing=True)
    assert any("`packing: true` with `streaming: true` packs single rows" in each for each in packed)
    assert not any("packs single rows" in each for each in problems(**DPO, **rows))


def test_the_batch_size_of_evaluations_is_that_of_a_reference_computed_beforehand(load):
    def notes(**changes):
        return " ".join(load(**DPO, per_device_eval_batch_size=2, **changes).notes())

    assert "per_device_eval_batch_size" not in notes()
    assert "`per_device_eval_batch_size: 2` is not used" in notes(precompute_reference=False)
