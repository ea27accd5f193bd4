"""Errors in plain words: those that may leave a site, and those that stop a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refusal(ValueError):
    """A site does not do what it was asked, for a reason that everybody may read.

    Its sentence is made of what the asker sent, of what all have agreed on, and of numbers that the
    coordinator knows: exchanges, versions, what noise has cost.  It holds no value of a row, no
    label, no name of a row, a file or a person.  Any other error that goes wrong at a site stays
    there: the coordinator is told a number under which the site's log has the words.
    """


class Halted(RuntimeError):
    """A run cannot go on for a reason outside of the program: too few sites answer, masks do not
    cancel, a process was killed.  Its sentence says what to do; nothing is wrong with Fallow."""


@contextmanager
def words_stay() -> Iterator[None]:
    """Around code that sees rows, of a method for instance: nothing that it raises is a `Refusal`."""
    try:
        yield
    except Refusal as error:
        raise RuntimeError(str(error)) from error
