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


@contextmanager
def explain_errors(
    before: str,
    after: str = "",
    of: type[Exception] | tuple[type[Exception], ...] = ValueError,
    to: type[Exception] = ValueError,
) -> Iterator[None]:
    """Raise errors of a library or a lower layer with the place and the advice of this one.

    Errors ``of`` these classes are raised as ``to``, with their message between ``before`` and
    ``after``; of an error of the operating system, without its number and path.

    >>> with explain_errors("ages.csv: ", after="; correct it"):
    ...     int("old")
    Traceback (most recent call last):
    ...
    ValueError: ages.csv: invalid literal for int() with base 10: 'old'; correct it
    """
    try:
        yield
    except of as error:
        message = getattr(error, "strerror", None) or error
        raise to(f"{before}{message}{after}") from error
