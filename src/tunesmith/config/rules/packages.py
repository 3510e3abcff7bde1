"""Rules about optional packages: what is missing is said before anything is loaded."""

from collections.abc import Iterator
from importlib.util import find_spec

from tunesmith.config.rules.registry import Finding, Question, rule

_TRACKERS = {
    "azure_ml": "azureml",
    "clearml": "clearml",
    "codecarbon": "codecarbon",
    "comet_ml": "comet_ml",
    "dagshub": "dagshub",
    "dvclive": "dvclive",
    "flyte": "flytekit",
    "kubeflow": "kubeflow",
    "mlflow": "mlflow",
    "neptune": "neptune",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Module that each tracker of transformers needs."""

_OPTIMIZERS = {
    "adamw_torch_4bit": "torchao",
    "adamw_torch_8bit": "torchao",
    "adamw_8bit": "bitsandbytes",
    "adamw_bnb_8bit": "bitsandbytes",
    "ademamix": "bitsandbytes",
    "ademamix_8bit": "bitsandbytes",
    "lion_32bit": "bitsandbytes",
    "lion_8bit": "bitsandbytes",
    "rmsprop_bnb": "bitsandbytes",
    "rmsprop_bnb_8bit": "bitsandbytes",
    "rmsprop_bnb_32bit": "bitsandbytes",
    "paged_adamw_32bit": "bitsandbytes",
    "paged_adamw_8bit": "bitsandbytes",
    "paged_ademamix_32bit": "bitsandbytes",
    "paged_ademamix_8bit": "bitsandbytes",
    "paged_lion_32bit": "bitsandbytes",
    "paged_lion_8bit": "bitsandbytes",
    "grokadamw": "grokadamw",
    "schedule_free_radam": "schedulefree",
    "schedule_free_adamw": "schedulefree",
    "schedule_free_sgd": "schedulefree",
    "stable_adamw": "optimi",
    "lomo": "lomo_optim",
    "adalomo": "lomo_optim",
    "came": "came_pytorch",
}
"""Module that an optimizer beyond PyTorch's own needs."""

_SPECIAL_OPTIMIZERS = {
    "use_galore": "galore_torch",
    "use_apollo": "apollo_torch",
    "use_badam": "badam",
    "use_adam_mini": "adam_mini",
}
"""Module that an optimizer with a switch of its own needs; Muon is PyTorch's."""

_PIP_NAMES = {"lomo_optim": "lomo-optim", "optimi": "torch-optimi", "azureml": "azureml-mlflow", "comet_ml": "comet-ml"}


@rule("train")
def asked_for_packages_are_installed(question: Question) -> Iterator[Finding]:
    """A missing package is found before the model is loaded, not after the last step."""
    training, model = question.config.training, question.config.model
    wanted: list[tuple[str, str]] = [("report_to", _TRACKERS[name]) for name in training.report_to if name in _TRACKERS]
    if training.optim in _OPTIMIZERS:
        wanted.append(("optim", _OPTIMIZERS[training.optim]))
    wanted += [(key, module) for key, module in _SPECIAL_OPTIMIZERS.items() if question.config.value(key)]
    if training.fp8:
        wanted.append(("fp8", "torchao"))
    if model.enable_liger_kernel:
        wanted.append(("enable_liger_kernel", "liger_kernel"))
    if question.config.quantization.qat is not None:
        wanted.append(("qat", "torchao"))
    if training.plot_loss:
        wanted.append(("plot_loss", "matplotlib"))
    if training.predict_with_generate:
        wanted += [("predict_with_generate", "sacrebleu"), ("predict_with_generate", "rouge_score")]
    if model.model_hub == "modelscope":
        wanted.append(("model_hub", "modelscope"))
    for key, module in wanted:
        if find_spec(module) is None:
            package = _PIP_NAMES.get(module, module.replace("_", "-"))
            yield Finding(
                (key,),
                f"{question.cite(key)} needs the package {package}, which is not installed; "
                f"run `pip install {package}` or change the setting.",
            )
