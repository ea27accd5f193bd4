"""Attack of a site on its own contribution: which of its labeled examples can be computed.

The attacker of the sums is a coordinator that knows the contributions of all other sites, so secure
aggregation does not help.  The attacker of the final model has nothing but its file, the encoder and
the units of the columns.  Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, final

import numpy as np
import torch
from pydantic import Field, with_config
from torch import Tensor
from typing_extensions import TypedDict

from fallow.core.methods import Encoder
from fallow.core.missing import filled
from fallow.core.types import State, Values
from fallow.core.wording import count_noun
from fallow.deployment.building import BuiltStudy, build_study
from fallow.deployment.ledger import Ledger
from fallow.deployment.ledger.draft import Draft
from fallow.deployment.ledger.instructions import sum_replies
from fallow.deployment.schema import Schema
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.predict import read_site_model
from fallow.encoders.base import EMPTY_CELLS, encode_rows
from fallow.experiment.attacking import list_folds, see_columns, sum_self_training
from fallow.experiment.encoding import encoding_with
from fallow.measurements.attacks import TOLERANCE, Array
from fallow.measurements.disclosure import (
    OF_MODEL,
    OF_POOL,
    Attempt,
    Observed,
    Phase,
    attack,
    can_be_attacked,
    differentiate,
    find_levels,
    is_differentiable,
    read_aggregates,
    read_pool,
    units_of,
)
from fallow.measurements.meter import count_values, find_widest
from fallow.measurements.results import AttackResult
from fallow.measurements.tree_attacks import (
    TreeLabels,
    attack_trees,
    read_edges,
    round_to_bins,
)
from fallow.sites.site import ENCODE, LocalSite, RunComponents
from fallow.sites.store import Label
from fallow.sites.view import SiteView
from fallow.storage.errors import StorageError
from fallow.storage.features import FeatureStore
from fallow.storage.files import FILE as PRIVATE
from fallow.storage.files import write_whole
from fallow.storage.plain import cell, join_csv
from fallow.storage.validation import STRICT
from fallow.training.closed_form import ClosedForm

FINISH = ("annotators", "finish")
HISTOGRAMS = ("training", "histograms")
LABELS = ("training", "totals")
NOISY_LABELS = ("training", "noisy_totals")
FOLDS = ("training", "fold_totals")
POOL = ("training", "example_totals")
"""Functions whose replies are sums over labeled examples, or over all of them."""
FILE = "attack.csv"
"""File in the site's folder with true and computed examples, readable by its owner only."""
NOT_TRIED = (
    "Not tried: levels beside noise, means of repeated sums with noise, models of single cycles and "
    "of earlier runs, sums of class probabilities, folds and sums of all examples in earlier runs, and "
    "sums of query strategies, encoders and feature scaling."
)
NOT_TRIED_OF_TREES = (
    "Not tried: sums of later nodes, the trees themselves, trees of earlier cycles, weights other than "
    "1, and sums of query strategies, encoders and feature scaling."
)
NOT_SENT = (
    "site {site} has sent no sum of labeled examples in its newest run; attack it after its first "
    "labels were used"
)
IS_EMPTY = 0.5
"""Value of a missing-value indicator above which a cell is shown as empty."""


@with_config(STRICT)
class SiteAttack(TypedDict):
    """Attacks of a site on its own contribution."""

    site: Annotated[str, Field(description="name of the site")]
    file: Annotated[str, Field(description="file with true and computed examples")]
    attacks: Annotated[
        list[AttackResult], Field(description="attacks, with what they read")
    ]


@final
@dataclass(frozen=True)
class ReadExample:
    """A labeled example, and what the best attack computed for it, in units of the data.

    error: largest error of a column, in standard deviations.  is_read: whether every column is
    within the tolerance, or in the right bin of trees.  cells: true and computed value of each column,
    as in the file.
    """

    name: str
    true: Sequence[float]
    computed: Sequence[float]
    error: float
    is_read: bool
    cells: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class AttackedSite:
    """Results of all attacks, and the labeled examples with the best computed ones.

    ``widest`` is the largest number of features with fewer numbers than values. ``has_trees`` says
    that the sums are those by which trees are grown.
    """

    attacks: list[AttackResult]
    columns: tuple[str, ...]
    examples: list[ReadExample]
    is_exact: bool = True
    widest: int = 0
    has_trees: bool = False


def attack_site(
    folder: SiteFolder, notify: Callable[[str, int, int], None], seconds: float
) -> AttackedSite:
    """Attack what a site sent in all runs, in the feature scaling of the newest one.

    Parameters
    ----------
    folder : SiteFolder
        The site.
    notify : callable
        Receives the name of an attack, and the numbers of rows found and searched for.
    seconds : float
        Limit of CPU time of one attack.

    Raises
    ------
    ValueError
        If nothing was sent, or if the study trains neither in closed form nor trees.
    """
    agreement = folder.agreement
    built = build_study(agreement)
    training = built.methods["training"]
    if not training.contract.has_trees and not isinstance(training, ClosedForm):
        raise ValueError(
            f"study {agreement.name} trains by {agreement.config.training}, and only sums of "
            "closed-form training and of trees are attacked; published attacks read single "
            "examples from updates of gradient steps and from models"
        )
    with closing(folder.open_ledger()) as ledger:
        run = ledger.instructions.newest_run()
        if run is None:
            raise ValueError(
                f"site {folder.name} has taken part in no run, so nothing was sent; attack it "
                "after its first labels were used"
            )
        ledger.store.run = run
        site = _open_site(folder, built, ledger)
        if isinstance(training, ClosedForm):
            return _attack(folder, built, training, site, ledger, notify, seconds)
        return _attack_trees(folder, built, site, ledger)


def _open_site(folder: SiteFolder, built: BuiltStudy, ledger: Ledger) -> LocalSite:
    """Return the site with its labels and memory, for reading only."""
    parts = RunComponents(
        model=built.model,
        layout=built.layout,
        methods=built.methods,
        classes=built.classes,
        seed=folder.agreement.seed,
        fresh=built.fresh,
        encode=encoding_with(FeatureStore(), built.encoder),
    )
    x = folder.rows.x.to(built.dtype)
    groups = folder.rows.group_numbers
    site = LocalSite(folder.name, x, parts, Draft(ledger.store), groups=groups)
    site.leave(ledger.requests.find_excluded_rows())
    return site


def _attack(
    folder: SiteFolder,
    built: BuiltStudy,
    training: ClosedForm,
    site: LocalSite,
    ledger: Ledger,
    notify: Callable[[str, int, int], None],
    seconds: float,
) -> AttackedSite:
    withdrawn = _find_withdrawals(ledger)
    labels = _load_sent_labels(site, withdrawn)
    fitted = site.memory.get(ENCODE)
    if not labels or (built.encoder is not None and fitted is None):
        raise ValueError(NOT_SENT.format(site=site.id))
    units = _Units.of(site, built.encoder)
    if training.delta is None:
        sums = _list_sums(site, training, ledger, labels, withdrawn)
    else:
        sums = _list_noisy_sums(site, ledger, labels, withdrawn)
    sums = _keep_newest(sums)
    phases = []
    for of_phase, used in sums:
        aggregates = read_aggregates(of_phase, max(built.classes, 1))
        if aggregates is not None:
            rows = units.scale(site.x[[label.row for label in used]])
            values = np.array([label.value for label in used])
            phases.append(Phase(aggregates, rows, values))
    if not phases:
        raise ValueError(f"site {site.id} has sent no sum of labeled examples yet")
    encoder = built.encoder if units.fixed is None else None
    features = differentiate(
        encoder,
        fitted,
        site.memory.get("features"),
        tuple(site.x.shape[1:]),
        units.mean,
        units.std,
    )
    folds: list[Phase] = []
    pool: Phase | None = None
    sent = sum_replies(
        line for line in ledger.instructions.traffic() if line["run"] == ledger.store.run
    )
    if POOL in sent:
        used = sums[-1][1]
        more = sum_self_training(training, [SiteView(site, 0)], has_folds=FOLDS in sent)
        of_label = torch.tensor(
            [-1 if label.fold is None else label.fold for label in used]
        )
        last = phases[-1]
        folds = list_folds(more.folds, last.rows, last.labels, of_label, built.classes)
        everything = units.scale(site.x[~site.excluded])
        pool = Phase(read_pool(more.pool), everything, np.zeros(0))
    head = _read_head(folder, built)
    # the site knows its own number of labels only, and assumes as many at each other site
    others = len(phases[-1].rows) * (len(folder.agreement.sites) - 1)
    attempts = attack(
        Observed(
            features,
            phases,
            folds,
            pool,
            head,
            others,
            find_levels(units.scale(site.x)),
            seconds=seconds,
            notify=notify,
        )
    )
    label_of = {label.row: label for _, used in sums for label in used}
    names = [folder.rows.ids[row] for row in label_of]
    sent_rows = units.scale(site.x[list(label_of)])
    examples = _choose_nearest(attempts, sent_rows, units, names)
    results = [attempt.result for attempt in attempts]
    schema = folder.agreement.schema
    columns, examples = _name_columns(schema, len(units.mean), examples)
    n_values = len(units.mean)
    if columns == schema.features:
        n_values = count_values(schema.features, schema.shape)
    return AttackedSite(
        attacks=results,
        columns=columns,
        examples=examples,
        is_exact=training.delta is None,
        widest=find_widest(built.methods, built.dims, count_labeled(results), n_values),
    )


def _load_sent_labels(site: LocalSite, withdrawn: Mapping[int, str]) -> list[Label]:
    """Return the labels for training, also those of examples that were withdrawn."""
    excluded = {*site.excluded.nonzero().flatten().tolist()}
    return [
        label
        for label in site.store.load_labels(site.id)
        if not label.is_validation and (label.row in withdrawn or label.row not in excluded)
    ]


def _attack_trees(
    folder: SiteFolder,
    built: BuiltStudy,
    site: LocalSite,
    ledger: Ledger,
) -> AttackedSite:
    """Attack the sums by which trees are grown; they follow from labels, bins and the final model."""
    withdrawn = _find_withdrawals(ledger)
    labels = _load_sent_labels(site, withdrawn)
    edges = read_edges(site.memory)
    excluded = site.excluded.nonzero().flatten().tolist()
    all_sent = list_sent_sums(ledger, labels, excluded, withdrawn, HISTOGRAMS)
    if edges is None or not all_sent:
        raise ValueError(NOT_SENT.format(site=site.id))
    everything = see_columns(site, site.x[site.examples])
    phases = []
    for sent in all_sent:
        site.reread(sent.labels)
        rows = torch.tensor([label.row for label in sent.labels])
        phases.append(TreeLabels(see_columns(site, site.x[rows]), site.targets(rows)))
    state: State | None = None
    if ledger.instructions.load_times(all_sent[-1].run, *FINISH):
        state = read_site_model(folder.path).state
    training = built.methods["training"]
    attempts = attack_trees(training, phases, built.classes, edges, state, everything)
    seen = everything.double().numpy()
    mean, std = units_of(seen, seen.shape[1:])
    last = phases[-1].x
    true = (last.double().numpy() - mean) / std
    binned = (round_to_bins(last, everything, edges) - mean) / std
    scale = site.memory.get("features")
    if scale is not None:
        divisor = np.where(scale["std"] > 0, scale["std"], 1.0)
        mean = mean * divisor + np.asarray(scale["mean"])
        std = std * divisor
    units = _Units(mean, std, None, None, {})
    names = [folder.rows.ids[label.row] for label in all_sent[-1].labels]
    examples = _choose_nearest(attempts, true, units, names, binned)
    columns, examples = _name_columns(folder.agreement.schema, len(mean), examples)
    return AttackedSite(
        attacks=[attempt.result for attempt in attempts],
        columns=columns,
        examples=examples,
        has_trees=True,
    )


def _name_columns(
    schema: Schema, width: int, examples: list[ReadExample]
) -> tuple[tuple[str, ...], list[ReadExample]]:
    """Return the names of columns, and examples with the cells of a table.

    Pixels, and features of an encoder without gradient, have numbers only.
    """
    if len(schema.features) == width:
        return schema.features, [_add_cells(example, schema) for example in examples]
    return tuple(f"value {position + 1}" for position in range(width)), examples


def _read_head(folder: SiteFolder, built: BuiltStudy) -> Array | None:
    """Return the weights (D, C) of the final model, or None before the end of the study."""
    try:
        state = read_site_model(folder.path).state
    except StorageError:
        return None
    weight = built.layout.views(state["w"])["head.weight"]
    return np.asarray(weight.double().numpy().T)


def count_labeled(results: Sequence[AttackResult]) -> int:
    """Return the number of labeled examples in the largest attacked sum of them."""
    return max(result["rows"] for result in results if result["attack"] != OF_POOL)


@final
@dataclass(frozen=True)
class SentSum:
    """A sum over labels that left the site.

    absent: rows that had left before.
    """

    run: str
    labels: list[Label]
    absent: list[int]


def list_sent_sums(
    ledger: Ledger,
    labels: Sequence[Label],
    excluded: Sequence[int],
    withdrawn: Mapping[int, str],
    function: tuple[str, str],
) -> list[SentSum]:
    """Return the sums over labels of all runs, oldest first.

    excluded: rows that are excluded now.  withdrawn: time of the withdrawal of examples, which are in
    the sums that were sent before.  function: owner and client function that computed the sums.
    """
    runs = ledger.instructions.list_runs()
    turn_of = {run: turn for turn, run in enumerate(runs)}
    first_use: dict[int, tuple[int, int]] = {}  # turn and cycle after which a row counts
    for row, (run, cycle) in ledger.requests.load_first_entries().items():
        first_use[row] = (turn_of[run], cycle)
    own_labels = (0, -1)
    sent: list[SentSum] = []
    for run in runs:
        for cycle, at in ledger.instructions.load_times(run, *function).items():
            now = (turn_of[run], cycle)
            absent = [row for row in excluded if withdrawn.get(row, at) <= at]
            used = [
                restore_label(ledger, label, at)
                for label in labels
                if first_use.get(label.row, own_labels) < now and label.row not in absent
            ]
            if used:
                sent.append(SentSum(run, used, absent))
    return sent


def _list_sums(
    site: LocalSite,
    training: ClosedForm,
    ledger: Ledger,
    labels: Sequence[Label],
    withdrawn: Mapping[int, str],
) -> list[tuple[Values, list[Label]]]:
    """Return the exact sums of all training phases of all runs, with the labels that counted then."""
    excluded = site.excluded.nonzero().flatten().tolist()
    result = []
    for sent in list_sent_sums(ledger, labels, excluded, withdrawn, LABELS):
        site.leave(sent.absent)
        site.reread(sent.labels)
        result.append((training.totals(SiteView(site, 0)), sent.labels))
    return result


def _keep_newest(
    sums: Sequence[tuple[Values, list[Label]]],
) -> list[tuple[Values, list[Label]]]:
    """Return sums without those that were sent again for the same labels."""
    kept: list[tuple[Values, list[Label]]] = []
    for values, labels in sums:
        if kept and kept[-1][1] == labels:
            kept.pop()
        kept.append((values, labels))
    return kept


def _find_withdrawals(ledger: Ledger) -> dict[int, str]:
    """Return the time at which each withdrawn example left."""
    return {
        line.row: line.at
        for line in ledger.list_history()
        if line.event == "withdrawn" and line.row is not None
    }


def restore_label(ledger: Ledger, label: Label, at: str) -> Label:
    """Return a label as it was at a time, if one annotator gave it."""
    answers = [answer for answer in ledger.history(label.row) if answer.at <= at]
    if len({answer.annotator for answer in answers}) != 1 or answers[-1].value is None:
        return label
    return label._replace(value=answers[-1].value)


def _list_noisy_sums(
    site: LocalSite,
    ledger: Ledger,
    labels: Sequence[Label],
    withdrawn: Mapping[int, str],
) -> list[tuple[Values, list[Label]]]:
    """Return the sums with noise of all runs, as they were sent, with the labels in them.

    If an exchange of a run was repeated, only its newest sum is returned.
    """
    excluded = site.excluded.nonzero().flatten().tolist()
    phases: dict[str, list[list[Label]]] = {}
    for sent in list_sent_sums(ledger, labels, excluded, withdrawn, NOISY_LABELS):
        phases.setdefault(sent.run, []).append(sent.labels)
    newest = ledger.store.run
    result = []
    for run, used in phases.items():
        ledger.store.run = run
        releases = [
            released.reply
            for released in ledger.store.load_releases(site.id).values()
            if can_be_attacked(released.reply)
        ]
        if len(releases) != len(used):
            releases = releases[-1:]
            used = used[-1:]
        result += list(zip(releases, used, strict=False))
    ledger.store.run = newest
    return result


@final
@dataclass(frozen=True)
class _Units:
    """Units of the attacked columns: those of examples, or of features without a gradient.

    fixed: encoder whose features are attacked instead of the examples, or None.
    """

    mean: Array
    std: Array
    fill: Tensor | None
    fixed: Encoder | None
    fitted: State

    @staticmethod
    def of(site: LocalSite, encoder: Encoder | None) -> _Units:
        """Return mean and standard deviation of the columns over all examples of a site."""
        fitted = site.memory.get(ENCODE, {})
        fill = fitted.get(EMPTY_CELLS)
        if fill is None:
            fill = site.fill
        fixed = None
        if encoder is not None and not is_differentiable(encoder):
            fixed = encoder
        nothing = np.zeros(0)
        empty = _Units(nothing, nothing, fill, fixed, fitted)
        columns = empty.read(site.x)
        shape = tuple(site.x.shape[1:]) if fixed is None else columns.shape[1:]
        mean, std = units_of(columns, shape)
        return _Units(mean, std, fill, fixed, fitted)

    def read(self, x: Tensor) -> Array:
        """Return the attacked columns of examples, (n, p)."""
        if self.fixed is not None:
            return np.asarray(encode_rows(self.fixed, x, self.fitted).double().numpy())
        return np.asarray(filled(x, self.fill).flatten(1).double().numpy())

    def scale(self, x: Tensor) -> Array:
        """Return examples in standard units, (n, p)."""
        return np.asarray((self.read(x) - self.mean) / self.std)

    def restore(self, rows: Array) -> Array:
        """Return rows in units of the data."""
        return np.asarray(rows * self.std + self.mean)


def _choose_nearest(
    attempts: Sequence[Attempt],
    rows: Array,
    units: _Units,
    names: Sequence[str],
    targets: Array | None = None,
) -> list[ReadExample]:
    """Return the nearest candidate of all attacks for each labeled example.

    targets: what an attacker can find of the examples at best, if not the examples themselves.
    """
    if targets is None:
        targets = rows
    candidates = np.concatenate([attempt.candidates for attempt in attempts])
    if not len(candidates):
        return []
    examples = []
    for name, row, target in zip(names, rows, targets, strict=True):
        away = np.abs(candidates - target).max(1)
        best = int(away.argmin())
        true, computed = units.restore(np.stack([row, candidates[best]]))
        examples.append(
            ReadExample(
                name,
                true.tolist(),
                computed.tolist(),
                error=float(np.abs(candidates[best] - row).max()),
                is_read=bool(away[best] <= TOLERANCE),
            )
        )
    examples.sort(key=lambda example: example.error)
    return examples


def _add_cells(example: ReadExample, schema: Schema) -> ReadExample:
    """Add the cells of a table to an example."""
    true = describe_cells(schema, example.true)
    computed = describe_cells(schema, example.computed)
    cells = {name: (text, computed[name]) for name, text in true.items()}
    return replace(example, cells=cells)


def describe_cells(schema: Schema, values: Sequence[float]) -> dict[str, str]:
    """Return the cells of a table from its features; free text is left out."""
    of_feature = dict(zip(schema.features, values, strict=True))
    mark_of = {column: mark for mark, column in schema.marks}
    cells = {}
    for column in schema.columns:
        if column.text:
            continue
        if of_feature.get(mark_of.get(column.name, ""), 0.0) > IS_EMPTY:
            cells[column.name] = "(empty)"
        elif column.values:
            shares = [of_feature[feature] for feature in column.features]
            cells[column.name] = column.values[int(np.argmax(shares))]
        else:
            number = of_feature[column.name] + (column.offset or 0.0)
            cells[column.name] = f"{number:.5g}"
    return cells


def advise(attacked: AttackedSite) -> list[str]:
    """Return what a site can conclude and change, in sentences."""
    n = count_labeled(attacked.attacks)
    read = sum(example.is_read for example in attacked.examples)
    if attacked.has_trees:
        return [
            f"The bins of all columns can be computed of {read} of {count_noun(n, 'labeled example')} "
            "from what this site sends; columns with few values have one value in each bin.",
            "To change that, agree on a new study in closed form with noise (privacy.sums=noisy, "
            "privacy.epsilon, closed-form:delta=1e-5), the only protection.",
            NOT_TRIED_OF_TREES,
        ]
    if not read:
        lines = [
            f"None of {count_noun(n, 'labeled example')} was read. This proves nothing: a longer "
            "search (--seconds), or an attacker who knows similar examples, may read more."
        ]
        has_enough = any(
            result["numbers"] >= result["unknowns"] for result in attacked.attacks
        )
        if attacked.is_exact and has_enough:
            lines.append(
                "There are more numbers than values: assume that examples can be computed."
            )
        return [*lines, NOT_TRIED]
    first = attacked.examples[0]
    values = len(first.cells or first.true)
    fewer = (
        "fewer numbers, by a smaller encoder or the columns themselves (encoder=identity);"
    )
    if attacked.widest:
        fewer = (
            f"fewer numbers: at most {attacked.widest} features make fewer numbers than the "
            f"{n * values:,} values of these examples, such as the columns themselves "
            "(encoder=identity);"
        )
    return [
        f"{read} of {count_noun(n, 'labeled example')} can be computed from what this site sends, "
        "by a coordinator that knows the contributions of the other sites, or by all of them.",
        *_describe_model(attacked),
        "To change that, agree on a new study with one of these:",
        "  noise (privacy.sums=noisy, privacy.epsilon, closed-form:delta=1e-5), the only protection;",
        f"  {fewer}",
        "  no self-training (closed-form:unlabeled=off), and more labels in each cycle.",
        "Fewer numbers and more labels protect no column of categories: rows were read from fewer "
        "numbers than values.",
        NOT_TRIED,
    ]


def _describe_model(attacked: AttackedSite) -> list[str]:
    """Return a sentence if examples were read from the model."""
    for result in attacked.attacks:
        if result["attack"] == OF_MODEL and result["read"]:
            return [
                f"{count_noun(result['read'], 'example')} can be computed from the model alone, by "
                "everyone who receives its file."
            ]
    return []


def write_examples(path: Path, attacked: AttackedSite) -> None:
    """Write true and computed examples to a file that only its owner can read."""
    heads = ["id", "values", "is read", "largest error", *attacked.columns]
    lines: list[list[str]] = [heads]
    for example in attacked.examples:
        read = "yes" if example.is_read else "no"
        error = f"{example.error:.3g}"
        lines.append([example.name, "true", read, error, *map(_show, example.true)])
        lines.append([example.name, "computed", read, error, *map(_show, example.computed)])
    write_whole(path, join_csv(lines, cell, "\n").encode(), PRIVATE)


def _show(value: float) -> str:
    return f"{value:.6g}"
