"""The page of all settings, as ``docs/settings.md`` has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.settings.fields import describe_classes
from fallow.settings.listing import Setting, list_settings

HEAD = """# Settings

Everything that `--set NAME=VALUE` and `.toml` files take. `fallow settings NAME` shows one of them, and
`fallow init STUDY.toml --data FILE` writes a file for your own data. This page is written by
`python scripts/settings_page.py`.

In a file a part is a table or a name with dots: `training_config.optimizer.lr = 0.1`. On the
command line the end
of a name is enough where it is one setting's: `--set lr=0.1`, `--set alpha=0.3` (of the partition). The
training configuration of training is meant then; the settings of `local_training_config`, which
are those of `training_config` for a query's
local model, need their whole names. Paths in a file are relative to the file.
"""
PARTS: Mapping[str, str] = {
    "partition": "Partitions",
    "encoder": "Encoders",
    "model": "Models",
}
"""Setting -> the title of the list of its classes.  Strategies and training methods: README."""


def settings_page() -> str:
    """The page in Markdown."""
    settings = [
        one for one in list_settings() if not one.name.startswith("local_training_config.")
    ]
    rows = [_cells(setting) for setting in settings]
    lines = [HEAD, *_table(("Setting", "Type", "Default", "Meaning"), rows)]
    for part, title in PARTS.items():
        rows = []
        for one in describe_classes(part):
            fields = ", ".join(f"`{name}={value}`" for name, value in one.fields.items())
            rows.append([f"`{one.name}`", one.what.replace("``", "`"), fields])
        lines += ["", f"## {title}", "", f"`{part} = NAME`, or `NAME:field=value`.", ""]
        lines += _table(("Name", "What", "Fields with defaults"), rows)
    return "\n".join(lines) + "\n"


def _cells(setting: Setting) -> list[str]:
    name = f"`{setting.name}`"
    return [name, setting.type, f"`{setting.default}`", setting.meaning]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, without alignment of its columns in the source."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
