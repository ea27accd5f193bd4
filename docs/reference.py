"""Write the pages of the reference: one for each group of public names, made from `fallow` itself."""

from __future__ import annotations

from pathlib import Path

from fallow._face import METHODS, PARTS

TITLES = {
    "fallow.strategies": ("Strategies", "Which rows a site has labeled next."),
    "fallow.training": ("Training", "How sites train one model for all."),
    "fallow.training.personal": ("Personal models", "How sites train a model for each."),
    "fallow.data": ("Data and partitions", "Rows, and how simulations deal them to sites."),
    "fallow.encoders": ("Encoders", "What rows become before they are learned from."),
    "fallow.api.models": ("Models", "Networks that come with Fallow."),
}
REST = (
    "Running, comparing, selecting",
    "Federations, runs, studies, and what they are told.",
)


def write_reference(folder: Path) -> None:
    """``index.rst`` and a page for each group; nothing is written where it stands so already."""
    folder.mkdir(exist_ok=True)
    pages = {"running": _page(*REST, [name for names in PARTS.values() for name in names])}
    for module, names in METHODS.items():
        title, about = TITLES[module]
        pages[module.rpartition(".")[2]] = _page(title, about, names)
    listed = "\n".join(f"   {page}" for page in pages)
    pages["index"] = (
        "Reference\n=========\n\nEvery public name, as ``import fallow as fl`` has it.\n\n"
        f".. toctree::\n   :maxdepth: 2\n\n{listed}\n"
    )
    for page, text in pages.items():
        file = folder / f"{page}.rst"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def _page(title: str, about: str, names: tuple[str, ...] | list[str]) -> str:
    listed = "\n".join(f"   {name}" for name in sorted(names, key=str.lower))
    return (
        f"{title}\n{'=' * len(title)}\n\n{about}\n\n"
        f".. currentmodule:: fallow\n\n.. autosummary::\n   :toctree: names\n\n{listed}\n"
    )
