"""Prepared data in a folder that the user names: written once, taken elsewhere, read with the same settings alone.

The cache finds rows by content and needs the raw files for it. Here a list beside the rows says what they were made of,
so that the raw files may be gone. What is asked for must be what was made: anything else is refused, never made again.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tunesmith import __version__
from tunesmith.config import RunConfig
from tunesmith.config.catalogue import KEY_TYPES, is_on_hub
from tunesmith.data.account import Tally
from tunesmith.data.fingerprint import tokenizer_fingerprint
from tunesmith.data.formats.bad_rows import check_counted
from tunesmith.data.loading.encoded import DamagedFileError, EncodedRows
from tunesmith.data.preparation import Preparation
from tunesmith.data.prepared import PreparedSet
from tunesmith.data.sources import Columns, DatasetSpec, Tags, load_catalog
from tunesmith.data.sources.dataset_spec import BadRowPolicy, TurnOrderPolicy
from tunesmith.data.tokenization import EncodingOptions
from tunesmith.errors import DataError
from tunesmith.runtime.files import file_digest, write_json_atomic

logger = logging.getLogger(__name__)

LIST_FILE = "prepared.json"
_FORMAT = 1
_SETTINGS = ("dataset", "eval_dataset", "max_samples", "row_variables", "stringify_values")
"""What decides the rows besides the options of encoding, the template and the tokenizer.

`bad_rows` does not, nor whether `turn_order_policy` leaves rows out or stops for them: rows are the same for runs that
stop for some, which is asked when they are loaded.
"""

_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class TokenizedFolder:
    """The folder of `tokenized_path`.

    Args:
        path: The folder.
        settings: What the rows depend on, see `describe_settings`.
        seed: Of the run; matters to data sets of which rows are drawn.
        bad_rows: What becomes of rows that are not what their data set says.
        turn_order_policy: What becomes of turns in an order that cannot be learnt from.
    """

    path: Path
    settings: Mapping[str, Any]
    seed: int
    bad_rows: BadRowPolicy
    turn_order_policy: TurnOrderPolicy

    @property
    def is_written(self) -> bool:
        """Whether it holds prepared data, whole."""
        return (self.path / LIST_FILE).is_file()

    def check_free(self) -> None:
        """Make sure that nobody else's files are in a folder that is about to be filled.

        Raises:
            DataError: There are some.
        """
        if not self.path.is_dir():
            return
        foreign = sorted(entry.name for entry in self.path.iterdir() if not _is_ours(entry.name))
        if foreign:
            raise DataError(
                f"tokenized_path is {self.path}, which holds {', '.join(foreign[:3])} and no {LIST_FILE}: it was not "
                "written by this program. Name an empty folder, or one that `tunesmith data prepare` has filled."
            )

    def write(self, sets: Sequence[PreparedSet]) -> None:
        """Write what the rows were made of; the folder counts as written from then on."""
        content = {
            "format": _FORMAT,
            "version": __version__,
            "settings": self.settings,
            "sets": [
                {
                    "role": item.role,
                    "rows": item.rows.path.name,
                    "spec": {**asdict(item.spec), "files": [str(file) for file in item.spec.files]},
                    "digests": [file_digest(file) if isinstance(file, Path) else None for file in item.spec.files],
                    "seed": self.seed if item.spec.num_samples is not None else None,
                }
                for item in sets
            ],
        }
        for old in set(self.path.glob("*.arrow")) - {item.rows.path for item in sets}:
            old.unlink()
        write_json_atomic(self.path / LIST_FILE, content)
        logger.info("The prepared data is in %s.", self.path)

    def load(self) -> tuple[PreparedSet, ...]:
        """Return the data sets that the folder holds.

        Raises:
            DataError: They were made with other settings or of other files, a file is damaged, or rows were left out
                for which this run stops.
        """
        content = self._read()
        drawn = {"seed": self.seed} if any(entry["seed"] is not None for entry in content["sets"]) else {}
        seeds = [entry["seed"] for entry in content["sets"] if entry["seed"] is not None]
        self._check_settings({**self.settings, **drawn}, {**content["settings"], "seed": next(iter(seeds), None)})
        sets: list[PreparedSet] = []
        first_row_id = 0
        for entry in content["sets"]:
            spec = replace(_build_spec(entry["spec"]), bad_rows=self.bad_rows, turn_order_policy=self.turn_order_policy)
            self._check_files(spec, entry["digests"])
            rows = self._open(entry["rows"])
            tally = Tally(**rows.metadata["tally"])
            check_counted(tally.dropped, tally.shown, spec)
            sets.append(PreparedSet(spec, entry["role"], rows, tally, first_row_id))
            first_row_id += tally.read
            logger.info("Data set %s: %s rows taken from %s.", spec.name, f"{len(rows):,}", rows.path)
        if content["version"] != __version__:
            logger.warning(
                "%s was written by version %s of this program, which may have encoded rows differently from this one "
                "(%s). Prepare it again to be sure.",
                self.path,
                content["version"],
                __version__,
            )
        return tuple(sets)

    def _read(self) -> dict[str, Any]:
        path = self.path / LIST_FILE
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(
                f"{path} cannot be read as JSON: {error}. Remove the folder and prepare it again."
            ) from error
        if content.get("format") != _FORMAT:
            raise DataError(
                f"{path} is of format {content.get('format')}; this version reads {_FORMAT}. Remove the folder and "
                "prepare it again."
            )
        return content

    def _check_settings(self, settings: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
        differences = [
            f"  {key} was {_shown(recorded.get(key))} and is {_shown(value)}"
            for key, value in settings.items()
            if recorded.get(key) != value
        ]
        if differences:
            raise DataError(
                f"{self.path} (tokenized_path) was prepared with other settings:\n" + "\n".join(differences) + "\n"
                "Set them as they were, name another folder to prepare anew, or set overwrite_cache to replace it."
            )

    def _check_files(self, spec: DatasetSpec, digests: Sequence[str | None]) -> None:
        for file, digest in zip(spec.files, digests, strict=True):
            if digest is not None and file.is_file() and file_digest(file) != digest:
                raise DataError(
                    f"{self.path} (tokenized_path) was prepared of another {file} (data set {spec.name}) than the one "
                    "that is there now. Name another folder to prepare anew, or set overwrite_cache to replace it."
                )

    def _open(self, name: str) -> EncodedRows:
        path = self.path / name
        try:
            return EncodedRows(path)
        except DamagedFileError as error:
            raise DataError(
                f"{path} (tokenized_path) is damaged: {error}. Copy it again, or remove the folder and prepare it anew."
            ) from error


def describe_settings(
    config: RunConfig, options: EncodingOptions, tokenizer_digest: str, template_fingerprint: str | None
) -> dict[str, Any]:
    """Return everything that prepared rows depend on besides the files, as JSON values."""
    settings = {key: config.value(key) for key in _SETTINGS}
    values = {
        **settings,
        "turn_order_policy": "merge" if config.data.turn_order_policy == "merge" else "skip or error",
        **dict(_describe_entries(config)),
        **asdict(options),
        "the chat template": template_fingerprint,
        "the tokenizer": tokenizer_digest,
    }
    described: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return described


def _describe_entries(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Yield how the catalogue describes the data sets, as far as it is at hand: it says which columns are read."""
    data = config.data
    listed: Mapping[str, Any] = data.dataset_info or {}
    if not is_on_hub(data.dataset_dir):
        listed = {name: entry.values for name, entry in load_catalog(data).entries.items()}
    for name in (*data.dataset, *data.eval_dataset):
        entry = listed.get(name)
        if isinstance(entry, Mapping):
            yield from ((f"dataset_info.{name}.{key}", entry.get(key)) for key in KEY_TYPES)


def obtain_sets(preparation: Preparation) -> tuple[PreparedSet, ...]:
    """Return the data sets of a run: those in `tokenized_path`, or else by preparing them, there if it is set.

    Raises:
        DataError: They cannot be prepared, or the folder holds something else.
    """
    config = preparation.config
    if config.loading.tokenized_path is None:
        return preparation.prepare_sets()
    template = preparation.template
    folder = TokenizedFolder(
        Path(config.loading.tokenized_path).expanduser(),
        describe_settings(
            config,
            preparation.options,
            tokenizer_fingerprint(preparation.tokenizer),
            None if template is None else template.fingerprint,
        ),
        config.training.seed,
        config.data.bad_rows,
        config.data.turn_order_policy,
    )
    if folder.is_written and not config.loading.overwrite_cache:
        return folder.load()
    if not folder.is_written:
        folder.check_free()
    sets = preparation.prepare_sets()
    if preparation.ranks.is_main:
        folder.write(sets)
    return sets


def _build_spec(values: Mapping[str, Any]) -> DatasetSpec:
    known = {key: _as_tuples(value) for key, value in values.items()}
    return DatasetSpec(
        **{
            **known,
            "files": tuple(Path(name) for name in values["files"]),
            "columns": Columns(**values["columns"]),
            "tags": Tags(**values["tags"]),
        }
    )


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value


def _is_ours(name: str) -> bool:
    return name.startswith(".") or name.endswith((".arrow", ".lock")) or ".lock.stale-" in name


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
