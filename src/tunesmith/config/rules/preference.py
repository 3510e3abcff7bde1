"""Rules about preferences: which losses go together, and what they have no use for."""

from collections import Counter
from collections.abc import Iterator

from tunesmith.config.objective import COMPLETION_STAGES
from tunesmith.config.preference import LOSSES_WITH_SMOOTHING, PREFERENCE_LOSSES
from tunesmith.config.rules.registry import Finding, Question, rule

_PER_TOKEN_ANYWAY = ("ipo", "orpo", "simpo")
_WITHOUT_LOG_RATIO = ("orpo", "simpo")


@rule()
def losses_are_named_once(question: Question) -> Iterator[Finding]:
    """A sum has parts, and a weight for each."""
    preference = question.config.preference
    names, weights = preference.pref_loss, preference.pref_loss_weights
    if not names:
        yield Finding(("pref_loss",), f"`pref_loss` is empty; allowed is {', '.join(PREFERENCE_LOSSES)}, or several.")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        yield Finding(("pref_loss",), f"`pref_loss` names {', '.join(repeated)} more than once; give it one weight.")
    if weights and len(weights) != len(names):
        yield Finding(
            ("pref_loss_weights", "pref_loss"),
            f"`pref_loss_weights` has {len(weights)} value{'' if len(weights) == 1 else 's'} and `pref_loss` has "
            f"{len(names)}; give one weight for each loss.",
        )


@rule()
def smoothing_suits_the_loss(question: Question) -> Iterator[Finding]:
    """Only some losses have swapped labels in mind, and one cannot do without."""
    preference = question.config.preference
    if question.config.objective.stage != "dpo":
        return
    smoothing, losses = preference.dpo_label_smoothing, preference.pref_loss
    if smoothing and not set(losses) & set(LOSSES_WITH_SMOOTHING):
        yield Finding(
            ("dpo_label_smoothing", "pref_loss"),
            f"{question.cite('dpo_label_smoothing')} has no effect with {question.cite('pref_loss')}; remove it, or "
            f"use one of {', '.join(LOSSES_WITH_SMOOTHING)}.",
        )
    if "exo" in losses and not smoothing:
        yield Finding(
            ("pref_loss", "dpo_label_smoothing"),
            "`pref_loss: exo` compares with a soft label; set `dpo_label_smoothing` above 0, such as 0.001.",
        )


@rule()
def lengths_matter_to_the_loss(question: Question) -> Iterator[Finding]:
    """Settings about the length of completions need a loss of whole completions."""
    config, preference = question.config, question.config.preference
    if config.objective.stage != "dpo" or preference.pref_bco_weight:
        return
    losses = set(preference.pref_loss)
    if preference.pref_length_normalization and losses <= set(_PER_TOKEN_ANYWAY):
        yield Finding(
            ("pref_length_normalization", "pref_loss"),
            f"`pref_length_normalization: true` has no effect with {question.cite('pref_loss')}, which goes by token "
            "anyway; remove it.",
        )
    if preference.ld_alpha is not None and losses <= set(_WITHOUT_LOG_RATIO):
        yield Finding(
            ("ld_alpha", "pref_loss"),
            f"{question.cite('ld_alpha')} has no effect with {question.cite('pref_loss')}, which goes by token; "
            "remove it.",
        )


@rule()
def completions_are_learnt_as_a_whole(question: Question) -> Iterator[Finding]:
    """What is learnt of a row with completions is its completions, and padding never."""
    config = question.config
    if config.objective.stage not in COMPLETION_STAGES:
        return
    for key in ("train_on_prompt", "mask_history"):
        if config.value(key):
            yield Finding(
                (key, "stage"),
                f"{question.cite(key)} is about the answers of `stage: sft` and has no effect with "
                f"{question.cite('stage')}, where the completions are learnt; remove it.",
            )
    if not config.data.ignore_pad_token_for_loss:
        yield Finding(
            ("ignore_pad_token_for_loss", "stage"),
            f"`ignore_pad_token_for_loss: false` would make padding a part of completions; with "
            f"{question.cite('stage')} remove it.",
        )
    if config.training.neftune_noise_alpha is not None:
        yield Finding(
            ("neftune_noise_alpha", "stage"),
            f"{question.cite('neftune_noise_alpha')} adds noise, by which a policy would differ from its own "
            f"reference; with {question.cite('stage')} remove it.",
        )


@rule()
def ratings_are_all_there(question: Question) -> Iterator[Finding]:
    """A rated completion is compared with one of another row, and pairs take room for two sequences in a pack."""
    config = question.config
    if not config.data.streaming or config.objective.stage not in COMPLETION_STAGES:
        return
    if config.objective.stage == "kto":
        yield Finding(
            ("streaming", "stage"),
            "`streaming: true` reads rows as they come, and `stage: kto` gives each the completion of a row half the "
            "set away; remove `streaming`.",
        )
    elif config.packs:
        yield Finding(
            ("streaming", "packing"),
            f"{question.cite('packing')} with `streaming: true` packs single rows, not pairs; remove one of them.",
        )


@rule()
def reward_models_write_no_text(question: Question) -> Iterator[Finding]:
    """A score head stands where the vocabulary was."""
    if question.config.objective.stage != "rm":
        return
    for key in ("predict_with_generate", "do_predict", "sample_steps"):
        if question.config.value(key):
            yield Finding(
                (key, "stage"),
                f"{question.cite(key)} has a model write text, and with `stage: rm` it gives scores; remove it. "
                "`tunesmith score` rates rows with the finished model.",
            )


@rule()
def the_reference_is_one_model(question: Question) -> Iterator[Finding]:
    """What is said of another reference needs one; what is computed beforehand needs rows that are all there."""
    config = question.config
    for key in ("ref_model_adapters", "ref_model_quantization_bit"):
        if config.value(key) and config.reference.ref_model is None:
            yield Finding(
                (key, "ref_model"),
                f"{question.cite(key)} is about `ref_model`, which is not set; set both or remove it.",
            )
    if config.reference.precompute_reference is True and config.data.streaming:
        yield Finding(
            ("precompute_reference", "streaming"),
            "`precompute_reference: true` goes over all rows before the first step, and `streaming: true` reads them "
            "as they come; remove one of them.",
        )
