"""What a study means for a site, in lines that people read before they start it."""

from __future__ import annotations

from fallow.federation.agreement import Agreement
from fallow.federation.building import build_study
from fallow.federation.site.folder import SiteFolder
from fallow.federation.site.rows import SiteRows
from fallow.federation.site.settings import Settings
from fallow.federation.toml import duration
from fallow.privacy import Privacy
from fallow.settings.recipe import Recipe, named_classes
from fallow.storage.plain import plain

NOTHING = "nothing"
PARTS = {
    "initial": "first labels",
    "query": "query",
    "training": "training",
    "encoder": "encoder",
    "scaling": "standardisation",
    "retention": "best model",
    "people": "people and scores",
}
SEEN = {
    "sum": "coordinator, each site's part",
    "each": "coordinator",
    "keep": "coordinator",
    "relay": "other sites, sealed",
}
"""Who sees what is asked by an operation; what is kept stays here, and a number of it is seen."""
Leaving = tuple[str, str, str, str]
"""A part of the study, a function that it may call at a site, what that reveals, and to whom."""


def leaving(folder: SiteFolder) -> list[Leaving]:
    """Everything that can leave the site, from the contracts of the methods that play a part."""
    methods, is_secure = (
        build_study(folder.agreement).methods,
        folder.agreement.recipe.privacy.secure_sum,
    )
    seen = SEEN | ({"sum": "coordinator, totals alone"} if is_secure else {})
    return [
        (part, verb, what, seen[operation])
        for owner, part in PARTS.items()
        if owner in methods
        for operation, words in methods[owner].contract.asked.items()
        for verb, what in words.items()
        if what != NOTHING
    ]


def labels_wanted(recipe: Recipe) -> str:
    """How many labels the study asks for, in words.

    >>> labels_wanted(Recipe("a", initial=10, per_cycle=0.05, cycles=2))
    'first 10 labels a site, then in each of 2 cycles 5 % of all rows of all sites'
    """
    how = {
        "equal": "",
        "equal_rounded": ", equally many at each site",
        "proportional": ", more at larger sites",
    }[recipe.budget]

    def many(share: float | int) -> str:
        if isinstance(share, int):
            return f"{share} labels a site"
        return f"{100 * share:g} % of all rows of all sites{how}"

    first = f"first {many(recipe.initial)}, then " if recipe.initial else ""
    cycles = "one cycle" if recipe.cycles == 1 else f"each of {recipe.cycles} cycles"
    return f"{first}in {cycles} {many(recipe.per_cycle)}"


def terms(folder: SiteFolder) -> list[str]:
    """Lines about the study: who, what is asked, what is spent."""
    about = folder.agreement
    return [f"digest {about.digest[:12]}", *terms_of(about, folder.settings)]


def terms_of(about: Agreement, own: Settings) -> list[str]:
    """`terms` of an agreement that was only read: nothing that it names is imported or built.

    Its digest is not among them, so that who confirms it asks the coordinator.
    """
    recipe = about.recipe
    limit = "" if own.limit is None else f"; this site gives {own.limit} at most"
    agree = f"; {own.annotators} must agree on each label" if own.annotators > 1 else ""
    lines = [
        f"study {about.name}, sites: {', '.join(about.sites)}",
        f"model {recipe.model}, trained by {recipe.training}; rows are chosen by {recipe.query}",
        *(f"code that did not come with Fallow: {name}" for name in foreign(recipe)),
        f"labels: {labels_wanted(recipe)}{limit}",
        f"people have {duration(about.waits.deadline)} for the labels of a cycle{agree}",
        *_unknown(recipe, own.limit),
        f"privacy: {_protected(recipe.protected, own.epsilon)}",
    ]
    return [plain(line, LINE) for line in lines]


def _unknown(recipe: Recipe, limit: int | None) -> list[str]:
    """A line where only the coordinator knows how many labels are asked for."""
    shares = [s for s in (recipe.initial, recipe.per_cycle) if isinstance(s, float) and s]
    if limit is not None or not shares or recipe.budget == "proportional":
        return []
    return [
        "how many labels that is follows from the rows of all sites, which only the coordinator "
        "knows: the first number that it asks for holds; to set one, give limit in site.toml"
    ]


LINE = 1000  # characters


def foreign(recipe: Recipe) -> list[str]:
    """The classes of others that a recipe names, each with its setting."""
    named = named_classes(recipe).items()
    return [f"{setting} = {name}" for setting, name in named if ":" in name]


def _protected(privacy: Privacy, limit: float | None) -> str:
    """How sums and counts are protected, in words."""
    sums = "the coordinator receives what each site adds to a sum"
    if privacy.secure_sum:
        sums = "what each site adds is hidden in sums"
    if privacy.epsilon is None:
        return f"counts leave without noise; {sums}"
    own = "" if limit is None else f", at most {limit:g} at this site"
    each, total = privacy.epsilon, privacy.total or privacy.epsilon
    return f"noise on counts, ε {each:g} for each release and {total:g} in all{own}; {sums}"


def rows_told(rows: SiteRows, tests: SiteRows | None) -> list[str]:
    """Lines about the site's own rows."""
    said = [f"{len(rows.x)} rows, {rows.labelled} of them with labels"]
    if tests is None:
        return [*said, "no rows to test on", *rows.notes]
    notes = [*tests.notes, *_trained_too(rows, tests)]
    return [
        *said,
        f"{len(tests.x)} rows to test on",
        *rows.notes,
        *(f"test rows: {note}" for note in notes),
    ]


def _trained_too(rows: SiteRows, tests: SiteRows) -> list[str]:
    """Names differ between files, so features say which rows stand in both."""
    known = {row.numpy().tobytes() for row in rows.x}
    many = sum(row.numpy().tobytes() in known for row in tests.x)
    return (
        [
            f"{many} of them equal a row to train on in every feature; scores say too much then"
        ]
        if many
        else []
    )
