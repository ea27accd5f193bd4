"""Metadata of a public dataset, available before it is read; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """File of a dataset, as its publisher distributes it.

    Parameters
    ----------
    name : str
        Path in the data folder. The content of a ``.gz`` file may lie there without the suffix.
    size : int, optional
        Size in bytes.
    checksum : str
        ``sha256:...`` or ``md5:...`` of the published file; empty if it is not known.
    url : str
        Address of the file, if it is stable. Under ``openml.org/api`` it is the address of a
        description that contains the address.
    members : tuple of str
        Files of an archive that are read. They may lie unpacked in the data folder.
    is_optional : bool
        Whether the dataset can be read without the file.
    """

    name: str
    size: int | None = None
    checksum: str = ""
    url: str = ""
    members: tuple[str, ...] = ()
    is_optional: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Edition:
    """One form in which a dataset is published: its files, and their reader.

    Parameters
    ----------
    files : tuple of PublishedFile
        Files of this form.
    read : str
        Reader as ``module:function``, which receives `DataFiles` and returns a dataset.
    """

    files: tuple[PublishedFile, ...] = ()
    read: str


@final
@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """Metadata of a named dataset.

    Parameters
    ----------
    name : str
        Name in settings.
    task : {"classification", "regression"}
        Task.
    rows : int
        Number of training and test examples in the source.
    shape : tuple of int
        Shape of an example, as loaded.
    editions : tuple of Edition
        Forms in which the dataset is published. The first one is downloaded.
    classes : int
        Number of classes; 0 for regression.
    class_names : tuple of str
        Names of the classes by label, if the files do not contain them.
    sites : str
        Description of the natural sites.
    source : {"bundled", "file"}
        Whether the dataset comes with an installed package.
    page : str
        Web page of the publisher.
    license : str
        License as stated by the publisher.
    citation : str
        Publication to cite.
    pickles : tuple of str
        Files of the same data that are Python pickles, which are never read.
    """

    name: str
    task: Literal["classification", "regression"]
    rows: int
    shape: tuple[int, ...]
    editions: tuple[Edition, ...]
    classes: int = 0
    class_names: tuple[str, ...] = ()
    sites: str = ""
    source: Literal["bundled", "file"] = "file"
    page: str = ""
    license: str = "none stated"
    citation: str = ""
    pickles: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """Files of the first edition."""
        return self.editions[0].files

    @property
    def can_fetch(self) -> bool:
        """Whether all required files have a stable address."""
        required = [file for file in self.files if not file.is_optional]
        return bool(required) and all(file.url for file in required)
