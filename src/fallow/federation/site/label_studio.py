"""Tasks of Label Studio (https://labelstud.io/guide/task_format): questions out, its full JSON in.

``data`` of a task is a line of `labels_io`, but for the features of a table, which stand together
in ``data.features`` for the tag ``Table``.  What people say stands in ``annotations``: each is one
person's, with a list ``result`` of what its control tags hold.  The tag with the name ``label``
counts; where none has that name there must be one alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TAG, SHOWN = "label", "sample"  # names of the tags: what people fill in, and what they see
FEATURE = "feature:"
Cells = dict[str, Any]


def tasks(lines: Sequence[Mapping[str, Any]], is_class: bool) -> list[dict[str, Any]]:
    """A task for each line; one that has a label brings it as an annotation."""
    made = []
    for line in lines:
        data = {k: v for k, v in line.items() if k != "label" and not k.startswith(FEATURE)}
        if table := {
            k.removeprefix(FEATURE): v for k, v in line.items() if k.startswith(FEATURE)
        }:
            data["features"] = table
        task: dict[str, Any] = {"data": data}
        if label := line.get("label"):
            kind, key = ("choices", "choices") if is_class else ("textarea", "text")
            result = {
                "from_name": TAG,
                "to_name": SHOWN,
                "type": kind,
                "value": {key: [label]},
            }
            task["annotations"] = [{"result": [result]}]
        made.append(task)
    return made


def is_task(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("data"), dict) and isinstance(
        entry.get("annotations", []), list
    )


def cells_of(task: Mapping[str, Any]) -> list[Cells]:
    """What the annotations of a task say: ``label``, ``who``, and the sample as ``data`` names it.

    A task that was skipped, or that nobody has looked at, has an empty label.  Raises ValueError
    for annotations that hold none.
    """
    data = {name: task["data"][name] for name in ("id", "row") if name in task["data"]}
    given = [one for one in task.get("annotations", []) if isinstance(one, dict)]
    given = [one for one in given if not one.get("was_cancelled")]
    if not given:
        return [{**data, "label": ""}]
    author = task["data"].get("who")
    return [{**data, "label": _label(one), "who": _who(one) or author} for one in given]


def _label(annotation: Mapping[str, Any]) -> str:
    result = annotation.get("result")
    parts = (
        [part for part in result if isinstance(part, dict)]
        if isinstance(result, list)
        else []
    )
    parts = [part for part in parts if part.get("from_name") == TAG] or parts
    if not parts:
        return ""
    if len(parts) > 1:
        raise ValueError(
            f"an annotation fills in {len(parts)} tags; name the one that counts {TAG!r}"
        )
    value = parts[0].get("value")
    found = value if isinstance(value, dict) else {}
    for key in ("choices", "text", "number"):
        if key in found:
            said = found[key]
            return ", ".join(map(str, said)) if isinstance(said, list) else str(said)
    raise ValueError(
        f"an annotation holds {parts[0].get('type', 'something else')!r}; labels are read from "
        "Choices, Number or TextArea"
    )


def _who(annotation: Mapping[str, Any]) -> str:
    """Who made an annotation, as far as the file says: an address, a name, or a number."""
    by = annotation.get("completed_by")
    if not isinstance(by, dict):
        return "" if by is None else f"annotator {by}"
    name = " ".join(str(by[part]) for part in ("first_name", "last_name") if by.get(part))
    return str(by.get("email") or name or (f"annotator {by['id']}" if "id" in by else ""))
