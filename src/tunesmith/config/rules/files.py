"""Rules about files: the model, the catalogue of data sets and the output folder."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tunesmith.config.catalogue import (
    CATALOGUE_FILE,
    CatalogueError,
    find_entry_problems,
    find_media_columns,
    find_missing_file,
    is_on_hub,
    is_place_of_rows,
    read_catalogue,
)
from tunesmith.config.reference_policy import STAGES_WITH_REFERENCE
from tunesmith.config.rules.registry import Finding, Question, rule
from tunesmith.config.suggestions import render_similar_path, render_suggestion

_RESULTS = (
    "adapter_model.safetensors",
    "adapter_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "trainer_state.json",
    "train_results.json",
    "all_results.json",
    "trainer_log.jsonl",
)
"""Files that only a run leaves behind."""


@rule("train", "generate", "export")
def model_is_named_and_there(question: Question) -> Iterator[Finding]:
    """A model has to be named; a local one has to exist and be a model."""
    name = question.config.model.model_name_or_path
    if not name:
        yield Finding(
            ("model_name_or_path",),
            "it is not set; give a local folder, a GGUF file or a hub id such as `org/name`.",
        )
        return
    problem = _find_model_problem(name)
    if problem:
        yield Finding(("model_name_or_path",), f"`model_name_or_path` is '{name}'; {problem}")


@rule("train")
def reference_is_there(question: Question) -> Iterator[Finding]:
    """A reference of its own is a model like any other."""
    config = question.config
    name = config.reference.ref_model
    if name is None or config.objective.stage not in STAGES_WITH_REFERENCE:
        return
    problem = _find_model_problem(name)
    if problem:
        yield Finding(("ref_model",), f"`ref_model` is '{name}'; {problem}")
    yield from _find_missing_adapters("ref_model_adapters", config.reference.ref_model_adapters)


def _find_model_problem(name: str) -> str | None:
    path = Path(name)
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return None
        return "a file can be a model only if it ends in .gguf; give the folder that holds config.json."
    if path.is_dir():
        is_model = (path / "config.json").is_file() or any(path.glob("*.gguf"))
        if is_model or (path / "adapter_config.json").is_file():
            return None
        return "that folder holds no config.json, no .gguf file and no adapter_config.json, so it is not a model."
    if _looks_local(name):
        looked_in = Path.cwd() if not path.is_absolute() else path.parent
        return f"nothing is there (looked in {looked_in}).{render_similar_path(name)}"
    return None


@rule("train", "generate", "export")
def gguf_has_a_fast_tokenizer(question: Question) -> Iterator[Finding]:
    """The tokenizer of a GGUF file is built by us, in the fast kind alone."""
    name = question.config.model.model_name_or_path
    if name and not question.config.model.use_fast_tokenizer and _is_gguf(Path(name)):
        yield Finding(
            ("use_fast_tokenizer", "model_name_or_path"),
            f"`use_fast_tokenizer: false` is not possible with the GGUF file '{name}', for which there is only a fast "
            "tokenizer; remove it.",
        )


def _is_gguf(path: Path) -> bool:
    """Return whether a model is read from a GGUF file; the other kinds of model in a folder come first."""
    if path.is_dir():
        others = ("config.json", "adapter_config.json")
        return any(path.glob("*.gguf")) and not any((path / name).is_file() for name in others)
    return path.suffix.lower() == ".gguf"


def _looks_local(name: str) -> bool:
    """Return whether a name cannot be a hub id, which is `name` or `org/name`."""
    return name.startswith(("/", ".", "~", "\\")) or name.endswith((".gguf", "/")) or name.count("/") > 1


@rule("train", "generate", "export")
def adapters_are_there(question: Question) -> Iterator[Finding]:
    """A local adapter has to exist and be an adapter."""
    yield from _find_missing_adapters("adapter_name_or_path", question.config.adapter.adapter_name_or_path)


def _find_missing_adapters(key: str, names: Sequence[str]) -> Iterator[Finding]:
    for name in names:
        path = Path(name)
        if path.is_dir() and not (path / "adapter_config.json").is_file():
            hint = " Name one of the checkpoints in it." if any(path.glob("checkpoint-*")) else ""
            yield Finding(
                (key,), f"`{key}` has '{name}'; that folder holds no adapter_config.json, so it is no adapter.{hint}"
            )
        elif not path.exists() and _looks_local(name):
            yield Finding((key,), f"`{key}` has '{name}'; nothing is there.{render_similar_path(name)}")


@rule("train")
def rows_are_named(question: Question) -> Iterator[Finding]:
    """A run needs rows to train or measure on, and something to do."""
    training, data = question.config.training, question.config.data
    if training.do_train and not data.dataset:
        yield Finding(("dataset", "do_train"), "`do_train: true` needs rows to train on; name them in `dataset`.")
    if not (training.do_train or training.do_eval or training.do_predict):
        hint = "set `dataset` to train" if not data.dataset else "remove `do_train: false`"
        yield Finding(
            ("dataset", "do_train"),
            f"there is nothing to do: no training, evaluation or prediction is asked for; {hint}.",
        )


@rule("read", "train", "generate", "export")
def inline_catalogue_is_sound(question: Question) -> Iterator[Finding]:
    """Entries of an inline catalogue have known keys only."""
    for path, message in find_entry_problems(question.config.data.dataset_info or {}):
        yield Finding(("dataset_info",), f"`{'.'.join(('dataset_info', *path))}` {message}", path)


@rule("train")
def data_sets_are_in_the_catalogue(question: Question) -> Iterator[Finding]:
    """Names of data sets are looked up before anything is loaded: in the catalogue, then as paths."""
    data = question.config.data
    if not (data.dataset or data.eval_dataset):
        return
    prepared = question.config.loading.tokenized_path
    if prepared is not None and (Path(prepared) / "prepared.json").is_file():  # made where the rows are
        return
    if is_on_hub(data.dataset_dir):  # it would take the network to know
        return
    try:
        listed = read_catalogue(Path(data.dataset_dir))
    except CatalogueError as error:
        yield Finding(("dataset_dir", "dataset", "eval_dataset"), str(error))
        return
    folder, inline = Path(data.dataset_dir), data.dataset_info or {}
    known = {**listed, **inline}
    for key, names in (("dataset", data.dataset), ("eval_dataset", data.eval_dataset)):
        for name in names:
            if name in known:
                yield from _look_at_entry(key, name, known[name], folder, is_inline=name in inline)
            elif not is_place_of_rows(name, folder):
                yield Finding(
                    (key,), f"`{key}` has '{name}', {_say_what_is_known(name, list(known), data.dataset_dir)}"
                )


def _look_at_entry(key: str, name: str, entry: object, folder: Path, *, is_inline: bool) -> Iterator[Finding]:
    """Yield what keeps a data set that is in use from being read."""

    def finding(what: str, *path: str) -> Finding:
        keys, place = (("dataset_info",), (name, *path)) if is_inline else ((key,), ())
        return Finding(keys, f"`{key}` has '{name}', {what}", place)

    if not is_inline:  # entries in the configuration are looked at whether or not they are in use
        for path, message in find_entry_problems({name: entry}):
            yield finding(f"and in {folder / CATALOGUE_FILE} `{'.'.join(path)}` {message}")
    missing = find_missing_file(entry, folder)
    if missing is not None:
        place = folder / missing
        yield finding(f"whose file_name is '{missing}': {place} is not there.{render_similar_path(place)}", "file_name")
    for column in find_media_columns(entry):
        yield finding(
            f"whose entry names the column {column}: pictures, films and sound are known but not yet supported, and "
            "answers about what the model cannot see would teach it to make things up. Take another data set, or "
            f"remove {column} from the entry to train on the text alone.",
            "columns",
            column,
        )


def _say_what_is_known(name: str, known: list[str], folder: str) -> str:
    similar = render_similar_path(name) or render_similar_path(Path(folder) / name)
    if not known:
        hint = similar or ("" if Path(folder).exists() else render_similar_path(folder))
        return (
            f"which is no file, and there is no catalogue {Path(folder) / CATALOGUE_FILE} to look it up in; set "
            f"`dataset_dir` to the folder that holds one, or write `dataset_info:` into the configuration.{hint}"
        )
    hint = similar or render_suggestion(name, known, count=3) or f" Known are {', '.join(known[:10])}."
    return f"which is neither in the catalogue ({Path(folder) / CATALOGUE_FILE}, `dataset_info`) nor a file.{hint}"


@rule("train")
def output_folder_is_free(question: Question) -> Iterator[Finding]:
    """A run does not write into the folder of another one by accident."""
    training = question.config.training
    if not training.output_dir:
        yield Finding(("output_dir",), "it is not set; name the folder that the run writes to.")
        return
    path = Path(training.output_dir)
    if path.is_file():
        yield Finding(("output_dir",), f"`output_dir` is '{path}', which is a file; name a folder.")
        return
    if not training.do_train or training.overwrite_output_dir or training.resume_from_checkpoint:
        return
    found = _find_results(path)
    if found:
        yield Finding(
            ("output_dir",),
            f"`output_dir` is '{path}', which is in use: it holds {found}. Name another folder, or set "
            "`resume_from_checkpoint: true` to go on or `overwrite_output_dir: true` to start over.",
        )


@rule("train")
def results_do_not_go_into_a_model(question: Question) -> Iterator[Finding]:
    """What is read must not be written over: an adapter beside a model, too, changes what the folder is taken for."""
    out = question.config.training.output_dir
    if not out or not question.config.training.do_train:
        return
    for key in ("model_name_or_path", "ref_model"):
        source = question.config.value(key)
        if isinstance(source, str) and Path(source).is_dir() and Path(out).resolve() == Path(source).resolve():
            yield Finding(
                ("output_dir", key),
                f"`output_dir` is '{out}', which is the folder of `{key}`; its files would be written over. Name "
                "another folder.",
            )


def _find_results(path: Path) -> str | None:
    if not path.is_dir():
        return None
    checkpoints = sorted(path.glob("checkpoint-*"))
    if checkpoints:
        return checkpoints[-1].name
    return next((name for name in _RESULTS if (path / name).is_file()), None)


@rule("train")
def checkpoint_is_there(question: Question) -> Iterator[Finding]:
    """A named checkpoint has to exist; `true` starts at the beginning where there is none, and says so."""
    wanted = question.config.training.resume_from_checkpoint
    if isinstance(wanted, str) and not Path(wanted).is_dir():
        yield Finding(
            ("resume_from_checkpoint",),
            f"`resume_from_checkpoint` is '{wanted}', and there is no such folder; allowed is true or a checkpoint."
            f"{render_similar_path(wanted)}",
        )


@rule("export")
def export_folder_is_named(question: Question) -> Iterator[Finding]:
    """Exporting needs a folder to write to."""
    if not question.config.export.export_dir:
        yield Finding(("export_dir",), "it is not set; name the folder for the merged model.")
