"""Error messages that may leave a site, and errors that stop a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refusal(ValueError):
    """A site rejects an instruction, for a reason that all parties may read.

    The message contains only what the sender sent, agreed values, and numbers that the coordinator
    knows: exchanges, versions, spent privacy budget.  It contains no value of an example, no label,
    and no name of an example, a file or a person.  Other errors stay at the site: the coordinator
    receives a number that identifies the message in the log of the site.
    """


class RunHalted(RuntimeError):
    """A run cannot continue for an external reason, which the message explains.

    Examples are too few replies, masks that do not cancel, or a killed process.
    """


@contextmanager
def words_stay() -> Iterator[None]:
    """Prevent code that reads examples, such as an algorithm, from raising a `Refusal`."""
    try:
        yield
    except Refusal as error:
        raise RuntimeError(str(error)) from error
