"""Report sections on disclosures, cost and reproduction of the study."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from fallow import encoders
from fallow.core.build import build
from fallow.core.client import GROUPS, UNDECLARED, Group, declared
from fallow.core.methods import methods_by_owner
from fallow.core.missing import Missing
from fallow.core.names import BUILT_IN
from fallow.core.wording import count_noun, duration, join_words, size, was_or_were
from fallow.encoders.encoding import Imputation
from fallow.experiment.contribution import MinNewLabels
from fallow.experiment.methods import methods_of
from fallow.report.blocks import Block, Blocks, CollapsibleBlock, Command, Note, Table
from fallow.report.columns import NOTHING
from fallow.report.final_table import label_of
from fallow.report.live import read_live
from fallow.report.waiting import describe_waiting, find_recipe
from fallow.settings.spec import Spec
from fallow.storage.plain import one_line
from fallow.study.names import heading
from fallow.study.reading import RunRecords, StudyRecords

if TYPE_CHECKING:
    from fallow.experiment.record import DisclosureEntry

SEEN_BY = {
    "sum": "the coordinator: the aggregate (and each contribution, without secure aggregation)",
    "each": "the coordinator: the reply of every site",
    "keep": "the coordinator: a count; the result stays at the site",
    "relay": "the receiving site; the coordinator sees ciphertext only",
    "fit": "nobody: local training",
}
"""Recipients of disclosed values, by the kind of exchange."""

PROTOCOL = (Imputation(Missing()), MinNewLabels(counts_all=True))
"""Algorithms of every study, apart from those that its settings name."""

MOST_NAMED = 12
"""Maximum number of incomplete runs that are named."""

MASKED = "the coordinator: the aggregate only (secure aggregation)"
NOISE = (
    "ε is the largest privacy cost that one site had in a run; the costs of all its "
    "releases add up. It covers every release with noise, under replacement of one "
    "labeled example: the class counts that a query releases, and aggregates with "
    "Gaussian noise together with the model trained on them. For those, the guarantee "
    "also has the δ of their training algorithm. ε does not cover the weights of any "
    "other model (which reveal much about class counts), aggregates for feature scaling "
    "or for fitting an encoder, scores on test examples, the number of labeled examples "
    "of a site (the weight of its model), the participating sites, or effects of a label "
    "on later selections. "
)
SOURCE = {
    True: "The noise came from the operating systems of the sites.",
    False: "This was a simulation: its noise comes from the seed. At a real site it "
    "comes from the operating system.",
}
"""Source of the noise, by whether the sites were real."""
MASKS = (
    "Secure aggregation hides the contribution of each site from a coordinator that "
    "follows the protocol and does not collude with all but one of the sites. The "
    "coordinator sees the aggregates. If the cohorts of two aggregates differ by one "
    "site, their difference is the contribution of that site."
)


@dataclass(frozen=True)
class Exchange:
    """Values that one client function disclosed in a run, mean over seeds."""

    strategy: str
    kind: str
    verb: str
    what: str
    sites: int
    exchanges: float
    amount: float
    group: Group
    epsilon: float = 0.0  # privacy cost of a site
    masked: bool = False


def _count_sites(sites: object) -> int:
    """Return the number of sites, from a number or a list of names."""
    if isinstance(sites, list):
        return len(sites)
    if isinstance(sites, int):
        return sites
    return 0


def exchanges(study: StudyRecords) -> list[Exchange]:
    """Return the disclosed values by strategy, group and client function, mean over seeds."""
    result = []
    for strategy in study.study.strategies:
        cells = study.of(strategy)
        groups = find_groups(study, strategy)
        by_name: dict[tuple[str, str, str], list[DisclosureEntry]] = {}
        for cell in cells:
            for entry in _entries(cell):
                name = (str(entry["kind"]), str(entry["verb"]), str(entry.get("what", "")))
                by_name.setdefault(name, []).append(entry)
        for (kind, verb, what), entries in by_name.items():
            exchange = Exchange(
                strategy=strategy,
                kind=kind,
                verb=verb,
                what=what,
                sites=max(_count_sites(entry.get("sites")) for entry in entries),
                exchanges=_total(entries, "exchanges") / len(cells),
                amount=_total(entries, "bytes") / len(cells),
                group=groups.get((kind, verb), UNDECLARED.get(kind, "status")),
                epsilon=max(float(entry.get("epsilon") or 0) for entry in entries),
                masked=any(entry.get("masked") for entry in entries),
            )
            result.append(exchange)
    order = list(study.study.strategies)
    return sorted(
        result, key=lambda one: (order.index(one.strategy), GROUPS.index(one.group))
    )


def find_groups(study: StudyRecords, strategy: str) -> dict[tuple[str, str], Group]:
    """Return the groups of the client functions of a strategy, by operation and name.

    They follow from the declared fields of the built-in algorithms that the study names. User code
    is not imported.
    """
    recipe = find_recipe(study, strategy)
    algorithms: list[object] = [*PROTOCOL]
    if recipe is not None:
        with suppress(ValueError):
            algorithms += methods_by_owner(methods_of(recipe, policy=BUILT_IN)).values()
        if recipe.encoder is not None:
            with suppress(ValueError):
                name = recipe.encoder.name
                algorithms.append(build(encoders, name, BUILT_IN, **recipe.encoder.fields))
    groups: dict[tuple[str, str], Group] = {}
    for algorithm in algorithms:
        for item in declared(algorithm).values():
            groups[item.operation, item.name] = item.group
    return groups


def _total(entries: Iterable[DisclosureEntry], key: Literal["exchanges", "bytes"]) -> int:
    return sum(int(entry.get(key) or 0) for entry in entries)


def _entries(cell: RunRecords) -> Iterable[DisclosureEntry]:
    """Yield the disclosures up to the last record. The counts of a run are cumulative."""
    if not cell.records:
        return ()
    return cell.records[-1].get("revealed") or ()


def disclosure(study: StudyRecords, key: str) -> Blocks:
    """Return the section on what left each site."""
    outcome = exchanges(study)
    if not outcome:
        return [Note("The records contain no exchange.")]
    header = [
        heading(study.study),
        "Data",
        "Kind",
        "Client function",
        "Disclosed",
        "Visible to",
        "Sites",
        "Exchanges",
        "Bytes",
    ]
    rows = [_exchange_row(study, exchange) for exchange in outcome]
    notes = []
    if any(exchange.epsilon for exchange in outcome):
        header.append("ε per site")
        for row, exchange in zip(rows, outcome, strict=True):
            spent = NOTHING
            if exchange.epsilon:
                spent = f"{exchange.epsilon:g}"
            row.append(spent)
        is_real = read_live(study.path) is not None
        notes.append(Note(NOISE + SOURCE[is_real]))
    if any(exchange.masked for exchange in outcome):
        notes.append(Note(MASKS))
    waiting = describe_waiting(study)
    if waiting is not None:
        notes.append(Note(waiting))
    table = Table(
        "All sites together, per run (mean over seeds)",
        header=header,
        rows=rows,
        words=6,
        classes=_lines_between_strategies([exchange.strategy for exchange in outcome]),
    )
    return [table, *notes]


def _lines_between_strategies(strategies: Sequence[str]) -> list[str]:
    """Return the CSS class of each row: a line separates strategies."""
    classes = [""] * len(strategies)
    for at, (before, strategy) in enumerate(pairwise(strategies), start=1):
        if strategy != before:
            classes[at] = "first"
    return classes


def _exchange_row(study: StudyRecords, exchange: Exchange) -> list[str]:
    seen_by = SEEN_BY.get(exchange.kind, "unknown")
    if exchange.masked:
        seen_by = MASKED
    return [
        label_of(exchange.strategy, study.study),
        exchange.group,
        exchange.kind,
        exchange.verb,
        exchange.what,
        seen_by,
        str(exchange.sites),
        f"{exchange.exchanges:.0f}",
        size(exchange.amount),
    ]


def last_counts(
    study: StudyRecords,
    strategy: str,
    key: Literal["labeled", "seconds", "bytes_up", "bytes_down"],
) -> list[float]:
    """Return the last value of a cumulative count for each seed that has it."""
    counts = []
    for cell in study.of(strategy):
        if not cell.records:
            continue
        count = cell.records[-1].get(key)
        if count is not None:
            counts.append(float(count))
    return counts


def mean_text(values: list[float], show: Callable[[float], str]) -> str:
    """Return the mean as text, or a dash for no values."""
    if not values:
        return NOTHING
    return show(fmean(values))


def _values_of(study: StudyRecords, key: str) -> list[str]:
    """Return the distinct values that records have under a name, in order of appearance."""
    values: dict[str, None] = {}  # a set that keeps its order
    for cell in study.cells:
        for record in cell.records:
            value = record.get(key)
            if value is not None:
                values[str(value)] = None
    return list(values)


def _costs(study: StudyRecords) -> Table:
    rows = []
    for strategy in study.study.strategies:
        row = [
            label_of(strategy, study.study),
            str(len(study.of(strategy))),
            mean_text(last_counts(study, strategy, "seconds"), duration),
            mean_text(last_counts(study, strategy, "bytes_up"), size),
            mean_text(last_counts(study, strategy, "bytes_down"), size),
        ]
        rows.append(row)
    return Table(
        "Cost of a run: mean over seeds, total of all sites",
        header=[heading(study.study), "Runs", "Time", "Upload", "Download"],
        rows=rows,
    )


def _settings(study: StudyRecords) -> Table:
    versions = dict(study.study.versions)
    for cell in study.cells:
        if cell.records:
            versions |= cell.records[-1].get("versions") or {}
    facts = {
        "Seeds": [str(seed) for seed in study.study.seeds],
        "Executor": _values_of(study, "executor"),
        "Threads": _values_of(study, "threads"),
        "Versions": [f"{name} {version}" for name, version in versions.items()],
    }
    rows = [[name, ", ".join(values) or NOTHING] for name, values in facts.items()]
    for key, value in study.study.recipe.items():
        for name, text in set_words(key, value):
            rows.append([name, text])
    return Table("Settings, in the form of --set", ["Name", "Value"], rows, words=2)


def set_words(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield a setting in the form of ``--set``, one pair per field; nothing if it is not
    set.

    >>> list(set_words("model", {"name": "mlp", "fields": {"width": 8}}))
    [('model', 'mlp:width=8')]
    >>> list(set_words("training_config", {"batch_size": 16, "stop_at": None}))
    [('training_config.batch_size', '16')]
    """
    if isinstance(value, Mapping) and value.keys() == {"name", "fields"}:
        yield name, str(Spec(**value))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from set_words(f"{name}.{key}", part)
    elif isinstance(value, str):
        if value:
            yield name, value
    elif value is not None:
        yield name, json.dumps(value, default=str)


def _gaps(study: StudyRecords) -> list[Note]:
    """Return notes on incomplete runs and unreadable lines."""
    notes = []
    waiting = [
        f"{label_of(strategy, study.study)} seed {seed}" for strategy, seed in study.missing
    ]
    if len(waiting) > MOST_NAMED:
        rest = len(waiting) - MOST_NAMED
        waiting = [*waiting[:MOST_NAMED], f"{rest} more"]
    if waiting:
        notes.append(Note(f"Not complete: {join_words(waiting)}."))
    if study.damaged:
        were = was_or_were(study.damaged)
        notes.append(Note(f"{count_noun(study.damaged, 'damaged line')} {were} skipped."))
    return notes


def run_details(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the run: command, cost, incomplete runs and settings."""
    blocks: list[Block] = []
    if study.study.command:
        # one line: a second line would be executed as soon as a reader pastes the text into
        # a shell
        blocks.append(Command(one_line(study.study.command)))
    blocks.append(_costs(study))
    blocks += _gaps(study)
    blocks.append(CollapsibleBlock("Settings", [_settings(study)]))
    return blocks
