"""Products of a query on a device, as long as its memory is sufficient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, final

from fallow.core.products import taking_products_on
from fallow.engine.device import describe_failure, is_device_error
from fallow.engine.in_flight import Tell, is_out_of_memory
from fallow.engine.placement import DeviceFailed, Placement

Answer = TypeVar("Answer")

TRIES = 2  # the second attempt follows after the device has released cached examples


@final
@dataclass
class SelectionDevice:
    """Runs client functions with their products (`fallow.core.products`) on a device.

    Products have full precision in every setting, because distances are differences. If
    memory is insufficient, cached examples are released (``free``) and the client function
    runs again: it does not change the site and draws from named streams. If memory is still
    insufficient, the CPU computes all further products, and ``tell`` reports this.
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
        """Return the reply, or None if memory is insufficient."""
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
            f"device {self.placement.device.type} has too little memory to compare the "
            "examples of a query: the CPU is used from now on, which takes longer and "
            "has the same result"
        )
