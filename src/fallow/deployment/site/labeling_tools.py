"""Labeling tools that installed distributions add (entry points ``fallow.labeling_tools``).

A tool formats the open labeling tasks of a site as a file, and parses a file of labels that it has
exported.  Both run at the site, on its data, so ``site.toml`` must allow the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fallow.core.extensions import load_extension
from fallow.core.names import ClassKind, NamePolicy
from fallow.deployment.site.label_studio import Cells, JsonObject

TOOL = ClassKind(
    "labeling tool", members=("format_tasks", "parse_labels"), group="fallow.labeling_tools"
)
"""Required kind of a labeling tool: `LabelingTool`."""


class LabelingTool(Protocol):
    """Interface of a labeling tool."""

    def format_tasks(self, tasks: Sequence[JsonObject], classes: Sequence[str]) -> bytes:
        """Return labeling tasks as the content of a file.

        Parameters
        ----------
        tasks : sequence of mapping
            Open labeling tasks in the order of selection, with the columns of `labels_io`.
        classes : sequence of str
            Class names; empty for regression.
        """
        ...

    def parse_labels(self, content: bytes) -> list[Cells]:
        """Return the columns of each label in a file, in order.

        The columns are ``id`` or ``row``, ``label`` (empty if not labeled), and ``who`` if known.
        Raises ValueError for a file in another format.
        """
        ...


def find_tool(name: str, policy: NamePolicy) -> LabelingTool:
    """Return a labeling tool by name.

    Raises ValueError if it is not installed, or if ``policy`` does not allow its distribution.
    """
    tool: LabelingTool = load_extension(TOOL, name, policy)()
    return tool
