"""Local settings of a site (``site.toml``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.items import Table

from fallow.core.names import NamePolicy
from fallow.core.terms import nearest
from fallow.core.types import SiteId
from fallow.deployment.address import check_address, check_host, check_proxy
from fallow.deployment.toml import add_setting, toml_item
from fallow.transport.links import is_loopback

SECTIONS = {
    "labels": {"limit": "limit", "annotators": "annotators", "shown": "shown"},
    "privacy": {"limit": "epsilon", "delta": "delta"},
    "scores": {"limit": "scores"},
    "runs": {"limit": "runs"},
}
ALLOW = "allow"
"""Section of distributions whose classes an agreement may name, with their hashes."""
PAGE = "page"
"""Section of a labeling page behind a reverse proxy that authenticates annotators."""
FIELD = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""Normalized name of an HTTP header field."""
TEXTS = (
    "name",
    "data",
    "test",
    "superlink",
    "address",
    "proxy",
    "certificates",
    "own_certificate",
    "own_key",
)
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(TEXTS, ((str,), "a text in quotes")),
    **dict.fromkeys(
        ("limit", "annotators", "shown", "scores", "runs"),
        ((int,), "a whole number"),
    ),
    **dict.fromkeys(("epsilon", "delta"), ((int, float), "a number")),
}


RUNS = 10
"""Default for the largest number of runs of a study."""


@dataclass(frozen=True)
class PageLogin:
    """Login to the labeling page through a reverse proxy.

    Parameters
    ----------
    people
        Names of the annotators, as the proxy sends them.
    proxies
        IP addresses of the proxy.
    host
        Host name that browsers use, with a port unless it is 443.
    header
        Field in which the proxy sends the name.
    listen
        Address of the page as ``host:port``.
    """

    people: tuple[str, ...]
    proxies: tuple[str, ...]
    host: str
    header: str = "x-remote-user"
    listen: str = "127.0.0.1:8123"

    def __post_init__(self) -> None:
        if not self.people:
            raise ValueError("page.people names nobody; list who may label")
        if not self.proxies:
            raise ValueError("page.proxies is empty; list the proxy's addresses")
        for proxy in self.proxies:
            try:
                is_any = ip_address(proxy).is_unspecified
            except ValueError:
                is_any = True
            if is_any:
                raise ValueError(
                    f"page.proxies: {proxy!r} is no IP address of one machine; give the address "
                    "from which the proxy calls, such as 127.0.0.1"
                )
        if not FIELD.fullmatch(self.header):
            raise ValueError(
                f"page.header is {self.header!r}; give the name of a field in small letters, such "
                "as x-remote-user"
            )
        has_port = self.host.rpartition(":")[2].isdigit() and ":" in self.host
        if has_port:
            check_address(self.host, "page.host")
        else:
            check_host(self.host, "page.host")
        check_address(self.listen, "page.listen")


@dataclass(frozen=True)
class Settings:
    """Local settings of a site, stored in ``site.toml``.

    All limits apply over all runs.

    Parameters
    ----------
    data, test
        Data files. Paths are relative to the folder.
    superlink
        Coordinator's address as ``host:port`` for Flower.
    address
        Coordinator's address for HTTPS, or the local port of an NVFlare job.
    proxy
        Address of a proxy (default: from the environment).
    certificates
        Authority of the coordinator's certificate (default: those of the operating system).
    own_certificate, own_key
        Certificate and key that this site shows over HTTPS (default: none).
    limit
        Largest number of labels from its annotators.
    annotators
        Number of annotators that must agree on each label.
    epsilon, delta
        Privacy budget (default: that of the agreement).
    shown
        Largest number of labeling tasks shown to annotators (default: twice the number of labels).
    scores
        Largest number of models scored on its test examples (default: twice the number of one run).
    runs
        Largest number of runs that the site takes part in (default: `RUNS`).
    allow
        Installed distributions whose classes the agreement may name, with their hashes, in addition to
        Fallow's own.
    login
        Login to the labeling page through a reverse proxy (default: none).
    """

    name: SiteId
    data: str
    test: str | None = None
    superlink: str | None = None
    address: str | None = None
    proxy: str | None = None
    own_certificate: str | None = None
    own_key: str | None = None
    certificates: str | None = None
    limit: int | None = None
    annotators: int = 1
    epsilon: float | None = None
    delta: float | None = None
    shown: int | None = None
    scores: int | None = None
    runs: int | None = None
    allow: Mapping[str, str] = field(default_factory=dict)
    login: PageLogin | None = None

    @property
    def names(self) -> NamePolicy:
        """Return the policy for class names in an agreement at this site."""
        return NamePolicy(allowed=self.allow)

    def __post_init__(self) -> None:
        _ = self.names  # rejects invalid hashes
        for name, value in (("name", self.name), ("data", self.data)):
            if not value:
                raise ValueError(
                    f"{name} is empty; write it into site.toml, or give --{name}"
                )
        counts = {
            "labels.limit": self.limit,
            "labels.shown": self.shown,
            "scores.limit": self.scores,
            "runs.limit": self.runs,
        }
        for name, count in counts.items():
            if count is not None and count < 0:
                raise ValueError(f"{name} is {count}; it must be 0 or more")
        if self.annotators < 1:
            raise ValueError(
                f"labels.annotators is {self.annotators}; somebody must answer"
            )
        if self.epsilon is not None and not 0 < self.epsilon < inf:
            raise ValueError(
                f"privacy.limit is {self.epsilon}; it must be above 0 and finite, or left out"
            )
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(
                f"privacy.delta is {self.delta}; it must be above 0 and below 1, or left out"
            )
        if self.superlink is not None:
            check_address(self.superlink, "superlink")
        if self.address is not None:
            check_address(self.address, "address")
        if self.proxy is not None:
            check_proxy(self.proxy)
        if (self.own_certificate is None) != (self.own_key is None):
            raise ValueError(
                "own_certificate and own_key belong together: give both or none"
            )


def settings_from(tree: Mapping[str, object]) -> Settings:
    """Build settings from the content of ``site.toml``. Raises ValueError naming the setting."""
    texts = _read_texts(tree)
    allowed = _read_allowed(tree)
    outcome = texts | _read_sections(tree)
    for setting, (written_as, value) in outcome.items():
        kinds, wanted = KINDS[setting]
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"{written_as} is {value!r}; give {wanted}")
    for name in ("name", "data"):
        if name not in outcome:
            raise ValueError(f"{name} is missing; write a line {name} = ...")
    values: dict[str, Any] = {setting: value for setting, (_, value) in outcome.items()}
    return Settings(**values, allow=allowed, login=_read_login(tree))


Found = dict[str, tuple[str, object]]
"""Settings by field: the name in the file and the value."""


def _read_texts(tree: Mapping[str, object]) -> Found:
    """Return the settings outside sections."""
    texts: Found = {}
    for key, value in tree.items():
        if key in SECTIONS or key in (ALLOW, PAGE):
            continue
        if key not in TEXTS:
            known = [*TEXTS, *SECTIONS, ALLOW, PAGE]
            raise ValueError(f"{key} is not a setting{nearest(key, known)}")
        texts[key] = (key, value)
    return texts


def _read_sections(tree: Mapping[str, object]) -> Found:
    """Return the settings in sections."""
    sections: Found = {}
    for section, fields in SECTIONS.items():
        table = tree.get(section, {})
        if not isinstance(table, Mapping):
            raise ValueError(
                f"{section} is {table!r}; write [{section}] on a line of its own and "
                f"{' and '.join(fields)} below it"
            )
        for key, value in table.items():
            if key not in fields:
                raise ValueError(
                    f"{section}.{key} is not a setting{nearest(key, list(fields))}"
                )
            sections[fields[key]] = (f"{section}.{key}", value)
    return sections


def _read_allowed(tree: Mapping[str, object]) -> dict[str, str]:
    """Return the distributions whose classes an agreement may name, with their hashes."""
    allowed = tree.get(ALLOW, {})
    if not isinstance(allowed, Mapping):
        raise ValueError(
            f"{ALLOW} is {allowed!r}; write [{ALLOW}] on a line of its own and below it a line "
            'such as my-methods = "sha256:..."'
        )
    return dict(allowed)


def _read_login(tree: Mapping[str, object]) -> PageLogin | None:
    """Return the section ``[page]``, or None if it is missing."""
    section = tree.get(PAGE)
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise ValueError(f"{PAGE} is {section!r}; write [{PAGE}] on a line of its own")
    lists = ("people", "proxies")
    texts = ("host", "header", "listen")
    login: dict[str, Any] = {}
    for key, value in section.items():
        if key not in (*lists, *texts):
            raise ValueError(
                f"{PAGE}.{key} is not a setting{nearest(key, [*lists, *texts])}"
            )
        if key in texts and not isinstance(value, str):
            raise ValueError(f"{PAGE}.{key} is {value!r}; give a text in quotes")
        if key in lists:
            is_list = isinstance(value, list) and all(isinstance(v, str) for v in value)
            if not is_list:
                raise ValueError(
                    f'{PAGE}.{key} is {value!r}; give a list such as ["a", "b"]'
                )
            value = tuple(value)
        login[key] = value
    for key in (*lists, "host"):
        if key not in login:
            raise ValueError(
                f"{PAGE}.{key} is missing; write a line {key} = ... below [{PAGE}]"
            )
    return PageLogin(**login)


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
    _add(document, "name", settings.name)
    _add(
        document,
        "data",
        settings.data,
        "unlabeled or partly labeled examples; the file must not change during the study",
    )
    _add(
        document,
        "test",
        settings.test,
        "labeled test examples",
        example="test.csv",
    )
    _add_coordinator(document, settings)
    _add(document, "certificates", settings.certificates, example="keys/authority.pem")

    labels = _add_section(document, "labels")
    _add(
        labels,
        "limit",
        settings.limit,
        "largest number of labels from this site over all runs",
        example=100,
    )
    _add(
        labels,
        "annotators",
        settings.annotators,
        "number of annotators who must agree on a label",
    )
    _add(
        labels,
        "shown",
        settings.shown,
        "largest number of labeling tasks shown to annotators, including expired ones",
        "(default: twice the number of labels)",
        example=200,
    )

    privacy = _add_section(document, "privacy")
    _add(
        privacy,
        "limit",
        settings.epsilon,
        "privacy budget (ε) of this site over all runs",
        example=4.0,
    )
    _add(
        privacy,
        "delta",
        settings.delta,
        "delta budget of this site; each run with Gaussian noise spends the agreed delta",
        example=1e-5,
    )

    scores = _add_section(document, "scores")
    _add(
        scores,
        "limit",
        settings.scores,
        "largest number of models scored on the test examples",
        "(default: twice the number of one run)",
        example=100,
    )

    runs = _add_section(document, "runs")
    _add(
        runs,
        "limit",
        settings.runs,
        "largest number of runs of the study at this site",
        example=RUNS,
    )

    allow = _add_section(document, ALLOW)
    for line in (
        "installed distributions whose classes study.toml may name, with their fingerprints;",
        "review the code of a distribution before you add it",
    ):
        allow.add(tomlkit.comment(line))
    for name, digest in settings.allow.items():
        add_setting(allow, name, digest)
    return tomlkit.dumps(document)


def _add_coordinator(document: TOMLDocument, settings: Settings) -> None:
    """Add the coordinator's address for the agreed transport."""
    details = "address of the coordinator, and the authority of its certificate"
    if settings.address is None:
        _add(
            document,
            "superlink",
            settings.superlink,
            details,
            example="coordinator.example:9092",
        )
        return
    host = settings.address.rpartition(":")[0].strip("[]")
    # local addresses never use a proxy
    if settings.proxy is not None or not is_loopback(host):
        _add(
            document,
            "proxy",
            settings.proxy,
            "proxy between this site and the network (default: HTTPS_PROXY)",
            example="http://proxy.example:3128",
        )
    if settings.own_certificate is not None:
        _add(
            document,
            "own_certificate",
            settings.own_certificate,
            "certificate and key that this site shows to the coordinator",
        )
        _add(document, "own_key", settings.own_key)
    _add(document, "address", settings.address, details)


def _add_section(document: TOMLDocument, name: str) -> Table:
    """Add a section after an empty line, to be filled later."""
    section = tomlkit.table()
    document.add(tomlkit.nl())
    document.add(name, section)
    return section


def _add(
    to: TOMLDocument | Table, key: str, value: object, *about: str, example: object = None
) -> None:
    """Add a setting below its comments, or a commented example if it has no value."""
    for line in about:
        to.add(tomlkit.comment(line))
    if value is not None:
        add_setting(to, key, value)
    else:
        to.add(tomlkit.comment(f"{key} = {toml_item(example).as_string()}"))
