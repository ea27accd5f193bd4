"""``study.toml``: the study agreement as a file to review and distribute."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.items import Table

from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.terms import nearest
from fallow.deployment.agreement import Agreement, Waits, at_sites
from fallow.deployment.received import check_texts, read_toml
from fallow.deployment.schema import schema_from
from fallow.deployment.toml import (
    add_recipe,
    add_setting,
    duration,
    schema_section,
    seconds_of,
)
from fallow.recipes.find import find_recipe
from fallow.settings.recipe import Recipe, recipe_from
from fallow.storage.files import write_whole
from fallow.transport.links import LINKS
from fallow.transport.plausible import Bounds

SECURE_SUM = "privacy.secure_sum"
"""Setting that enables secure aggregation."""
KNOWN = (
    "name",
    "sites",
    "coordinator",
    "authority",
    "seed",
    "smallest",
    "timeout",
    "quorum",
    "patience",
    "deadline",
    "guideline",
    "link",
    "farthest",
    "largest_share",
    "largest_ratio",
)
"""Settings of the section ``[federation]``."""


def read_agreement(path: str | Path, names: NamePolicy = BUILT_IN) -> Agreement:
    """Read the agreement in a TOML file.

    The file has the settings of an experiment configuration, which may start from ``base =
    "demo"``, and the sections ``[federation]`` and ``[schema]``. It is only parsed: nothing that it
    names is imported, built or evaluated. ``names`` is the policy for class names on this machine
    (default: Fallow's own classes).

    Raises ValueError that names the file and the setting.
    """
    file = Path(path)
    settings = read_toml(
        file,
        "it is the study.toml that the coordinator wrote and sent to the sites; put it there, or "
        "check the path",
    )
    try:
        check_texts(settings)
        return agreement_from(settings, names)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def agreement_from(
    settings: Mapping[str, object], names: NamePolicy = BUILT_IN
) -> Agreement:
    """Build an agreement from the settings of its file. ``names`` as in `read_agreement`."""
    section = _find_section(settings, "federation")
    schema = schema_from(_find_section(settings, "schema"))
    _check_settings(section)
    listed = _check_list(section["sites"])
    name = _check_text(section["name"])
    coordinator = _check_text(section["coordinator"])
    authority = _read_lines(section, "authority")
    guideline = _read_lines(section, "guideline")
    sites = sorted(_check_text(site) for site in listed)
    recipe = _read_recipe(settings, name)
    return Agreement(
        name=name,
        recipe=at_sites(recipe, name, len(sites), schema),
        schema=schema,
        sites=tuple(sites),
        coordinator=_parse_key(coordinator),
        seed=_read_whole(section, "seed", 0),
        waits=_read_waits(section),
        smallest=_read_whole(section, "smallest", 5),
        authority=authority,
        bounds=_read_bounds(section),
        guideline=guideline,
        link=_check_text(section["link"]),
        names=names,
    )


def _find_section(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the settings in the section ``[name]``."""
    section = settings.get(name)
    if not isinstance(section, Mapping):
        raise ValueError(
            f"there is no section [{name}]; 'fallow coordinate init' writes a whole file"
        )
    return section


def _check_settings(about: Mapping[str, object]) -> None:
    """Raise ValueError for an unknown or missing setting of ``[federation]``."""
    for key in about:
        if key not in KNOWN:
            raise ValueError(
                f"federation.{key} is not a setting{nearest(key, list(KNOWN))}"
            )
    for key in ("name", "sites", "coordinator", "link"):
        if key not in about:
            raise ValueError(
                f"federation.{key} is missing; ask the coordinator for the complete file"
            )


def _read_recipe(settings: Mapping[str, object], name: str) -> Recipe:
    """Return the settings outside sections as the experiment configuration of the study."""
    of_recipe: dict[str, object] = {"name": name, "data": name}
    for key, value in settings.items():
        if key not in ("federation", "schema", "base"):
            of_recipe[key] = value
    base: Recipe | None = None
    named = settings.get("base")
    if named is not None:
        base = _find_base(named)
    return recipe_from(of_recipe, base)


def _find_base(name: object) -> Recipe:
    """Return the base configuration, one that is included in Fallow and never a local file."""
    if not isinstance(name, str) or name.endswith(".toml"):
        raise ValueError(
            f"base is {name!r:.80}; an agreement starts from an included experiment "
            "configuration ('fallow recipes' lists them)"
        )
    return find_recipe(name)


def names_secure_sum(recipe: str) -> bool:
    """Return whether a configuration file sets secure aggregation explicitly."""
    if not recipe.endswith(".toml"):
        return False
    privacy = read_toml(Path(recipe), "check the path").get("privacy")
    return isinstance(privacy, Mapping) and "secure_sum" in privacy


def _check_list(sites: object) -> list[object]:
    if not isinstance(sites, list):
        raise ValueError(f"federation.sites is {sites!r}; give a list of names")
    return sites


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"federation: {value!r} is no text; put it in quotes")
    return value


def _read_lines(about: Mapping[str, object], name: str) -> str | None:
    """Return a stripped multi-line setting, or None if it is missing."""
    value = about.get(name)
    if value is None:
        return None
    return _check_text(value).strip()


def _parse_key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"federation.coordinator is no base64: {error}") from error


def _find_whole(about: Mapping[str, object], name: str) -> int | None:
    """Return an integer setting, or None if it is missing."""
    value = about.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"federation.{name} is {value!r}; give a whole number")
    return value


def _read_whole(about: Mapping[str, object], name: str, default: int) -> int:
    value = _find_whole(about, name)
    if value is None:
        return default
    return value


def _read_seconds(about: Mapping[str, object], name: str, default: float) -> float:
    if name not in about:
        return default
    return seconds_of(about[name], f"federation.{name}")


def _read_number(about: Mapping[str, object], name: str, default: float) -> float:
    value = about.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"federation.{name} is {value!r}; give a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"federation.{name} is beyond all numbers; give one") from error


def _read_waits(about: Mapping[str, object]) -> Waits:
    return Waits(
        timeout=_read_seconds(about, "timeout", Waits.timeout),
        patience=_read_seconds(about, "patience", Waits.patience),
        deadline=_read_seconds(about, "deadline", Waits.deadline),
        quorum=_find_whole(about, "quorum"),
    )


def _read_bounds(about: Mapping[str, object]) -> Bounds:
    return Bounds(
        farthest=_read_number(about, "farthest", Bounds.farthest),
        largest_share=_read_number(about, "largest_share", Bounds.largest_share),
        largest_ratio=_read_number(about, "largest_ratio", Bounds.largest_ratio),
    )


# -- writing --------------------------------------------------------------------------------

HEAD = """\

The coordinator and every site have a copy of this file. It defines the computation, the functions
that a site runs, and what leaves a site. Messages cannot change any of this. A site rejects an
instruction without the fingerprint of its own copy. Comments, column limits and timeouts are not
part of the fingerprint, which `fallow site init` and `fallow coordinate status` show.
Rows, images and single labels never leave their site.
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
    document.add(tomlkit.nl())
    add_recipe(document, agreement.recipe)
    document.add(tomlkit.nl())
    document.add("federation", _federation_section(agreement))
    document.add(tomlkit.nl())
    document.add("schema", schema_section(agreement.schema))
    return tomlkit.dumps(document)


def _federation_section(agreement: Agreement) -> Table:
    """Return the section ``[federation]``: parties, timeouts and limits."""
    waits = agreement.waits
    bounds = agreement.bounds
    key = base64.b64encode(agreement.coordinator).decode()
    section = tomlkit.table()
    add_setting(section, "name", agreement.name)
    add_setting(section, "sites", agreement.sites, about="participating sites")
    add_setting(
        section,
        "coordinator",
        key,
        about="public key of the coordinator, which signs all instructions to sites",
    )
    _add_authority(section, agreement.authority)
    about_link = f"transport: {', '.join(LINKS)}; sites always initiate the connection"
    add_setting(section, "link", agreement.link, about=about_link)
    add_setting(
        section,
        "seed",
        agreement.seed,
        about="seed for initialization and all non-cryptographic randomness",
    )
    add_setting(
        section,
        "smallest",
        agreement.smallest,
        about="smallest number of test examples for which a site reports scores",
    )
    about_quorum = "replies that an exchange needs (default: all sites)"
    if waits.quorum is not None:
        add_setting(section, "quorum", waits.quorum, about=about_quorum)
    else:
        section.add(tomlkit.comment(about_quorum))
        section.add(tomlkit.comment(f"quorum = {len(agreement.sites)}"))
    add_setting(
        section,
        "timeout",
        duration(waits.timeout),
        about="time that an exchange waits for all sites (units: s, m, h, d, w)",
    )
    add_setting(
        section,
        "patience",
        duration(waits.patience),
        about="time that an exchange waits for the quorum; then the coordinator stops (restart it)",
    )
    add_setting(
        section,
        "deadline",
        duration(waits.deadline),
        about="time for the labels of a cycle; open labeling tasks then expire",
    )
    add_setting(
        section,
        "farthest",
        bounds.farthest,
        about="reject a model whose norm exceeds the usual norm by this factor",
    )
    add_setting(
        section,
        "largest_share",
        bounds.largest_share,
        about="largest weight of a site in an average, as a share of all sites",
    )
    add_setting(
        section,
        "largest_ratio",
        bounds.largest_ratio,
        about="largest weight of a site, relative to the median (from three sites on; inf: no limit)",
    )
    if agreement.guideline is not None:
        _add_lines(
            section,
            "guideline",
            agreement.guideline,
            about="labeling guideline: plain text, shown beside each example",
        )
    return section


def _add_lines(section: Table, key: str, text: str, about: str) -> None:
    """Add a multi-line setting below a comment."""
    section.add(tomlkit.comment(about))
    # TOML ignores the line break after the opening quotes
    section.add(key, tomlkit.string(f"\n{text}\n", multiline=True))


def _add_authority(section: Table, authority: str | None) -> None:
    head = "certificate that authenticates the coordinator's machine"
    if authority is None:
        otherwise = "that of each site's operating system, or of its option --ca"
        section.add(tomlkit.comment(f"{head}: {otherwise}"))
        return
    _add_lines(section, "authority", authority, about=head)
