"""A site whose Label Studio is a server of a test."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.labeling_page.pictures import picture
from fallow.deployment.site.labeling_tools import Synced
from fallow_labeling_tools import LabelStudio
from fallow_labeling_tools.label_studio_server import SERVER

TOKEN = "0123456789abcdef0123456789abcdef01234567"  # noqa: S105 - of a server of this test


class Studio(NamedTuple):
    address: str
    token: str


@dataclass(frozen=True)
class Agreed:
    """The attributes of an agreement that a synchronization reads."""

    name: str
    digest: str
    schema: Any
    plan: AnswerPlan = SINGLE


@dataclass(frozen=True)
class Folder:
    """The attributes of a site's folder that a synchronization reads."""

    path: Path
    name: str
    agreement: Agreed
    rows: Any


def site(queue: LabelQueue, path: Path, studio: Studio) -> Folder:
    """Return a site's folder for this study, connected to the server of the test."""
    file = path / SERVER
    file.write_text(f'address = "{studio.address}"\ntoken = "{studio.token}"\n')
    file.chmod(0o600)
    digest = os.urandom(8).hex()
    return Folder(path, queue.site, Agreed(queue.study, digest, queue.schema), queue.rows)


def sync(folder: Folder, queue: LabelQueue) -> Synced:
    result: Any = folder
    return LabelStudio().sync(
        result, queue.ledger, lambda row, number=0: picture(queue.rows, row, number)
    )
