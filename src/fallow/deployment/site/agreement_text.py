"""Terms of a study for a site, displayed before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fallow.core.client import GROUPS, Group
from fallow.core.methods import DataDependentTraining, methods_by_owner
from fallow.core.wording import count_noun, join_some
from fallow.deployment.agreement import MOST_OF_GUIDELINE, Agreement
from fallow.deployment.building import build_study
from fallow.deployment.site.folder import SiteFolder
from fallow.deployment.site.rows import SiteRows
from fallow.deployment.site.settings import Settings
from fallow.deployment.toml import format_duration
from fallow.experiment.methods import is_untrained, joins_groups
from fallow.measurements.meter import (
    Exposure,
    can_be_read,
    count_at_once,
    count_planned,
    count_values,
    describe_exposure,
    find_widest,
)
from fallow.settings.budgets import LabelBudget
from fallow.settings.config import ExperimentConfig, named_classes
from fallow.settings.sums import describe_sums, find_promise
from fallow.storage.plain import plain
from fallow.transport.kinds import find_title

NOTHING = "nothing"
PARTS = {
    "initial": "initial labels",
    "query": "query",
    "training": "training",
    "head": "exact head",
    "describe": "description of the data",
    "filling": "empty cells",
    "encoder": "encoder",
    "tuning": "choice of the encoder's parameter",
    "scaling": "standardization",
    "retention": "best model",
    "evaluation_set": "evaluation set",
    "annotators": "annotators and scores",
}
SEEN_BY = {
    "sum": "coordinator, each contribution",
    "each": "coordinator",
    "keep": "coordinator",
    "relay": "other sites, encrypted",
}
"""Recipient of a disclosure, by operation. Stored data stays at the site."""
DIVISIONS = {
    "equal": "",
    "equal_rounded": ", equally many at each site",
    "proportional": ", more at larger sites",
}
"""Division of a share of all examples between the sites."""
UNKNOWN_BUDGET = (
    "the number of labels depends on the examples of all sites, which only the "
    "coordinator has: the first number that it requests applies; to set one, give "
    "limit in site.toml"
)
LINE = 1000  # characters of a displayed line


class Disclosed(NamedTuple):
    """Data that a client function discloses, with its recipient."""

    part: str  # of the study
    function: str
    reveals: str
    seen_by: str
    group: Group


def list_disclosures(folder: SiteFolder) -> list[Disclosed]:
    """Return everything that may leave this site (`list_agreed_disclosures`)."""
    return list_agreed_disclosures(folder.agreement)


def list_agreed_disclosures(agreement: Agreement) -> list[Disclosed]:
    """Return everything that may leave a site, from the disclosure declarations."""
    methods = methods_by_owner(build_study(agreement).methods)
    seen_by = dict(SEEN_BY)
    if agreement.config.privacy.secure_sum:
        seen_by["sum"] = "coordinator, aggregate only"
    disclosures: list[Disclosed] = []
    for owner, part in PARTS.items():
        if owner not in methods:
            continue
        for item in methods[owner].contract.functions:
            what = item.discloses
            if what == NOTHING:
                continue
            seen = seen_by[item.operation]
            disclosures.append(Disclosed(part, item.name, what, seen, item.group))
    return disclosures


def group_disclosures(disclosures: Sequence[Disclosed]) -> list[tuple[str, str, str]]:
    """Return group, disclosed data and recipient of each disclosure, without repetitions.

    >>> sent = Disclosed("query", "select", "a count", "coordinator", "counts")
    >>> group_disclosures(
    ...     [sent, sent._replace(part="evaluation set"), sent._replace(reveals="b")]
    ... )
    [('counts', 'a count', 'coordinator'), ('', 'b', 'coordinator')]
    """
    lines: list[tuple[str, str, str]] = []
    for group in GROUPS:
        of_group = [one for one in disclosures if one.group == group]
        pairs = dict.fromkeys((one.reveals, one.seen_by) for one in of_group)
        for index, (reveals, seen_by) in enumerate(pairs):
            lines.append((group if index == 0 else "", reveals, seen_by))
    return lines


def describe_budget(config: ExperimentConfig) -> str:
    """Describe the label budget of the study.

    >>> describe_budget(ExperimentConfig("a", initial=10, budget=0.05, cycles=2))
    'first 10 labels per site, then in each of 2 cycles 5 % of all examples of all sites'
    """
    then = _describe_cycles(config)
    if not config.initial:
        return then
    return f"first {_describe_share(config.initial, config)}, then {then}"


def _describe_cycles(config: ExperimentConfig) -> str:
    """Describe the label budgets of the cycles."""
    if isinstance(config.budget, tuple):
        shares = [_describe_share(share, config) for share in config.budget]
        return f"in {config.cycles} cycles {', '.join(shares)}"
    cycles = f"each of {config.cycles} cycles"
    if config.cycles == 1:
        cycles = "one cycle"
    return f"in {cycles} {_describe_share(config.budget, config)}"


def _describe_share(share: LabelBudget, config: ExperimentConfig) -> str:
    """Describe a number of labels per site, or a share of all examples."""
    if isinstance(share, int):
        return f"{count_noun(share, 'label')} per site"
    return (
        f"{100 * share:g} % of all examples of all "
        f"sites{DIVISIONS[config.budget_allocation]}"
    )


def describe_study(folder: SiteFolder) -> list[str]:
    """Describe the study: parties, requested labels, privacy budget."""
    agreement = folder.agreement
    digest = f"fingerprint {agreement.digest[:12]}"
    lines = describe_agreement(agreement, folder.settings)
    return [digest, *lines, *describe_showing(agreement)]


def describe_agreement(agreement: Agreement, own: Settings) -> list[str]:
    """Describe an agreement without importing or building anything that it names.

    The fingerprint is not included, so that users obtain it from the coordinator.
    """
    config = agreement.config
    labels = f"labels: {describe_budget(config)}"
    if own.limit is not None:
        labels += f"; this site gives at most {own.limit}"
    deadline = (
        f"deadline for the labels of a cycle: {format_duration(agreement.waits.deadline)}"
    )

    model = f"model {config.model}, trained by {config.training}"
    if is_untrained(config):
        model = "no model is trained"
    if joins_groups(config):
        model += "; all rows of a group are one example"
    lines = [
        f"study {agreement.name}, sites: {', '.join(agreement.sites)}",
        f"{model}; query strategy {config.strategy}",
    ]
    for name in list_foreign_classes(config):
        lines.append(f"code of another distribution: {name}")
    for name, distribution in agreement.distributions.items():
        lines.append(f"distribution: {name} {distribution}")
    lines += [labels, deadline, *agreement.plan.describe()]
    lines += agreement.plan.find_shortage(own.number_of_annotators)
    if _is_budget_unknown(config, own.limit):
        lines.append(UNKNOWN_BUDGET)
    sums = f"sums: {describe_sums(config)}"
    if own.epsilon is not None:
        sums += f"; epsilon is at most {own.epsilon:g} at this site"
    lines.append(sums)
    lines += _describe_empty(agreement)
    lines.append(
        f"transport: {find_title(agreement.transport)}; all connections start at this site"
    )
    if agreement.guideline is not None:
        lines.append("guideline, displayed beside each example:")
    shown = [plain(line, LINE) for line in lines]
    if agreement.guideline is not None:
        paragraphs = agreement.guideline.split("\n")
        shown += [f"  {plain(line, MOST_OF_GUIDELINE)}" for line in paragraphs]
    return shown


def _describe_empty(agreement: Agreement) -> list[str]:
    """Describe the imputation of empty cells, or return nothing if no column may be empty."""
    lacking = [c.name for c in agreement.schema.columns if c.may_be_empty]
    if not lacking:
        return []
    sent = (
        "each site sends, for every column, the sum of its cells and the number of "
        "nonempty ones"
    )
    if agreement.config.privacy.secure_sum:
        sent = f"{sent}, protected by secure aggregation"
    return [
        f"cells may be empty in {join_some(lacking)}: the sites impute them together; {sent}"
    ]


def describe_showing(agreement: Agreement) -> list[str]:
    """Describe what training aggregates may reveal, or return nothing if it is little."""
    study = build_study(agreement)
    methods = study.methods
    lines: list[str] = []
    training = methods["training"]
    if isinstance(training, DataDependentTraining):
        extras = training.describe_extras(study.width, study.classes)
        lines += [extras] if extras else []
    for owner in ("training", "head"):
        if owner not in methods:
            continue
        contract = methods_by_owner(methods)[owner].contract
        if contract.parts_show and not agreement.config.privacy.secure_sum:
            lines.append(f"without secure aggregation, {contract.parts_show}")
        if contract.sites_see:
            lines.append(contract.sites_see)
    return [plain(line, LINE) for line in lines]


def describe_planned(agreement: Agreement) -> list[str]:
    """Describe, before anything is sent, the exact numbers about new labels of one site.

    The numbers of features and of labels with fewer numbers than values are included.  Returns an
    empty list for studies without exact totals of products, and for an unknown number.
    """
    config = agreement.config
    parts = build_study(agreement)
    is_solved = "least-squares" in parts.methods["training"].contract.tags
    if find_promise(config) != "exact" or not is_solved:
        return []
    rows = 0  # unknown for a share of all examples
    labels = [n for n in config.purchases if n]
    if all(isinstance(n, int) for n in labels):
        rows = min((agreement.plan.count_examples(int(n)) for n in labels), default=0)
    numbers = count_planned(parts.methods, parts.dims, parts.width)
    if numbers is None:
        return []
    sent = Exposure(
        numbers=numbers,
        largest=numbers,
        rows=rows,
        values=count_values(agreement.schema.features, agreement.schema.shape),
    )
    line = f"Each end of labeling sends {describe_exposure(sent, hides_small=False)}"
    if not rows or can_be_read(sent):
        enough = count_at_once(sent) + 1
        line += f"; there are fewer numbers than values from {enough:,} new labels on"
    if can_be_read(sent):
        widest = find_widest(parts.methods, parts.dims, rows, sent["values"])
        if widest:
            line += f", or with at most {widest} features (encoder)"
    if not rows or can_be_read(sent):
        line += ", which protects no examples with categories"
    return [f"{line}."]


def _is_budget_unknown(config: ExperimentConfig, limit: int | None) -> bool:
    """Return whether only the coordinator knows the number of requested labels."""
    if limit is not None or config.budget_allocation == "proportional":
        return False
    return any(isinstance(share, float) and share for share in config.purchases)


def list_foreign_classes(config: ExperimentConfig) -> list[str]:
    """Return the third-party classes that a configuration names, with their settings."""
    by_setting = named_classes(config).items()
    return [f"{setting} = {name}" for setting, name in by_setting if ":" in name]


def describe_rows(rows: SiteRows, tests: SiteRows | None) -> list[str]:
    """Describe the site's own examples."""
    lines = [f"{len(rows.ids)} examples, {rows.labeled} of them labeled"]
    if tests is None:
        return [*lines, "no test examples", *rows.notes]
    lines += [f"{len(tests.x)} test examples", *rows.notes]
    lines += [f"test examples: {note}" for note in tests.notes]
    return lines
