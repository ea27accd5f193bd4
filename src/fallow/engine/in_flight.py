"""Number of sites that a device trains at once, reduced if memory is insufficient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch

from fallow.core.words import count_noun
from fallow.engine.batches import Fitted, Job
from fallow.engine.placement import DeviceFailed

Tell = Callable[[str], None]
"""Reports a message to the observer of a run."""

WORDS = ("out of memory", "not enough memory", "can't allocate memory")
"""Messages of allocators without an error type of their own."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error reports insufficient memory, by its type or its message.

    >>> is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    True
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    output = str(error)
    return any(words in output for words in WORDS)


@final
@dataclass
class SitesInFlight:
    """Train jobs in groups that fit into the memory of a device.

    A group that does not fit is trained again in two halves, and so are all later ones.  Training
    changes no job, so only time is lost.
    """

    device: str
    tell: Tell
    limit: int | None = None  # sites in a group; None: all

    def train(
        self,
        jobs: Sequence[Job],
        train: Callable[[Sequence[Job]], list[Fitted]],
        free: Callable[[], None],
    ) -> list[Fitted]:
        """Train the jobs, group by group.  ``free`` releases memory.

        Raises `DeviceFailed` if not even one site fits.
        """
        result: list[Fitted] = []
        while len(result) < len(jobs):
            group = jobs[len(result) :]
            if self.limit is not None:
                group = group[: self.limit]
            done = self._try(group, train)
            if done is None:
                free()  # here, where no traceback keeps the tensors of the try
                self._halve(group)
            else:
                result += done
        return result

    def _try(
        self, group: Sequence[Job], train: Callable[[Sequence[Job]], list[Fitted]]
    ) -> list[Fitted] | None:
        """Train a group; None if memory is insufficient."""
        try:
            return train(group)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        return None

    def _halve(self, group: Sequence[Job]) -> None:
        n = len(group)
        if n == 1:
            raise DeviceFailed(
                f"device {self.device} has too little memory to train even one site (site "
                f"{group[0].site}); lower batch_size, use a smaller model, run fewer "
                "studies at once, or set device=cpu"
            )
        self.limit = n // 2
        self.tell(
            f"device {self.device} has not enough memory for {count_noun(n, 'site')} at "
            f"once: {self.limit} at a time from now on"
        )
