"""Local settings of a site (``site.toml``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import isfinite
from typing import Annotated, Literal

import tomlkit
from pydantic import AfterValidator, Field
from tomlkit import TOMLDocument
from tomlkit.items import Table

from fallow.core.limits import Conflict, check_limits
from fallow.core.load_options import LoadOptions, Pages
from fallow.core.names import NamePolicy
from fallow.core.types import SiteId
from fallow.deployment.declared import (
    Key,
    Text,
    add_declared,
    add_table,
    check_section,
    check_settings,
    describe_file,
    read_settings,
)
from fallow.deployment.descriptions import LOGIN, OF_FILE, RUNS, SITE
from fallow.storage.validation import JsonSchema, Rule
from fallow.transport.address import check_address, check_host, check_proxy, is_loopback

ALLOW = "allow"
"""Section of distributions whose classes an agreement may name, with their hashes."""
PAGE = "page"
"""Section of a labeling page behind a reverse proxy that authenticates annotators."""
LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français", "es": "Español"}
"""Languages of the labeling page."""
HEADER = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
Finite = Annotated[float, Rule(isfinite, "a finite number")]


def is_text(value: str) -> bool:
    """Return whether a text is not empty."""
    return value != ""


def is_header(name: str) -> bool:
    """Return whether a text is the normalized name of an HTTP header field."""
    return HEADER.fullmatch(name) is not None


def check_page_host(host: str) -> str:
    """Return a valid host with an optional port unchanged. Raises ValueError otherwise."""
    has_port = ":" in host and host.rpartition(":")[2].isdigit()
    if has_port:
        return check_address(host, "page.host")
    return check_host(host, "page.host")


def check_machine(address: str) -> str:
    """Return the IP address of one machine unchanged. Raises ValueError otherwise."""
    try:
        is_any = ip_address(address).is_unspecified
    except ValueError:
        is_any = True
    if is_any:
        raise ValueError(
            f"{address!r} is not the IP address of one machine; give the address of "
            "the proxy, such as 127.0.0.1"
        )
    return address


def address_of(setting: str) -> AfterValidator:
    """Return the check of a setting that is ``host:port``."""

    def check(address: str) -> str:
        return check_address(address, setting)

    return AfterValidator(check)


Names = Rule(bool, 'a list of one text or more, such as ["a", "b"]')
Filled = Rule(is_text, "a nonempty text in quotes")


@dataclass(frozen=True)
class PageLogin:
    """Login to the labeling page through a reverse proxy (section ``[page]``)."""

    SECTION = PAGE
    DESCRIPTIONS = LOGIN

    annotators: Annotated[tuple[str, ...], Names, Field(examples=[["ann"]])]
    proxies: Annotated[
        tuple[Annotated[str, AfterValidator(check_machine)], ...],
        Names,
        Field(examples=[["127.0.0.1"]]),
    ]
    host: Annotated[
        Text, AfterValidator(check_page_host), Field(examples=["label.hospital.example"])
    ]
    header: Annotated[
        Text,
        Rule(is_header, "the name of a field in lower case, such as 'x-remote-user'"),
        Field(examples=["x-remote-user"]),
    ] = "x-remote-user"
    listen: Annotated[
        Text, address_of("page.listen"), Field(examples=["127.0.0.1:8123"])
    ] = "127.0.0.1:8123"

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Settings:
    """Local settings of a site, stored in ``site.toml``.

    All limits apply over all runs. Paths are relative to the folder of the site.
    """

    DESCRIPTIONS = SITE
    CONFLICTS = (
        Conflict(
            ("own_certificate", "own_key"),
            lambda certificate, key: (certificate is None) != (key is None),
            "; they belong together: give both or none",
        ),
    )

    name: Annotated[SiteId, Filled, Field(examples=["basel"])]
    data: Annotated[str, Filled, Field(examples=["rows.csv"])]
    test: Annotated[Text | None, Field(examples=["test.csv"])] = None
    group: Annotated[Text | None, Field(examples=["patient"])] = None
    sheet: Annotated[Text | None, Field(examples=["patients"])] = None
    header_row: Annotated[int | None, Field(ge=1, examples=[3])] = None
    decimal: Annotated[Literal[".", ","] | None, Field(examples=[","])] = None
    pages: Annotated[Pages | None, Field(examples=["each"])] = None
    confirmed: Annotated[tuple[str, ...], Field(examples=[["glucose"]])] = ()
    address: Annotated[
        Text | None, address_of("address"), Field(examples=["coordinator.example:9092"])
    ] = None
    proxy: Annotated[
        Text | None,
        AfterValidator(check_proxy),
        Field(examples=["http://proxy.example:3128"]),
    ] = None
    own_certificate: Annotated[Text | None, Field(examples=["keys/own.pem"])] = None
    own_key: Annotated[Text | None, Field(examples=["keys/own.key"])] = None
    certificates: Annotated[Text | None, Field(examples=["keys/authority.pem"])] = None
    limit: Annotated[int | None, Key("labels.limit"), Field(ge=0, examples=[100])] = None
    annotators: Annotated[int, Key("labels.annotators"), Field(ge=1)] = 1
    adjudicators: Annotated[
        tuple[str, ...], Key("labels.adjudicators"), Field(examples=[["ann"]])
    ] = ()
    language: Annotated[
        Text | None,
        Key("labels.language"),
        Rule(LANGUAGES.__contains__, f"one of {', '.join(LANGUAGES)}"),
        Field(examples=["de"]),
    ] = None
    epsilon: Annotated[Finite | None, Key("privacy.limit"), Field(gt=0, examples=[4.0])] = (
        None
    )
    delta: Annotated[
        Finite | None, Key("privacy.delta"), Field(gt=0, lt=1, examples=[1e-5])
    ] = None
    shown: Annotated[int | None, Key("labels.shown"), Field(ge=0, examples=[200])] = None
    scores: Annotated[int | None, Key("scores.limit"), Field(ge=0, examples=[100])] = None
    describes: Annotated[bool, Key("describe.allowed")] = True
    runs: Annotated[int | None, Key("runs.limit"), Field(ge=0, examples=[RUNS])] = None
    allow: Annotated[Mapping[str, str], Field(examples=[{"my-methods": "sha256:..."}])] = (
        field(default_factory=dict)
    )
    login: Annotated[PageLogin | None, Key(PAGE)] = None

    @property
    def number_of_annotators(self) -> int:
        """Return the number of annotators: those with a login, if there are any."""
        if self.login is not None:
            return len(self.login.annotators)
        return self.annotators

    def load_options(self, drop_rows: bool) -> LoadOptions:
        """Return the options of the site's own file, with the agreed one for missing values."""
        values = {name: getattr(self, name) for name in OF_FILE}
        own = {name: value for name, value in values.items() if value is not None}
        return LoadOptions(drop_rows=drop_rows, **own)

    @property
    def names(self) -> NamePolicy:
        """Return the policy for class names in an agreement at this site."""
        return NamePolicy(allowed=self.allow)

    def __post_init__(self) -> None:
        _ = self.names  # rejects invalid hashes
        check_settings(self)
        check_limits(self)
        if self.login is None:
            return
        for name in self.adjudicators:
            if name not in self.login.annotators:
                raise ValueError(
                    f"labels.adjudicators names {name!r}, who has no login; add the name to "
                    "page.annotators"
                )


def settings_from(tree: Mapping[str, object]) -> Settings:
    """Build settings from the content of ``site.toml``. Raises ValueError naming the setting."""
    values = read_settings(Settings, tree)
    check_section(
        ALLOW, values.get(ALLOW, {}), ['a line such as my-methods = "sha256:..."']
    )
    if "login" in values:
        section = {PAGE: values["login"]}
        values["login"] = PageLogin(**read_settings(PageLogin, section))
    return Settings(**values)


def site_schema() -> JsonSchema:
    """Return the JSON schema of ``site.toml``."""
    schema = describe_file(Settings)
    schema["properties"][PAGE] = describe_file(PageLogin)["properties"][PAGE]
    return schema


def settings_text(settings: Settings, study: str) -> str:
    """Return ``site.toml``, for the site's administrator.

    An unset setting is a comment with an example.
    """
    document = tomlkit.document()
    for line in (
        f'Site "{settings.name}" of the study "{study}". The study agreement is',
        "in study.toml, and this file has the local settings. Restart the site after a change.",
    ):
        document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    add_declared(document, settings, "name", "data", "test", *OF_FILE, "confirmed")
    add_declared(document, settings, *_list_connection(settings), "certificates")
    sections = {
        "labels": ("limit", "annotators", "adjudicators", "shown", "language"),
        "privacy": ("epsilon", "delta"),
        "scores": ("scores",),
        "describe": ("describes",),
        "runs": ("runs",),
    }
    for section, names in sections.items():
        add_declared(_add_section(document, section), settings, *names)
    add_table(_add_section(document, ALLOW), settings, ALLOW)
    return tomlkit.dumps(document)


def _list_connection(settings: Settings) -> Iterator[str]:
    """Yield the settings of the connection to the coordinator, for the agreed transport."""
    yield "address"
    host = (settings.address or "").rpartition(":")[0].strip("[]")
    # local addresses never use a proxy
    if settings.proxy is not None or not is_loopback(host):
        yield "proxy"
    if settings.own_certificate is not None:
        yield from ["own_certificate", "own_key"]


def _add_section(document: TOMLDocument, name: str) -> Table:
    """Add a section after an empty line, to be filled later."""
    section = tomlkit.table()
    document.add(tomlkit.nl())
    document.add(name, section)
    return section
