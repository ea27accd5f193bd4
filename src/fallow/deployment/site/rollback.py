"""Rolling back a run at a site.

When a site is left out of a round, or a reply cannot be used, the coordinator repeats the later
exchanges under new keys, with a higher number of retries. A site then invalidates its exchanges
from that position on, so that they can be repeated with other models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fallow.core.exchange_key import ExchangeKey
from fallow.core.refusal import Refusal
from fallow.core.types import SiteId
from fallow.deployment.ledger.instructions import Instructions
from fallow.deployment.site.schedule import InstructionPosition, RunSchedule
from fallow.transport.envelope import Instruction


@final
@dataclass(frozen=True)
class Rollback:
    """Rollback of the runs of a study at a site.

    A rollback gives the coordinator no additional label, labeling task, score, epsilon or delta,
    because these are counted in totals that are never reduced.

    ``is_masked``: with secure aggregation, only the newest exchange can be rolled back. A repeated
    sum over fewer sites with other keys would reveal the contribution of the missing sites
    (`privacy.guard`).
    """

    schedule: RunSchedule
    instructions: Instructions
    site: SiteId
    is_masked: bool = False

    def follow(
        self,
        instruction: Instruction,
        position: InstructionPosition,
        newest: ExchangeKey | None,
    ) -> None:
        """Roll back if a new instruction requires it.

        The rollback is part of the instruction's turn and remains if the instruction fails.
        ``newest`` is the key of the run's last exchange. Raises Refusal for an earlier instruction
        that is not a repetition.
        """
        if self.instructions.is_taken_back(instruction.run, instruction.key):
            raise Refusal(
                f"site {self.site} has rolled back exchange {instruction.key}, which is completed: "
                "this is a replay, or the coordinator's folder was restored from a backup"
            )
        is_back = (
            newest is not None and position.rank <= self.schedule.find_position(newest).rank
        )
        if is_back and not position.key.retry:
            raise Refusal(
                f"site {self.site} has performed {newest}, and instruction {instruction.key} precedes "
                "it in a run of this study: a run only rolls back to repeat an exchange"
            )
        if self.is_masked and position.key.retry:
            self._check_newest(instruction, position)
        if is_back or self._has_failed(instruction, position):
            self._go_back(instruction, position)

    def _check_newest(
        self, instruction: Instruction, position: InstructionPosition
    ) -> None:
        """Raise Refusal unless the exchange is the newest of all exchanges ever requested.

        Invalid exchanges are included, so that a run cannot be rolled back one exchange at a time.
        """
        for key in self.instructions.load_every_key(instruction.run):
            if position.rank < self.schedule.find_position(key).rank:
                raise Refusal(
                    f"site {self.site} has performed {key} and does not go back to "
                    f"{instruction.key}: with secure aggregation, only the newest exchange "
                    "can be repeated"
                )

    def _has_failed(self, instruction: Instruction, position: InstructionPosition) -> bool:
        """Return whether the exchange failed under another key, which is then invalid."""
        for key in self.instructions.load_failed_keys(instruction.run):
            if (
                key != instruction.key
                and self.schedule.find_position(key).rank == position.rank
            ):
                return True
        return False

    def _go_back(self, instruction: Instruction, position: InstructionPosition) -> None:
        newest: ExchangeKey | None = (
            None  # the newest exchange performed before this position
        )
        taken_back: list[ExchangeKey] = []
        for key in self.instructions.load_standing_keys(instruction.run):
            if self.schedule.find_position(key).rank < position.rank:
                newest = key
            else:
                taken_back.append(key)
        for key in self.instructions.load_failed_keys(instruction.run):
            if self.schedule.find_position(key).rank >= position.rank:
                taken_back.append(key)
        self.instructions.go_back(
            run=instruction.run, key=instruction.key, keys=taken_back, newest=newest
        )
