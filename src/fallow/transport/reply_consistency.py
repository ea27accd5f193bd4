"""Consistency of replies: replies that differ in form from most others are rejected.

The server side processes all replies at once. A reply without the fields of the others would stop
it, and again after every restart, because an accepted reply is not requested again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import Tensor

from fallow.core.messages import Request
from fallow.core.types import SiteId, Value, Values

Form = tuple[tuple[str, str], ...]
"""Names of the fields of a reply with the type of each value."""


def find_inconsistent(
    replies: Mapping[SiteId, Values], are_ragged: bool = False
) -> dict[SiteId, str]:
    """Return the sites whose reply differs in fields or shapes from most others, and why.

    With ``are_ragged``, only the number of tensor dimensions must agree, because each site may
    report as many rows as it has. If several forms are equally frequent, the form of the first site
    in sorted order is used.

    >>> find_inconsistent({"a": {"n": 1.0}, "b": {"n": 2.0, "w": 1.0}, "c": {"n": 3.0}})
    {'b': "its reply has the fields ['n', 'w'], but the others have ['n']: all ..."}
    """
    if not replies:
        return {}
    forms = {site: _describe_form(replies[site], are_ragged) for site in sorted(replies)}
    usual = Counter(forms.values()).most_common(1)[0][0]
    refused: dict[SiteId, str] = {}
    for site, form in forms.items():
        if form != usual:
            refused[site] = _describe_difference(form, usual)
    return refused


def _describe_form(reply: Values, is_ragged: bool) -> Form:
    """Return the names in a reply in sorted order, and their shapes and types."""
    kinds = [(name, _describe_kind(value, is_ragged)) for name, value in reply.items()]
    return tuple(sorted(kinds))


def _describe_kind(value: Value, is_ragged: bool) -> str:
    if isinstance(value, Tensor) and value.ndim:
        if is_ragged:
            return f"a tensor of {value.ndim} dimensions"
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "text"
    return "a number"


def _describe_difference(form: Form, usual: Form) -> str:
    own = dict(form)
    others = dict(usual)
    if own.keys() != others.keys():
        return (
            f"its reply has the fields {sorted(own)}, but the others have "
            f"{sorted(others)}: all sites must run the same version"
        )
    name = next(name for name in own if own[name] != others[name])
    return (
        f"{name} is {own[name]}, but that of other sites is {others[name]}: all "
        "sites must use one model and run the same version"
    )


def is_ragged(request: Request) -> bool:
    """Return whether replies may differ in length because each describes one site's rows."""
    return request.owner != "annotators" and request.steps[-1].kind == "each"
