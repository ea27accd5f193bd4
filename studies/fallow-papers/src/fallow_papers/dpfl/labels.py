"""Names in the DPFL paper for the fields of its training algorithm."""

from __future__ import annotations

from fallow.core.wording import count_noun

GRAPHS = {
    "static": "random graph",
    "resampled": "random graph each round",
    "degree": "random graph with the same degrees",
    "full": "full graph",
}


def field_words(method: str, field: str, value: object) -> str | None:
    """Describe a field of the algorithm; None for one that is displayed as written.

    >>> field_words("dpfl", "budget", 5), field_words("dpfl", "graph", "static")
    ('5 models', 'random graph')
    """
    if method != "dpfl":
        return None
    if field == "budget" and isinstance(value, int):
        return count_noun(value, "model")
    if field == "budget" and isinstance(value, list) and value:  # one for each site
        return f"{min(value)} to {max(value)} models"
    if field == "alone" and isinstance(value, str):
        return f"{value} sites only send"
    if field == "alone":
        return "some sites only send"
    if field == "graph":
        return GRAPHS.get(str(value), f"{value} graph")
    return None
