"""Labeling tools that installed distributions add (entry points ``fallow.labeling_tools``).

A tool formats the labeling tasks of a site as files, and parses a file of labels that it has
exported.  It may also exchange both with a server.  All of this runs at the site, on its data, so
``site.toml`` must allow the distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, final

from pydantic import Field, with_config

from fallow.core.extensions import load_extension
from fallow.core.names import ClassKind, NamePolicy
from fallow.deployment.ledger import Ledger
from fallow.deployment.site.folder import SiteFolder
from fallow.storage.validation import STRICT, Count

JsonObject = Mapping[str, object]
"""Object of a JSON file, whose values are not validated yet."""
Cells = dict[str, object]
"""Values of one line of a file by column name."""


class DisplayedContent(Protocol):
    """An image as it is sent to a browser."""

    @property
    def content(self) -> bytes: ...
    @property
    def media_type(self) -> str: ...


class ShowRow(Protocol):
    """Function that returns the image of a row or of a slice of a case, or None."""

    def __call__(self, row: int, number: int = 0, /) -> DisplayedContent | None: ...


@final
@dataclass(frozen=True)
class LabelingTasks:
    """Labeling tasks of a site.

    Attributes
    ----------
    lines : sequence of mapping
        Tasks in the order of selection, with the columns of `labels_io`.  The label is empty in an
        open task.
    choices : sequence of str
        Texts of which an annotator chooses one: classes, and answers that are no label; empty for
        regression.
    show : callable
        Function that returns the image of a row, or None. Its second argument is the slice of a case.
    """

    lines: Sequence[JsonObject]
    choices: Sequence[str]
    show: ShowRow


@final
@with_config(STRICT)
@dataclass(frozen=True)
class Imported:
    """Result of an import."""

    recorded: Annotated[
        Count,
        Field(description="new labels; 0 if lines were rejected without `--partial`"),
    ]
    same: Annotated[Count, Field(description="labels that existed already")]
    empty: Annotated[Count, Field(description="lines without a label")]
    refused: Annotated[
        tuple[str, ...], Field(description="a sentence for each rejected line")
    ]


@final
@with_config(STRICT)
@dataclass(frozen=True)
class Synced:
    """Result of a synchronization with a server."""

    project: Annotated[int, Field(description="project of the labeling tool")]
    sent: Annotated[Count, Field(description="number of new tasks")]
    taken: Annotated[Imported, Field(description="import of annotations")]
    file: Annotated[str, Field(description="file with the imported annotations")]


class Shape(NamedTuple):
    """A shape that an annotator drew, and its bounds in pixels from the top left corner."""

    kind: str
    label: str | None
    left: float
    top: float
    right: float
    bottom: float


class DrawnImage(NamedTuple):
    """An image with the shapes of its annotators. ``name`` is that of its file."""

    name: str
    width: int
    height: int
    shapes: tuple[Shape, ...]


class LabelingTool:
    """Base class of labeling tools.  A tool overrides what it supports."""

    def format_tasks(self, tasks: LabelingTasks) -> Mapping[str, bytes]:
        """Return the content of each file to write, by suffix: first that of the user's file.

        Further files get the name of the first one with another suffix.
        """
        raise ValueError("this labeling tool writes no files of tasks")

    def parse_labels(self, content: bytes) -> list[Cells]:
        """Return the columns of each label in a file, in order.

        The columns are ``id`` or ``row``, ``label`` (empty if not labeled), and, if known,
        ``annotator`` and ``location``, such as "entry 3" (default: "label" and its number).
        Raises ValueError for a file in another format.
        """
        raise ValueError("this labeling tool reads no files of labels")

    def parse_shapes(self, content: bytes) -> list[DrawnImage]:
        """Return the images in a file with the shapes of annotators.

        Raises ValueError for a file in another format.
        """
        raise ValueError("this labeling tool reads no masks or boxes")

    def name_slice(self, stem: str, number: int) -> str:
        """Return the name of a slice of a case, without extension; numbers start at 0.

        >>> LabelingTool().name_slice("000003-head", 12)
        '000003-head-0012'
        """
        return f"{stem}-{number:04d}"

    def name_example(self, row: int, name: str) -> str:
        """Return the ``id`` of an example in files of this tool (default: its name)."""
        return name

    def sync(self, folder: SiteFolder, ledger: Ledger, show: ShowRow) -> Synced:
        """Import labels from the tool's server, and send it new labeling tasks."""
        raise ValueError("this labeling tool has no server: use export and import")


TOOL = ClassKind("labeling tool", base=lambda: LabelingTool, group="fallow.labeling_tools")
"""Required kind of a labeling tool."""


def find_tool(name: str, policy: NamePolicy) -> LabelingTool:
    """Return a labeling tool by name.

    Raises ValueError if it is not installed, or if ``policy`` does not allow its distribution.
    """
    tool: LabelingTool = load_extension(TOOL, name, policy)()
    return tool
