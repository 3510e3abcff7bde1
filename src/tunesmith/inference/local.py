"""Generation with the model in this process, through transformers."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig as TransformersGenerationConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation import StoppingCriteria, StoppingCriteriaList

from tunesmith.config import GenerationConfig
from tunesmith.errors import ConfigError
from tunesmith.inference.markers import MarkerFilter, cut_at_marker
from tunesmith.inference.pieces import TextPieces
from tunesmith.models.heads import evaluation_mode, find_base_model


class LocalGenerator:
    """Continues prompts with a loaded model.

    The model keeps its mode: a generator can be used in the middle of training. Batches are padded on the left
    whatever the tokenizer is set to, since a prompt must end where its completion starts.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        end_markers: Sequence[str] = (),
        batch_size: int = 8,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Prepare a generator.

        Args:
            model: The model, wrapped in adapters or not.
            tokenizer: Its tokenizer.
            end_markers: Texts that end an answer in the chat template.
            batch_size: Prompts that are continued at once.
            autocast: Makes the context of every forward pass; needed where weights of one model differ in type, as
                trained layers among frozen ones do.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._autocast = autocast
        self.stop_ids = resolve_stop_ids(model, tokenizer, end_markers)
        self.stop_texts = tuple(marker for marker in end_markers if _find_token(tokenizer, marker) is None)
        pad = tokenizer.pad_token_id
        # Any id will do: padding is masked out of the prompt and cut off the completion.
        self._pad_id = int(pad) if pad is not None else (self.stop_ids[0] if self.stop_ids else 0)

    def generate(self, prompts: Sequence[Sequence[int]], options: GenerationConfig) -> list[list[int]]:
        """Return the new tokens of one completion per prompt, see `TextGenerator`."""
        _check_prompts(prompts)
        completions: list[list[int]] = [[] for _ in prompts]
        # Prompts of like length together: padding is computed for nothing.
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        with evaluation_mode(self.model), torch.inference_mode(), self._autocast():
            for start in range(0, len(order), self.batch_size):
                indices = order[start : start + self.batch_size]
                batch = self._generate_batch([prompts[index] for index in indices], options)
                for index, ids in zip(indices, batch, strict=True):
                    completions[index] = ids
        return completions

    def stream(self, prompt: Sequence[int], options: GenerationConfig) -> Iterator[str]:
        """Yield the text of one completion in pieces, see `TextGenerator`.

        Leaving the loop early stops the model too. An error in the model is raised here.
        """
        _check_prompts([prompt])
        if options.num_beams > 1:
            raise ConfigError(
                f"num_beams is {options.num_beams}, but an answer that is shown while it is written cannot be "
                "one of several beams. Set num_beams to 1."
            )
        channel = _TokenChannel()
        pieces = TextPieces(self.tokenizer, skip_special_tokens=options.skip_special_tokens)
        with ThreadPoolExecutor(max_workers=1) as executor:
            finished = executor.submit(self._run_stream, prompt, options, channel)
            finished.add_done_callback(lambda _: channel.close())
            shown = MarkerFilter(self.stop_texts)
            try:
                for token in channel.tokens():
                    if token not in self.stop_ids:
                        yield shown.add(pieces.add(token))
                    if shown.is_found:
                        return
                finished.result()  # raises what went wrong in the model
                yield shown.add(pieces.finish()) + shown.finish()
            finally:
                channel.is_cancelled = True

    def _run_stream(self, prompt: Sequence[int], options: GenerationConfig, channel: "_TokenChannel") -> None:
        with evaluation_mode(self.model), torch.inference_mode(), self._autocast():
            self._call_model([prompt], options, streamer=channel, stopping_criteria=StoppingCriteriaList([channel]))

    def _generate_batch(self, prompts: Sequence[Sequence[int]], options: GenerationConfig) -> list[list[int]]:
        output = self._call_model(prompts, options)
        width = max(map(len, prompts))
        completions = [_cut_at_stop(row, self.stop_ids) for row in output[:, width:].tolist()]
        if not self.stop_texts:
            return completions
        return [cut_at_marker(ids, self.stop_texts, self.tokenizer) for ids in completions]

    def _call_model(self, prompts: Sequence[Sequence[int]], options: GenerationConfig, **extra: Any) -> Tensor:
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), self._pad_id, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
            mask[row, width - len(prompt) :] = 1
        device = self.model.device
        output: Tensor = self.model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            generation_config=self._build_generation_config(options, prompt_tokens=width),
            tokenizer=self.tokenizer if self.stop_texts else None,
            **extra,
        )
        return output

    def _build_generation_config(self, options: GenerationConfig, prompt_tokens: int) -> TransformersGenerationConfig:
        settings: dict[str, Any] = {
            "do_sample": options.draws_tokens,
            "num_beams": options.num_beams,
            "repetition_penalty": options.repetition_penalty,
            "eos_token_id": list(self.stop_ids) or None,
            "pad_token_id": self._pad_id,
            "use_cache": True,  # training switches it off in the model's own configuration
            "stop_strings": list(self.stop_texts) or None,
        }
        # A prompt that leaves no room still gets one token: an empty answer is easier to understand than a crash.
        room = options.max_new_tokens or max(1, options.max_length - prompt_tokens)
        settings["max_new_tokens"] = room
        if options.draws_tokens:
            settings |= {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k}
        if options.num_beams > 1:
            settings["length_penalty"] = options.length_penalty
        return TransformersGenerationConfig(**settings)


def resolve_stop_ids(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_markers: Sequence[str] = ()
) -> tuple[int, ...]:
    """Return every token that ends an answer, ascending.

    They come from three places, since checkpoints name them in any of these: the tokenizer's end token, the model's
    generation settings, and the end markers of the chat template that the model was trained with.
    """
    stop_ids: set[int] = set()
    if tokenizer.eos_token_id is not None:
        stop_ids.add(int(tokenizer.eos_token_id))
    settings = model.generation_config if find_base_model(model).can_generate() else None
    named = settings.eos_token_id if settings is not None else None
    stop_ids.update([] if named is None else [named] if isinstance(named, int) else named)
    stop_ids.update(token for marker in end_markers if (token := _find_token(tokenizer, marker)) is not None)
    return tuple(sorted(stop_ids))


def _find_token(tokenizer: PreTrainedTokenizerBase, marker: str) -> int | None:
    """Return the token that is a marker by itself, if there is one."""
    ids = tokenizer(marker, add_special_tokens=False)["input_ids"]
    return int(ids[0]) if len(ids) == 1 else None


class _TokenChannel(StoppingCriteria):
    """Carries tokens from the thread that runs the model to the one that reads, and the wish to stop back."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self._queue: SimpleQueue[int | None] = SimpleQueue()
        self._prompt_is_seen = False

    def put(self, value: Tensor) -> None:
        """Take new tokens from transformers, whose first call hands over the prompt."""
        if not self._prompt_is_seen:
            self._prompt_is_seen = True
            return
        for token in value.reshape(-1).tolist():
            self._queue.put(int(token))

    def end(self) -> None:
        """Do nothing: transformers calls it only when all went well, `close` is called in any case."""

    def close(self) -> None:
        """Tell the reader that no token will follow."""
        self._queue.put(None)

    def tokens(self) -> Iterator[int]:
        """Yield tokens as they come, until the channel is closed."""
        while (token := self._queue.get()) is not None:
            yield token

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        """Tell transformers whether to stop. Shape [batch]."""
        return torch.full((input_ids.shape[0],), self.is_cancelled, dtype=torch.bool, device=input_ids.device)


def _check_prompts(prompts: Sequence[Sequence[int]]) -> None:
    for number, prompt in enumerate(prompts):
        assert len(prompt) > 0, f"prompt {number} is empty; a model needs at least one token to continue"


def _cut_at_stop(ids: Sequence[int], stop_ids: Sequence[int]) -> list[int]:
    for position, token in enumerate(ids):
        if token in stop_ids:
            return list(ids[:position])
    return list(ids)
