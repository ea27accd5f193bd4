"""Rows that ``fallow datasets --json`` prints, apart so that they are shown without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, with_config

from fallow.storage.validation import STRICT, Count


@with_config(STRICT)
@dataclass(frozen=True)
class DatasetFile:
    """File of a public dataset."""

    name: Annotated[str, Field(description="path in the data folder")]
    size: Annotated[Count | None, Field(description="size in bytes, if it is known")]
    members: Annotated[
        tuple[str, ...], Field(description="files of the archive that are read")
    ]
    checksum: Annotated[
        str | None, Field(description="`sha256:...` or `md5:...` of the published file")
    ]
    url: Annotated[str | None, Field(description="stable address, if there is one")]
    required: Annotated[bool, Field(description="whether the file is required")]
    present: Annotated[bool, Field(description="whether it lies in the data folder")]


@with_config(STRICT)
@dataclass(frozen=True)
class DatasetRow:
    """Public dataset."""

    name: Annotated[str, Field(description="name in settings", examples=["digits"])]
    task: Annotated[str, Field(description="`classification` or `regression`")]
    rows: Annotated[Count, Field(description="number of examples")]
    shape: Annotated[tuple[int, ...], Field(description="shape of an example")]
    classes: Annotated[int | None, Field(description="number of classes")]
    site: Annotated[str | None, Field(description="sites in the data")]
    source: Annotated[str, Field(description="where it comes from")]
    license: Annotated[str, Field(description="license as stated by the publisher")]
    citation: Annotated[str | None, Field(description="publication to cite")]
    page: Annotated[str | None, Field(description="web page of the publisher")]
    files: Annotated[tuple[DatasetFile, ...], Field(description="published files")]
