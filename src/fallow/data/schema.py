"""The hash of what sites must agree on before they train one model."""

from __future__ import annotations

import hashlib
import json

from fallow.data.dataset import Dataset


def schema_hash(dataset: Dataset) -> str:
    """32 hexadecimal digits of the task, the columns and their order, a row's shape and type, and
    the class names and their order.  The rows, their number and the sites' names are no part of it.
    """
    schema = {
        "task": dataset.task,
        "columns": dataset.columns,
        "shape": list(dataset.x.shape[1:]),
        "dtype": str(dataset.x.dtype),
        "classes": dataset.classes,
    }
    text = json.dumps(schema, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
