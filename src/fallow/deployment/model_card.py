"""Model card: training data, algorithms, scores, and what left the sites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fallow.core.contract import Contract
from fallow.core.methods import Methods, methods_by_owner
from fallow.core.types import SiteId
from fallow.core.wording import SMALL, count_noun, show_count, size
from fallow.deployment.agreement import Agreement
from fallow.deployment.schema import Column
from fallow.experiment.measuring import describe_results, find_measurements
from fallow.experiment.methods import versions
from fallow.measurements.meter import Exposure, describe_exposure
from fallow.settings.sums import describe_sums
from fallow.storage.files import write_whole
from fallow.storage.plain import markdown_text, one_line
from fallow.transport.kinds import find_title

CARD = "model-card.md"
PARTS = {"training": "Training", "query": "Query strategy"}
INTENDED = "Intended use: to be filled in by the owner."
LIMITS = (
    (
        "Scores are computed on the test examples of the sites and do not cover "
        "other sites or later times."
    ),
    ("Labels are those of the annotators at the sites, without further verification."),
    (
        "Rows of the training data can be computed from models and exact sums. Only noise "
        "(privacy.epsilon) protects against that, and only what it covers."
    ),
)


@dataclass(frozen=True)
class CardFacts:
    """Content of a model card.

    ``owner`` is the coordinator or a site. ``labels`` has the number of training (``labeled``) and
    validation (``validation``) examples of each known site. ``scores`` maps names to values, or to None
    if a value is not shown. ``results`` are those of measurements, by name. ``left`` are the rows
    of a `Disclosure`, and ``exposure`` compares their numbers with the values of examples. ``is_own``
    marks personalized models. ``headline`` is the first sentence of the report.
    """

    owner: str
    labels: Mapping[SiteId, Mapping[str, int]] = field(default_factory=dict)
    scores: Mapping[str, float | None] = field(default_factory=dict)
    results: Mapping[str, object] = field(default_factory=dict)
    left: Sequence[Mapping[str, Any]] = ()
    exposure: Exposure | None = None
    is_own: bool = False
    headline: str = ""


def write_card(
    folder: Path, agreement: Agreement, methods: Methods, facts: CardFacts
) -> Path:
    """Write ``model-card.md`` into a folder and return its path."""
    path = folder / CARD
    write_whole(path, card_text(agreement, methods, facts).encode())
    return path


def card_text(agreement: Agreement, methods: Methods, facts: CardFacts) -> str:
    """Return the model card as Markdown. ``methods`` are the algorithms of `build_study` by role."""
    today = datetime.now(UTC).date().isoformat()
    model = "A global model"
    if facts.is_own:
        model = "A personalized model at each site"
    trained = f"{model}, trained by Fallow."
    if not methods["training"].contract.trains:
        trained = "No model: the sites selected examples that others annotate."
    lines = [
        f"# Model card: {agreement.name}",
        "",
        f"{trained} Written by {facts.owner} on {today}. Agreement {agreement.digest}.",
        "",
        INTENDED,
        "",
        "## Training data",
        "",
        *_describe_data(agreement, facts),
        "",
        "## How",
        "",
        *_describe_methods(agreement, methods),
        "",
        "## Scores",
        "",
        *_describe_scores(agreement, facts),
        "",
        "## Privacy",
        "",
        *_describe_privacy(agreement, facts),
        "",
        "## Limits",
        "",
        *(f"- {limit}" for limit in LIMITS),
        "",
        "## Versions",
        "",
        *(f"- {name} {version}" for name, version in versions().items()),
    ]
    # names in the agreement are untrusted: keep each on one line without tags, links or images
    shown = [one_line(line) for line in lines]
    return markdown_text("\n".join(shown)) + "\n"


def _describe_data(agreement: Agreement, facts: CardFacts) -> Iterator[str]:
    schema = agreement.schema
    yield f"- Sites: {', '.join(agreement.sites)}"
    what = "a number"
    if schema.classes:
        what = f"classes {', '.join(schema.classes)}"
    if schema.labels:
        what = f"each of {', '.join(schema.labels)}"
    yield f"- Examples: {schema.kind}; the label {schema.label!r} is {what}"
    if schema.columns:
        names = [_describe_column(column) for column in schema.columns]
        yield f"- Columns: {', '.join(names)}"
    for site, labels in facts.labels.items():
        yield f"- Labels of {site}: {_describe_labels(labels)}"
    budget = agreement.config.budget_words
    yield f"- Budget: {budget} (shares of all examples, or labels per site)"


def _describe_column(column: Column) -> str:
    facts: list[str] = []
    if column.unit:
        facts.append(column.unit)
    if column.text:
        facts.append("free text")
    if column.may_be_empty:
        facts.append("cells may be empty")
    if not facts:
        return column.name
    return f"{column.name} ({', '.join(facts)})"


def _describe_labels(labels: Mapping[str, int]) -> str:
    trained = show_count(labels.get("labeled", 0))
    validation = labels.get("validation", 0)
    if not validation:
        return trained
    return f"{trained}, and {show_count(validation)} for the selection of the best model"


def _describe_methods(agreement: Agreement, methods: Methods) -> Iterator[str]:
    config = agreement.config
    by_owner = methods_by_owner(methods)
    if config.encoder is not None:
        contract = by_owner["encoder"].contract
        yield f"- Encoder: {config.encoder}, {contract.title}{_describe_paper(contract)}"
    yield f"- Model: {config.model}"
    specs = {"training": config.training, "query": config.strategy}
    for owner, title in PARTS.items():
        contract = by_owner[owner].contract
        yield f"- {title}: {specs[owner]}, {contract.title}{_describe_paper(contract)}"
    cycles = count_noun(config.cycles, "cycle")
    yield f"- {cycles} of {count_noun(config.rounds, 'round')}, seed {agreement.seed}"


def _describe_paper(contract: Contract) -> str:
    """Return the paper of an algorithm in parentheses, or nothing without a paper."""
    if not contract.year:
        return ""
    return f' ("{contract.paper}", {contract.year})'


def _describe_scores(agreement: Agreement, facts: CardFacts) -> Iterator[str]:
    if not facts.scores:
        yield "Not known."
        return
    if facts.headline:
        yield facts.headline
        yield ""
    for name, value in facts.scores.items():
        if value is None:
            yield f"- {name}: not shown"
        else:
            yield f"- {name}: {value:.4g}"
    classes = agreement.schema.outcomes
    measurements = find_measurements(agreement.config, is_regression=not classes)
    for line in describe_results(measurements, facts.results, classes):
        yield f"- {line}"
    yield ""
    if facts.left:
        yield f"Scores over fewer than {SMALL} test examples are not shown."
    else:
        yield "These scores are of this site's test examples only. The card stays at this site."


def _describe_privacy(agreement: Agreement, facts: CardFacts) -> Iterator[str]:
    yield f"- Sums are {describe_sums(agreement.config)}."
    yield f"- Transport: {find_title(agreement.transport)}; each message was signed by its sender."
    sender = "Each site" if facts.left else "This site"
    if facts.exposure is not None and facts.exposure["numbers"]:
        yield f"- {sender} sent {describe_exposure(facts.exposure)}."
    if facts.left:
        yield "- What left the sites:"
    for row in facts.left:
        cost = f"{count_noun(row['exchanges'], 'exchange')}, {size(row['bytes'])}"
        epsilon = row.get("epsilon")
        if epsilon:
            cost += f", ε = {epsilon:g}"
        yield f"  - {row['function']} ({row['kind']}): {row['description']}; {cost}"
