"""Errors of runs and files, with messages for users."""

from __future__ import annotations

from fallow.core.refusal import RunHalted


class StorageError(RunHalted):
    """A run failed without incorrect use: a full disk, a damaged file, or diverged training.

    The command ends with exit code 1, not 2.
    """


class DamagedFileError(StorageError):
    """The content of a file differs from the written one."""


class ReplacedFileError(StorageError):
    """A file was moved or replaced while it was open."""


class UnwritableFileError(StorageError):
    """A file cannot be read or written, for example because of a full disk or its permissions."""


class Stopped(StorageError):
    """The user pressed Ctrl-C; the message describes the saved state and how to resume.

    The command ends with exit code 130, as shells expect.
    """


def sentence(error: BaseException) -> str:
    """Return an error message on one line.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'a.csv: No such file or directory; check that it exists and can be read and written'
    >>> sentence(KeyError("w"))
    "KeyError: 'w'"
    """
    if isinstance(error, OSError) and error.filename is not None:
        way_out = "check that it exists and can be read and written"
        return f"{error.filename}: {error.strerror}; {way_out}"
    message = " ".join(str(error).split())
    is_worded = isinstance(error, ValueError | RuntimeError | OSError)
    if message and is_worded:
        return message
    return f"{type(error).__name__}: {message}".rstrip(": ")
