"""Compatibility of Fallow versions: compatible versions select the same examples."""

from __future__ import annotations

from fallow.core.refusal import Refusal
from fallow.core.version import __version__


def check_release(
    theirs: str, whose: str, own: str = __version__, mine: str = "this machine"
) -> None:
    """Raise ValueError if two versions may compute differently.

    This is the case if the first two components of their version numbers differ.

    >>> check_release("0.4.1", "site north", own="0.4.0")
    >>> check_release("0.4.1", "b", own="0.5.0", mine="a")
    Traceback (most recent call last):
    fallow.core.refusal.Refusal: b has Fallow 0.4.1 and a 0.5.0: ...
    """
    if theirs.split(".")[:2] != own.split(".")[:2]:
        raise Refusal(
            f"{whose} has Fallow {theirs} and {mine} {own}: their results may "
            "differ; install one version everywhere"
        )
