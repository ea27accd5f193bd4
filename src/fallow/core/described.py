"""Descriptions of fields in modules that do not load pydantic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class Described:
    """Description of a field in its annotation: ``Annotated[int, Described("batch size")]``."""

    text: str

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:  # schemas of pydantic
        return {**handler(core_schema), "description": self.text}
