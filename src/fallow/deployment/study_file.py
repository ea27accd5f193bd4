"""``study.toml``: the study agreement as a file to review and distribute."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tomlkit
from pydantic import AfterValidator, Field
from tomlkit.items import Table

from fallow.core.names import BUILT_IN, DIGEST, Distribution, NamePolicy
from fallow.core.refusal import explain_errors
from fallow.core.wording import join_words
from fallow.deployment.agreement import (
    Agreement,
    Bounds,
    Timeouts,
    at_sites,
    describe_distributions,
)
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.declared import (
    Inline,
    Text,
    Words,
    add_comment,
    add_declared,
    check_settings,
    describe_file,
    list_declared,
    read_settings,
)
from fallow.deployment.descriptions import FEDERATION
from fallow.deployment.received import check_texts, read_toml
from fallow.deployment.schema import Schema, schema_from
from fallow.deployment.toml import (
    PLACED,
    add_config,
    format_duration,
    parse_duration,
    schema_section,
)
from fallow.privacy.signing import decode_key
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.sums import describe_sums
from fallow.storage.files import write_whole
from fallow.storage.validation import JsonSchema, build_schema
from fallow.transport.kinds import USUAL

SECURE_SUM = "privacy.secure_sum"
SUMS = "privacy.sums"
NO_SUMS = (
    "privacy.sums is not set, and a study at real sites has no default: set it to exact (from exact "
    "sums, the coordinator can compute rows, labeled or not) or to noisy (differential privacy, with "
    "privacy.epsilon)"
)
"""Setting that enables secure aggregation."""
LENGTH = Words("a length of time such as '10m', '36h' or '7d'")
COMPLETE = "ask the coordinator for the complete file"


def check_coordinator_key(text: str) -> str:
    """Return a valid public key unchanged. Raises ValueError otherwise."""
    copy = "copy the line from the study.toml that the coordinator sent"
    decode_key(text, "federation.coordinator", copy)
    return text


def check_distribution(described: Mapping[str, str]) -> Mapping[str, str]:
    """Return the description of a distribution unchanged. Raises ValueError if it is incomplete."""
    if described.keys() != {"version", "digest"} or not DIGEST.fullmatch(
        described["digest"]
    ):
        raise ValueError(
            "federation.distributions: give version and digest of each distribution, such as "
            'my-methods = {version = "1.0", digest = "sha256:..."}'
        )
    return described


def duration_of(setting: str) -> AfterValidator:
    """Return the check of a duration."""

    def check(value: object) -> object:
        parse_duration(value, setting)
        return value

    return AfterValidator(check)


@dataclass(frozen=True)
class Parties:
    """Section ``[federation]`` of ``study.toml``: parties, timeouts and limits."""

    SECTION = "federation"
    DESCRIPTIONS = FEDERATION

    name: Annotated[Text, Field(examples=["hearts"])]
    sites: Annotated[
        tuple[Text, ...], Words("a list of names"), Field(examples=[["basel", "bern"]])
    ]
    coordinator: Annotated[Text, AfterValidator(check_coordinator_key)]
    transport: Annotated[Text, Field(examples=[USUAL])]
    seed: Annotated[int, Field(ge=0)] = 0
    quorum: Annotated[int | None, Field(examples=[2])] = None
    timeout: Annotated[
        str | float, duration_of("federation.timeout"), LENGTH, Field(examples=["10m"])
    ] = format_duration(Timeouts.timeout)
    patience: Annotated[
        str | float, duration_of("federation.patience"), LENGTH, Field(examples=["1w"])
    ] = format_duration(Timeouts.patience)
    deadline: Annotated[
        str | float, duration_of("federation.deadline"), LENGTH, Field(examples=["2w"])
    ] = format_duration(Timeouts.deadline)
    bounds: Annotated[Bounds, Inline()] = Bounds()
    plan: Annotated[AnswerPlan, Inline()] = SINGLE
    authority: Text | None = None
    guideline: Text | None = None
    distributions: Annotated[
        Mapping[str, Annotated[Mapping[str, str], AfterValidator(check_distribution)]],
        Field(examples=[{"my-methods": {"version": "1.0", "digest": "sha256:..."}}]),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)


def read_agreement(path: str | Path, names: NamePolicy = BUILT_IN) -> Agreement:
    """Read the agreement in a TOML file.

    The file has the settings of an experiment configuration and the sections ``[federation]`` and
    ``[schema]``. It states every setting itself and extends no other configuration. It is only
    parsed: nothing that it names is imported, built or evaluated. ``names`` is the policy for class
    names on this machine (default: Fallow's own classes).

    Raises ValueError that names the file and the setting.
    """
    file = Path(path)
    settings = read_toml(
        file,
        "it is the study.toml that the coordinator wrote and sent to the sites; put it there, or "
        "check the path",
    )
    with explain_errors(f"{file}: "):
        check_texts(settings)
        return agreement_from(settings, names)


def agreement_from(
    settings: Mapping[str, object], names: NamePolicy = BUILT_IN
) -> Agreement:
    """Build an agreement from the settings of its file. ``names`` as in `read_agreement`."""
    section = _find_section(settings, "federation")
    schema = schema_from(_find_section(settings, "schema"))
    parties = Parties(**read_settings(Parties, {"federation": section}, COMPLETE))
    sites = tuple(sorted(parties.sites))
    config = _read_config(settings, parties.name)
    if config.privacy.sums is None:
        raise ValueError(NO_SUMS)
    return Agreement(
        name=parties.name,
        config=at_sites(config, parties.name, len(sites), schema),
        schema=schema,
        sites=sites,
        coordinator=base64.b64decode(parties.coordinator),
        seed=parties.seed,
        waits=Timeouts(
            timeout=parse_duration(parties.timeout, "federation.timeout"),
            patience=parse_duration(parties.patience, "federation.patience"),
            deadline=parse_duration(parties.deadline, "federation.deadline"),
            quorum=parties.quorum,
        ),
        authority=_strip(parties.authority),
        bounds=parties.bounds,
        guideline=_strip(parties.guideline),
        transport=parties.transport,
        distributions={
            name: Distribution(**described)
            for name, described in parties.distributions.items()
        },
        plan=parties.plan,
        names=names,
    )


def _strip(text: str | None) -> str | None:
    """Return a multi-line setting without the line breaks around it."""
    if text is None:
        return None
    return text.strip()


def _find_section(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the settings in the section ``[name]``."""
    section = settings.get(name)
    if not isinstance(section, Mapping):
        raise ValueError(
            f"there is no section [{name}]; 'fallow coordinate init' writes a complete file"
        )
    return section


def _read_config(settings: Mapping[str, object], name: str) -> ExperimentConfig:
    """Return the settings outside sections as the experiment configuration of the study."""
    unused = sorted(settings.keys() & set(PLACED))
    if unused:
        raise ValueError(
            f"{join_words(unused)} in the experiment part of a study agreement would have no "
            "effect: remove this from the file; columns and labels are settings of [schema], and "
            "name and sites of [federation]"
        )
    of_config: dict[str, object] = {"name": name, "data": name}
    for key, value in settings.items():
        if key not in ("federation", "schema"):
            of_config[key] = value
    return config_from(of_config)


def names_secure_sum(config: str) -> bool:
    """Return whether a configuration file sets secure aggregation explicitly."""
    if not config.endswith(".toml"):
        return False
    privacy = read_toml(Path(config), "check the path").get("privacy")
    return isinstance(privacy, Mapping) and "secure_sum" in privacy


def study_schema() -> JsonSchema:
    """Return the JSON schema of ``study.toml``."""
    from fallow.settings.listing import configuration_schema  # sites never need it

    schema = configuration_schema()
    sections = describe_file(Parties)["properties"]
    columns = build_schema(Schema)
    schema["$defs"] |= columns.pop("$defs")
    for name in ("base", *PLACED):  # an agreement extends no other file
        schema["properties"].pop(name, None)
    schema["properties"] |= {**sections, "schema": columns}
    schema["required"] = ["federation", "schema"]
    schema["description"] = "Study agreement: study.toml."
    return schema


# -- writing --------------------------------------------------------------------------------

HEAD = """\

The coordinator and every site have a copy of this file. It defines the computation, the functions
that a site runs, and what leaves a site. Messages cannot change any of this. A site rejects an
instruction without the fingerprint of its own copy. Comments, column limits and timeouts are not
part of the fingerprint, which `fallow site init` and `fallow coordinate status` show.
"""


def write_agreement(path: str | Path, agreement: Agreement) -> None:
    """Write the file that `read_agreement` reads, with a comment on every setting."""
    write_whole(Path(path), agreement_text(agreement).encode())


def agreement_text(agreement: Agreement) -> str:
    """Return the agreement as TOML, for review."""
    document = tomlkit.document()
    document.add(tomlkit.comment(f'Agreement of the study "{agreement.name}".'))
    for line in HEAD.splitlines():
        document.add(tomlkit.comment(line))
    add_comment(document, f"Sums are sent {describe_sums(agreement.config)}.")
    document.add(tomlkit.nl())
    add_config(document, agreement.config)
    document.add(tomlkit.nl())
    document.add("federation", _federation_section(agreement))
    document.add(tomlkit.nl())
    document.add("schema", schema_section(agreement.schema))
    return tomlkit.dumps(document)


def _federation_section(agreement: Agreement) -> Table:
    """Return the section ``[federation]``: parties, timeouts and limits."""
    waits = agreement.waits
    parties = Parties(
        name=agreement.name,
        sites=agreement.sites,
        coordinator=base64.b64encode(agreement.coordinator).decode(),
        transport=agreement.transport,
        seed=agreement.seed,
        quorum=waits.quorum,
        timeout=format_duration(waits.timeout),
        patience=format_duration(waits.patience),
        deadline=format_duration(waits.deadline),
        bounds=agreement.bounds,
        plan=agreement.plan,
        authority=agreement.authority,
        guideline=agreement.guideline,
        distributions=describe_distributions(agreement.distributions),
    )
    section = tomlkit.table()
    for setting in list_declared(Parties):
        text = setting.value_of(parties)
        is_long = setting.field in ("authority", "guideline")
        if setting.field == "distributions":
            _add_distributions(section, parties, setting.description)
        elif not is_long:
            add_declared(section, parties, setting.field)
        elif text is not None:
            add_comment(section, setting.description)
            # TOML ignores the line break after the opening quotes
            section.add(setting.name, tomlkit.string(f"\n{text}\n", multiline=True))
    return section


def _add_distributions(section: Table, parties: Parties, description: str) -> None:
    """Add the agreed distributions, if there are any."""
    if not parties.distributions:
        return
    add_comment(section, description)
    described = tomlkit.inline_table()
    for name, distribution in parties.distributions.items():
        inner = tomlkit.inline_table()
        inner.update(distribution)
        described.add(name, inner)
    section.add("distributions", described)
