"""Datasets, named or from the user, and partitions over sites."""

from fallow.data.catalog.named import load, load_outline
from fallow.data.dataset import (
    Dataset,
    Task,
    check_leak,
    drop_leaks,
    embed_rows,
    row_hashes,
    take_rows,
)
from fallow.data.loaders.features import read_rows
from fallow.data.loaders.open import (
    from_arrays,
    from_folder,
    from_npz,
    from_table,
    open_dataset,
)
from fallow.data.partition.shares import (
    class_counts,
    hold_out,
    partition_report,
    test_shares,
    validation_split,
)
from fallow.data.tables import standardize

__all__ = [
    "Dataset",
    "Task",
    "check_leak",
    "class_counts",
    "drop_leaks",
    "embed_rows",
    "from_arrays",
    "from_folder",
    "from_npz",
    "from_table",
    "hold_out",
    "load",
    "load_outline",
    "open_dataset",
    "partition_report",
    "read_rows",
    "row_hashes",
    "standardize",
    "take_rows",
    "test_shares",
    "validation_split",
]
