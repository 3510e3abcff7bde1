"""The pieces of a stream, encoded by however many workers there are at the time."""

from dataclasses import replace

from tunesmith.data.loading.transport import BatchSlots
from tunesmith.data.streaming.source import StreamSource
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.making import BatchMaker, MadeBatch, PieceMaker, RowMarks, take_all
from tunesmith.training.io.pipe import Plan
from tunesmith.training.io.settings import LoaderPolicy


class PieceFeed(BatchFeed):
    """A feed of encoded pieces: who encodes them, how many ahead, and what happens when one cannot be encoded.

    Args:
        source: What is streamed.
        policy: What is fixed and what is found out.
        ranks: Of this process.
    """

    def __init__(self, source: StreamSource, policy: LoaderPolicy, ranks: Ranks) -> None:
        # What is pinned are the batches that are made of pieces.
        policy = replace(policy, pins_memory=False, describe_row=source.describe_row)
        super().__init__(source.encoder, take_all, policy, ranks=ranks)
        self.is_filling = False
        """Whether the pieces of the first window are fetched in a row, which says nothing about the rest of the run."""

    def open(self, plan: Plan) -> None:
        """Begin the pieces of a stream."""
        self.is_filling = True
        super().open(plan)

    def _note(self, made: MadeBatch, waited: float) -> None:
        if self.is_filling:
            self._handed_over = None  # so that it is not measured
        super()._note(made, waited)

    def _build_maker(self, marks: RowMarks, slots: BatchSlots | None = None) -> BatchMaker:
        return PieceMaker(self.dataset, marks, slots)

    def _describe(self, position: int) -> str:
        return "the next batch of the stream"

    def _describe_near(self, row: int) -> str:
        return f"{self.policy.describe_row(row)} or a row that is encoded with it"
