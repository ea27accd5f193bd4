"""The sections of a report about the run: what left each site, what it cost, how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from fallow.core.disclosure import DisclosureEntry
from fallow.core.words import counted, duration, listed, size
from fallow.experiment.record import Record
from fallow.report.blocks import Block, Blocks, Command, Fold, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.final_table import label_of
from fallow.report.live import read_live
from fallow.settings.spec import Spec
from fallow.study.names import heading
from fallow.study.reading import Cell, StudyRecords

SEEN_BY = {
    "sum": "the server: totals only (each addend too, unless sums are masked)",
    "each": "the server: every site's answer",
    "keep": "the server: a count; the answer stays at the site",
    "relay": "the receiving site; sealed to the server",
    "fit": "nobody: local training",
}
"""Who saw what left a site, by the kind of the exchange."""

MOST_NAMED = 12
"""So many runs that are not complete are named."""

MASKED = "the server: totals only; every part was masked"
NOISE = (
    "ε is the most that one site spent on noise in a run; releases add up. It covers the class "
    "counts that a query releases, where one labelled row is replaced by another. It does not "
    "cover model weights (which tell much about class counts), the number of labelled rows of a "
    "site (which weights its model), who took part, or which rows a label made a site buy later. "
)
SOURCE = {
    True: "The noise came from the operating systems of the sites.",
    False: "This was a simulation: its noise comes from the seed, and a real site's from its "
    "operating system.",
}
"""Where noise came from, by whether the sites were real."""
MASKS = (
    "Masked sums keep each site's part from a coordinator that follows the protocol and does not "
    "collude with all but one of the sites in a sum. The totals themselves are seen, and the "
    "difference of two totals over cohorts that differ by one site is that site's part."
)


@dataclass(frozen=True)
class Exchange:
    """What one verb let out in a whole run, mean over seeds."""

    query: str
    kind: str
    verb: str
    what: str
    sites: int
    exchanges: float
    amount: float
    epsilon: float = 0.0  # what a site spent on noise
    masked: bool = False


def _count(sites: object) -> int:
    """A number of sites, given as one or as their names."""
    if isinstance(sites, list):
        return len(sites)
    return sites if isinstance(sites, int) else 0


def exchanges(study: StudyRecords) -> list[Exchange]:
    """What left the sites, by query and verb: in a whole run, mean over seeds."""
    found = []
    for query in study.study.queries:
        cells = study.of(query)
        held: dict[tuple[str, str, str], list[DisclosureEntry]] = {}
        for cell in cells:
            for entry in _entries(cell):
                name = (str(entry["kind"]), str(entry["verb"]), str(entry.get("what", "")))
                held.setdefault(name, []).append(entry)
        for (kind, verb, what), entries in held.items():
            found.append(
                Exchange(
                    query=query,
                    kind=kind,
                    verb=verb,
                    what=what,
                    sites=max(_count(e.get("sites")) for e in entries),
                    exchanges=_total(entries, "exchanges") / len(cells),
                    amount=_total(entries, "bytes") / len(cells),
                    epsilon=max(float(e.get("epsilon") or 0) for e in entries),
                    masked=any(e.get("masked") for e in entries),
                )
            )
    return found


def _total(entries: Iterable[DisclosureEntry], key: Literal["exchanges", "bytes"]) -> int:
    return sum(int(e.get(key) or 0) for e in entries)


def _entries(cell: Cell) -> Iterable[DisclosureEntry]:
    """What was revealed up to the last record: the counts of a run only grow."""
    return (cell.records[-1].get("revealed") or ()) if cell.records else ()


def left(study: StudyRecords, key: str) -> Blocks:
    """What left each site."""
    found = exchanges(study)
    if not found:
        return [Note("The records name no exchange.")]
    is_noisy = any(e.epsilon for e in found)
    header = [
        heading(study.study),
        "Kind",
        "Verb",
        "What",
        "Who saw it",
        "Sites",
        "Exchanges",
        "Bytes",
    ]
    rows = [_exchange_row(study, e) for e in found]
    if is_noisy:
        header.append("ε per site")
        for row, e in zip(rows, found, strict=True):
            row.append(f"{e.epsilon:g}" if e.epsilon else NOTHING)
    queries = [e.query for e in found]
    is_first = [i > 0 and queries[i] != queries[i - 1] for i in range(len(queries))]
    blocks: list[Block] = [
        Table(
            "All sites together, per run (mean over seeds)",
            header=header,
            rows=rows,
            words=5,
            classes=["first" if first else "" for first in is_first],
        )
    ]
    if is_noisy:
        is_real = read_live(study.path) is not None
        blocks.append(Note(NOISE + SOURCE[is_real]))
    if any(e.masked for e in found):
        blocks.append(Note(MASKS))
    return blocks


def _exchange_row(study: StudyRecords, e: Exchange) -> list[str]:
    return [
        label_of(e.query, study.study),
        e.kind,
        e.verb,
        e.what,
        MASKED if e.masked else SEEN_BY.get(e.kind, "unknown"),
        str(e.sites),
        f"{e.exchanges:.0f}",
        size(e.amount),
    ]


def ends(
    study: StudyRecords,
    query: str,
    key: Literal["labelled", "seconds", "bytes_up", "bytes_down"],
) -> list[float]:
    """The last value of a cumulative count, one per seed that has it."""
    last = [cell.records[-1].get(key) for cell in study.of(query) if cell.records]
    return [float(v) for v in last if v is not None]


def mean_text(values: list[float], show: Callable[[float], str]) -> str:
    """The mean in words; a dash for none."""
    return show(fmean(values)) if values else NOTHING


def _all(study: StudyRecords, value: Callable[[Record], object]) -> list[str]:
    found = dict.fromkeys(
        str(v) for cell in study.cells for r in cell.records if (v := value(r)) is not None
    )
    return list(found)


def _costs(study: StudyRecords) -> Table:
    rows = [
        [
            label_of(q, study.study),
            str(len(study.of(q))),
            mean_text(ends(study, q, "seconds"), duration),
            mean_text(ends(study, q, "bytes_up"), size),
            mean_text(ends(study, q, "bytes_down"), size),
        ]
        for q in study.study.queries
    ]
    caption = "Cost of a run, mean over seeds (bytes with the models, all sites)"
    header = [heading(study.study), "Runs", "Time", "Sites to server", "Server to sites"]
    return Table(caption, header, rows)


def _settings(study: StudyRecords) -> Table:
    versions = dict(study.study.versions)
    for cell in study.cells:
        for record in cell.records[-1:]:
            versions |= record.get("versions") or {}
    facts = {
        "Seeds": map(str, study.study.seeds),
        "Executor": _all(study, lambda r: r.get("executor")),
        "Threads": _all(study, lambda r: r.get("threads")),
        "Versions": (f"{name} {version}" for name, version in versions.items()),
    }
    rows = [[name, ", ".join(values) or NOTHING] for name, values in facts.items()]
    rows += [
        [name, text]
        for key in study.study.recipe
        for name, text in set_words(key, study.study.recipe[key])
    ]
    return Table("Settings, as --set takes them", ["Name", "Value"], rows, words=2)


def set_words(name: str, value: object) -> Iterator[tuple[str, str]]:
    """A setting in the words of ``--set``, its parts one by one; nothing where it is not set.

    >>> list(set_words("model", {"name": "mlp", "fields": {"width": 8}}))
    [('model', 'mlp:width=8')]
    >>> list(set_words("plan", {"batch": 16, "stop_at": None}))
    [('plan.batch', '16')]
    """
    if isinstance(value, Mapping) and value.keys() == {"name", "fields"}:
        yield name, str(Spec(**value))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from set_words(f"{name}.{key}", part)
    elif value not in (None, ""):
        yield name, value if isinstance(value, str) else json.dumps(value, default=str)


def _gaps(study: StudyRecords) -> list[Block]:
    """What is not there: runs that are not complete, lines that could not be read."""
    said: list[Block] = []
    waiting = [f"{label_of(q, study.study)} seed {k}" for q, k in study.missing]
    if len(waiting) > MOST_NAMED:
        rest = len(waiting) - MOST_NAMED
        waiting = [*waiting[:MOST_NAMED], f"{rest} more"]
    if waiting:
        said.append(Note(f"Not complete: {listed(waiting)}."))
    if study.damaged:
        were = "was" if study.damaged == 1 else "were"
        said.append(Note(f"{counted(study.damaged, 'damaged line')} {were} skipped."))
    return said


def how(study: StudyRecords, key: str) -> Blocks:
    """How it was run."""
    command = study.study.command
    typed: list[Block] = [Command(command)] if command else []
    folded = Fold("Settings", [_settings(study)])
    return [*typed, _costs(study), *_gaps(study), folded]
