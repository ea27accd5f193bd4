"""Report sections on disclosures, cost and reproduction of the study."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from fallow import encoders
from fallow.core.build import build
from fallow.core.client import GROUPS, UNDECLARED, Group, declared
from fallow.core.methods import methods_by_owner
from fallow.core.missing import Missing
from fallow.core.names import BUILT_IN
from fallow.core.wording import count_noun, duration, join_words, size, was_or_were
from fallow.encoders.encoding import Imputation
from fallow.experiment.methods import methods_of
from fallow.measurements.meter import describe_exposure
from fallow.report.blocks import (
    NOTHING,
    Block,
    Blocks,
    Cells,
    CollapsibleBlock,
    Command,
    Note,
    Table,
    show,
)
from fallow.report.final_table import label_of
from fallow.report.live import read_live
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec
from fallow.settings.sums import describe_sums
from fallow.settings.variants import variant
from fallow.storage.plain import one_line
from fallow.study.names import heading
from fallow.study.reading import StudyRecords

if TYPE_CHECKING:
    from fallow.experiment.record import DisclosureEntry, Record

SEEN_BY = {
    "sum": "the coordinator: the aggregate (and each contribution, without secure aggregation)",
    "each": "the coordinator: the reply of every site",
    "keep": "the coordinator: a count; the result stays at the site",
    "relay": "the receiving site; the coordinator sees ciphertext only",
    "fit": "nobody: local training",
}
"""Recipients of disclosed values, by the kind of exchange."""

PROTOCOL = (Imputation(Missing()),)
"""Algorithms of every study, apart from those that its settings name."""

EXCHANGES = (
    "Exchanges are round trips between the coordinator and all sites: models, aggregates and "
    "instructions together. Over a network, each exchange costs seconds. Bytes are of all "
    "sites."
)
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
    function: str
    description: str
    sites: int
    exchanges: float
    amount: float
    group: Group
    epsilon: float = 0.0  # privacy cost of a site
    masked: bool = False


def exchanges(study: StudyRecords) -> list[Exchange]:
    """Return the disclosed values by strategy, group and client function, mean over seeds.

    The counts of a run are cumulative, so that its last record has all.
    """
    result = []
    for strategy in study.study.strategies:
        cells = study.of(strategy)
        groups = find_groups(study, strategy)
        by_name: dict[tuple[str, str, str], list[DisclosureEntry]] = {}
        for cell in cells:
            for entry in cell.last.get("revealed") or ():
                name = (entry["kind"], entry["function"], entry["description"])
                by_name.setdefault(name, []).append(entry)
        of_strategy = []
        for (kind, function, description), entries in by_name.items():
            exchange = Exchange(
                strategy=strategy,
                kind=kind,
                function=function,
                description=description,
                sites=max(entry["sites"] for entry in entries),
                exchanges=sum(entry["exchanges"] for entry in entries) / len(cells),
                amount=sum(entry["bytes"] for entry in entries) / len(cells),
                group=groups.get((kind, function), UNDECLARED.get(kind, "status")),
                epsilon=max(entry.get("epsilon", 0.0) for entry in entries),
                masked=any(entry.get("masked") for entry in entries),
            )
            of_strategy.append(exchange)
        result += sorted(of_strategy, key=lambda one: GROUPS.index(one.group))
    return result


def find_groups(study: StudyRecords, strategy: str) -> dict[tuple[str, str], Group]:
    """Return the groups of the client functions of a strategy, by operation and name.

    They follow from the declared fields of the built-in algorithms that the study names. User code
    is not imported.
    """
    config = find_config(study, strategy)
    algorithms: list[object] = [*PROTOCOL]
    if config is not None:
        with suppress(ValueError):
            algorithms += methods_by_owner(methods_of(config, policy=BUILT_IN)).values()
        if config.encoder is not None:
            with suppress(ValueError):
                name = config.encoder.name
                algorithms.append(build(encoders, name, BUILT_IN, **config.encoder.fields))
    groups: dict[tuple[str, str], Group] = {}
    for algorithm in algorithms:
        for item in declared(algorithm).values():
            groups[item.operation, item.name] = item.group
    return groups


def disclosure(study: StudyRecords, key: str) -> Blocks:
    """Return the section on what left each site."""
    outcome = exchanges(study)
    if not outcome:
        return [Note("The records contain no exchange.")]
    rows: list[Cells] = []
    marks = []
    for before, exchange in pairwise([outcome[0], *outcome]):
        marks.append("")
        if exchange.strategy != before.strategy:
            marks[-1] = "first"  # a line above it
        seen_by = SEEN_BY.get(exchange.kind, "unknown")
        if exchange.masked:
            seen_by = MASKED
        rows.append(
            {
                heading(study.study): label_of(exchange.strategy, study.study),
                "Data": exchange.group,
                "Kind": exchange.kind,
                "Client function": exchange.function,
                "Disclosed": exchange.description,
                "Visible to": seen_by,
                "Sites": str(exchange.sites),
                "Exchanges": f"{exchange.exchanges:.0f}",
                "Bytes": size(exchange.amount),
                "ε per site": show(exchange.epsilon or None, lambda spent: f"{spent:g}"),
            }
        )
    notes = [Note(f"Sums are {sentence}.") for sentence in list_promises(study)]
    notes += [Note(f"Each site sent {sentence}.") for sentence in list_exposures(study)]
    if any(exchange.epsilon for exchange in outcome):
        notes.append(Note(NOISE + SOURCE[read_live(study.path) is not None]))
    if any(exchange.masked for exchange in outcome):
        notes.append(Note(MASKS))
    caption = "All sites together, per run (mean over seeds)"
    return [Table.of(caption, rows, words=6, classes=marks), *notes]


def list_promises(study: StudyRecords) -> list[str]:
    """Return what holds for labeled rows in the runs of a study, without repetitions."""
    strategies = dict.fromkeys(cell.strategy for cell in study.cells)
    configs = [find_config(study, strategy) for strategy in strategies]
    return list(dict.fromkeys(describe_sums(config) for config in configs if config))


def list_exposures(study: StudyRecords) -> list[str]:
    """Return how many exact numbers the runs of a study sent, without repetitions."""
    exposures = [cell.last.get("exposure") for cell in study.cells]
    sentences = [describe_exposure(one) for one in exposures if one and one["numbers"]]
    return list(dict.fromkeys(sentences))


def find_config(study: StudyRecords, strategy: str) -> ExperimentConfig | None:
    """Return the settings of a strategy, or None if they cannot be read, as for an upper
    bound.
    """
    try:
        return variant(config_from(dict(study.study.config)), strategy)
    except (ValueError, TypeError):
        return None


# -- the run ----------------------------------------------------------------------------------


def mean_at_end(
    study: StudyRecords, strategy: str, read: Callable[[Record], float | None]
) -> float | None:
    """Return the mean over runs of a number in the last record, or None."""
    numbers = [read(cell.last) for cell in study.of(strategy)]
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    return fmean(known)


def _count_exchanges(record: Record) -> float | None:
    """Return the number of round trips of a run, if its record counts them."""
    entries = record.get("revealed")
    if not entries:
        return None
    return float(sum(entry["exchanges"] for entry in entries))


def _costs(study: StudyRecords) -> Table:
    rows: list[Cells] = []
    for strategy in study.study.strategies:
        seconds = mean_at_end(study, strategy, lambda record: record.get("seconds"))
        upload = mean_at_end(study, strategy, lambda record: record.get("bytes_up"))
        download = mean_at_end(study, strategy, lambda record: record.get("bytes_down"))
        round_trips = mean_at_end(study, strategy, _count_exchanges)
        rows.append(
            {
                heading(study.study): label_of(strategy, study.study),
                "Runs": str(len(study.of(strategy))),
                "Time": show(seconds, duration),
                "Exchanges": show(round_trips, lambda n: f"{n:,.0f}"),
                "Upload": show(upload, size),
                "Download": show(download, size),
            }
        )
    return Table.of("Cost of a run: mean over seeds, total of all sites", rows)


def _settings(study: StudyRecords) -> Table:
    versions = dict(study.study.versions)
    executors: dict[str, None] = {}  # sets that keep their order
    threads: dict[str, None] = {}
    for cell in study.cells:
        for record in cell.records:
            executors |= dict.fromkeys([str(record.get("executor", ""))])
            threads |= dict.fromkeys([str(record.get("threads", ""))])
            versions |= record.get("versions") or {}
    facts = {
        "Seeds": ", ".join(map(str, study.study.seeds)),
        "Executor": ", ".join(filter(None, executors)),
        "Threads": ", ".join(filter(None, threads)),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    rows = [[name, text or NOTHING] for name, text in facts.items()]
    for key, value in study.study.config.items():
        rows += [[name, text] for name, text in set_words(key, value)]
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


def run_details(study: StudyRecords, key: str) -> Blocks:
    """Return the section on the run: command, cost, incomplete runs and settings."""
    blocks: list[Block] = []
    if study.study.command:
        # one line: a second line would be executed as soon as a reader pastes the text into
        # a shell
        blocks.append(Command(one_line(study.study.command)))
    costs = _costs(study)
    blocks.append(costs)
    if "Exchanges" in costs.header:
        blocks.append(Note(EXCHANGES))
    waiting = []
    for strategy, seed in study.missing[:MOST_NAMED]:
        waiting.append(f"{label_of(strategy, study.study)} seed {seed}")
    if len(study.missing) > MOST_NAMED:
        waiting.append(f"{len(study.missing) - MOST_NAMED} more")
    if waiting:
        blocks.append(Note(f"Not complete: {join_words(waiting)}."))
    if study.damaged:
        were = was_or_were(study.damaged)
        text = f"{count_noun(study.damaged, 'damaged line')} {were} skipped."
        blocks.append(Note(text))
    blocks.append(CollapsibleBlock("Settings", [_settings(study)]))
    return blocks
