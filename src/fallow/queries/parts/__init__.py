"""Pure functions with two or more users among the strategies."""

from fallow.queries.parts.quota import apportion, fill
from fallow.queries.parts.top import ranked, top

__all__ = ["apportion", "fill", "ranked", "top"]
