"""The products of a query on a device, as long as its memory suffices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, final

from fallow.core.products import taking_products_on
from fallow.engine.device import describe_failure, is_device_error
from fallow.engine.in_flight import Tell, is_out_of_memory
from fallow.engine.placement import DeviceFailed, Placement

Answer = TypeVar("Answer")

TRIES = 2  # the second once the device has given back the rows that it keeps for training


@final
@dataclass
class SelectionDevice:
    """Runs site functions such that their products (`fallow.core.products`) are taken on a device.

    Products are never rough, whatever the precision of training: distances are differences.  Where
    memory is short, what the device can give back (``free``) is given back and the site function
    runs again: it changes nothing of its site and draws from named streams.  Where that is not
    enough, the processor takes all products from there on, and ``tell`` says so.
    """

    placement: Placement
    tell: Tell
    free: Callable[[], None]
    is_used: bool = True

    def run(self, site_function: Callable[[], Answer]) -> Answer:
        """Run a client function and return its reply.  Raises `DeviceFailed` if the device failed."""
        if self.is_used:
            for _ in range(TRIES):
                answer = self._try(site_function)
                if answer is not None:
                    return answer
                self.free()  # here, where no traceback keeps the tensors of the try
            self._give_up()
        with taking_products_on(None):
            return site_function()

    def _try(self, site_function: Callable[[], Answer]) -> Answer | None:
        """The answer; None where memory was short."""
        fine = replace(self.placement, precision="float32")
        try:
            with fine.computing(), taking_products_on(self.placement.device):
                return site_function()
        except RuntimeError as error:
            if is_device_error(error):
                why = describe_failure(self.placement, error, "chose rows")
                raise DeviceFailed(why) from error
            if not is_out_of_memory(error):
                raise
        return None

    def _give_up(self) -> None:
        self.is_used = False
        self.tell(
            f"device {self.placement.device.type} has not enough memory to compare the rows of a "
            "query: the processor does from here on, which takes longer and comes to the same"
        )
