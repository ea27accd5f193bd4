"""Labeling tasks and labels in the JSON format of Label Studio.

The format is described at https://labelstud.io/guide/task_format. ``data`` of a task is a line of
`labels_io`, with the features of a table in ``data.features`` for the tag ``Table``.
``annotations`` has one entry per annotator, whose list ``result`` has the values of the control
tags. The tag named ``label`` is used, or the only tag if none has that name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from fallow.core.refusal import explain_errors
from fallow.deployment.site.labeling_tools import Cells, JsonObject
from fallow.storage.received import decode_text

TAG = "label"
"""Name of the input tag."""
SHOWN = "sample"
"""Name of the tag that displays the example."""
FEATURE = "feature:"
"""Prefix of feature names in a line of `labels_io`."""

# -- export ---------------------------------------------------------------------------------


def build_tasks(lines: Sequence[JsonObject], is_class: bool) -> list[JsonObject]:
    """Build a task for each line. A line with a label has it as an annotation.

    ``is_class``: labels are classes for the tag ``Choices``, otherwise numbers for ``TextArea``.

    >>> build_tasks([{"id": "a", "label": "", "feature:age": "43"}], is_class=True)
    [{'data': {'id': 'a', 'features': {'age': '43'}}}]
    """
    return [_build_task(line, is_class) for line in lines]


def _build_task(line: JsonObject, is_class: bool) -> JsonObject:
    data: dict[str, object] = {}
    features: dict[str, object] = {}
    for name, value in line.items():
        if name.startswith(FEATURE):
            features[name.removeprefix(FEATURE)] = value
        elif name != "label":
            data[name] = value
    if features:
        data["features"] = features

    label = line.get("label")
    if not label:
        return {"data": data}
    return {"data": data, "annotations": [_annotate(label, is_class)]}


def _annotate(label: object, is_class: bool) -> JsonObject:
    """Return an annotation with one label."""
    result: dict[str, object] = {"from_name": TAG, "to_name": SHOWN}
    if is_class:
        result |= {"type": "choices", "value": {"choices": [label]}}
    else:
        result |= {"type": "textarea", "value": {"text": [label]}}
    return {"result": [result]}


# -- import ---------------------------------------------------------------------------------


def read_tasks(content: bytes) -> list[Cells]:
    """Return the labels in the full JSON export, each with its position.

    Raises ValueError for a file in another format.

    >>> read_tasks(b'[{"data": {"id": "a"}}]')
    [{'id': 'a', 'label': '', 'location': 'entry 1'}]
    """
    labels: list[Cells] = []
    for number, task in enumerate(parse_objects(decode_text(content)), start=1):
        location = f"entry {number}"
        with explain_errors(f"{location}: "):
            cells = read_task(task)
        labels += [{**label, "location": location} for label in cells]
    return labels


class _Repeated(ValueError):
    """An object has a key twice."""


def _read_object(pairs: Sequence[tuple[str, object]]) -> Cells:
    """Return a JSON object. Raises ValueError for a repeated key, which readers treat differently."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        times = Counter(name for name, _ in pairs)
        name, _ = times.most_common(1)[0]
        raise _Repeated(f"an object has {name!r:.80} twice")
    return cells


def parse_objects(text: str) -> list[Cells]:
    """Return the objects in the list of a JSON file.

    Raises ValueError for another format, and for a key that an object has twice.
    """
    try:
        tree: object = json.loads(text, object_pairs_hook=_read_object)
    except (json.JSONDecodeError, _Repeated, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    except ValueError as error:  # an integer with thousands of digits
        raise ValueError(
            "it contains a number that is too long for JSON; correct it"
        ) from error
    if not isinstance(tree, list) or not all(isinstance(one, dict) for one in tree):
        raise ValueError("it is not a list of objects; write one object for each label")
    return tree


def read_task(task: JsonObject) -> list[Cells]:
    """Return the label (``label``, ``annotator``) of each annotation and the example in ``data``.

    A skipped or unseen task has an empty label. Raises ValueError for annotations without a label.

    >>> choice = {"from_name": "label", "type": "choices", "value": {"choices": ["ill"]}}
    >>> read_task({"data": {"id": "a"}, "annotations": [{"result": [choice]}]})
    [{'id': 'a', 'label': 'ill', 'annotator': None}]
    """
    data = task.get("data")
    if not isinstance(data, dict):
        raise ValueError("a task has no object 'data', which names its example")
    if not isinstance(task.get("annotations", []), list):
        raise ValueError("'annotations' of a task is not a list")
    sample: Cells = {name: data[name] for name in ("id", "row") if name in data}
    annotations = [
        annotation
        for annotation in _objects(task.get("annotations"))
        if not annotation.get("was_cancelled")
    ]
    if not annotations:
        return [{**sample, "label": ""}]
    output: list[Cells] = []
    for annotation in annotations:
        label = _read_label(annotation)
        annotator = _read_author(annotation) or data.get("annotator")
        output.append({**sample, "label": label, "annotator": annotator})
    return output


def _objects(value: object) -> list[JsonObject]:
    """Return the objects in a list, or nothing for other values."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, dict)]


def _read_label(annotation: JsonObject) -> str:
    filled = _objects(annotation.get("result"))
    named = [tag for tag in filled if tag.get("from_name") == TAG]
    tags = named or filled
    if not tags:
        return ""
    if len(tags) > 1:
        raise ValueError(
            f"an annotation fills in {len(tags)} tags; name the one that counts {TAG!r}"
        )
    tag = tags[0]
    value = tag.get("value")
    if isinstance(value, dict):
        for key in ("choices", "text", "number"):
            if key in value:
                return _join(value[key])
    raise ValueError(
        f"an annotation holds {tag.get('type', 'something else')!r}; labels are read from "
        "Choices, Number or TextArea"
    )


def _join(value: object) -> str:
    """Return a single value, or several separated by commas."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _read_author(annotation: JsonObject) -> str:
    """Return the author of an annotation: an address, a name or a number."""
    author = annotation.get("completed_by")
    if author is None:
        return ""
    if not isinstance(author, dict):
        return f"annotator {author}"
    if author.get("email"):
        return str(author["email"])
    names = [author.get("first_name"), author.get("last_name")]
    name = " ".join(str(part) for part in names if part)
    if not name and "id" in author:
        return f"annotator {author['id']}"
    return name
