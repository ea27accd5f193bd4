"""Errors of runs and files, with messages for users."""

from __future__ import annotations

from fallow.core.refusal import Halted


class Failed(Halted):
    """A run could not go on, and nobody used it wrongly: a full disk, a damaged file, training
    that diverged.  The command ends with exit code 1, not 2."""


class Damaged(Failed):
    """A file is not what was written."""


class Replaced(Failed):
    """A file was moved away, or another took its place, while it was open."""


class Unwritable(Failed):
    """A file cannot be read or written: a full disk, a folder of somebody else."""


class Stopped(Failed):
    """Somebody pressed Ctrl-C; the words say what is kept and how to go on.  The command ends with
    exit code 130, as shells expect."""


def sentence(error: BaseException) -> str:
    """An error on one line.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'a.csv: No such file or directory; check that it is there and may be read and written'
    >>> sentence(KeyError("w"))
    "KeyError: 'w'"
    """
    if isinstance(error, OSError) and error.filename is not None:
        way_out = "check that it is there and may be read and written"
        return f"{error.filename}: {error.strerror}; {way_out}"
    message = " ".join(str(error).split())
    is_worded = isinstance(error, ValueError | RuntimeError | OSError)
    if message and is_worded:
        return message
    return f"{type(error).__name__}: {message}".rstrip(": ")
