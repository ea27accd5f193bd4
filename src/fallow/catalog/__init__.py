"""Metadata and download of public datasets, without their readers and without torch."""

from fallow.catalog.entry import CatalogEntry, Edition, PublishedFile
from fallow.catalog.folder import DataFiles, data_folder, find_files
from fallow.catalog.named import (
    advise_name,
    find_by_path,
    find_entry,
    is_named,
    list_entries,
    missing_files,
    name_of_data,
    source_files,
)

__all__ = [
    "CatalogEntry",
    "DataFiles",
    "Edition",
    "PublishedFile",
    "advise_name",
    "data_folder",
    "find_by_path",
    "find_entry",
    "find_files",
    "is_named",
    "list_entries",
    "missing_files",
    "name_of_data",
    "source_files",
]
