"""Files of deploy/: they parse, agree with the command, and grant minimal permissions.

No container engine is needed; `integrations/fallow-flower/tests` runs the same commands as
processes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from fallow_nvflare import JOB, KEEP
from tests.commands import check_command

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CHART = DEPLOY / "helm" / "fallow"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
SERVED = "/srv/fallow"
NVFLARE = f"{SERVED}/%i/nvflare"
HARDENED = ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID")


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, arguments) of the Containerfile, with continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def test_the_image_is_slim_and_its_process_is_not_root() -> None:
    outcome = instructions()
    last = max(i for i, (name, _) in enumerate(outcome) if name == "FROM")
    users = [rest for name, rest in outcome[last:] if name == "USER"]
    assert users == ["10001:10001"]
    assert not [rest for name, rest in outcome if name == "ADD"]
    copied = [rest for name, rest in outcome[last:] if name == "COPY"]
    assert copied == ["--from=build /opt/fallow /opt/fallow"]  # no source, no data


def test_no_image_is_used_but_by_its_digest() -> None:
    """Check that a base image must be given and have a digest."""
    result = instructions()
    bases = [rest.split()[0] for name, rest in result if name == "FROM"]
    assert bases == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}"]
    assert ("ARG", "PYTHON_IMAGE") in result[:1]  # before the first FROM, without a default
    check = next(rest for name, rest in result if name == "RUN")
    for base, status in (("python:3.12-slim", 1), ("python:3.12-slim@sha256:0123", 0)):
        done = subprocess.run(
            ["sh", "-c", check],
            capture_output=True,
            check=False,
            env={"PYTHON_IMAGE": base},
        )
        assert done.returncode == status
    build = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-party"]["build"]
    assert build["args"]["PYTHON_IMAGE"].startswith("${PYTHON_IMAGE:?")
    digest = f"sha256:{64 * 'a'}"
    assert image_of(objects("site", digest=digest)) == f"fallow@{digest}"
    with pytest.raises(AssertionError, match=r"image\.digest: give the digest"):
        list(objects("site", digest=""))


def test_all_that_is_installed_is_known_by_its_hash() -> None:
    installed = [rest for name, rest in instructions() if name == "RUN" and "pip" in rest]
    commands = [line for rest in installed for line in rest.split("&&") if "pip" in line]
    assert len(commands) == 3
    for command in commands:
        assert "--no-deps" in command
        is_own_source = " . " in command
        assert ("--require-hashes" in command) != is_own_source
    files = re.findall(r"-r (\S+)", " ".join(commands))
    assert files == ["requirements-deploy.lock", '"$TORCH_LOCK"']
    assert ("ARG", "TORCH_LOCK=requirements-torch.lock") in instructions()


def test_what_is_copied_is_there_and_is_sent() -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines()[2:]]
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    for name, rest in instructions():
        if name != "COPY" or rest.startswith("--from"):
            continue
        for word in rest.split()[:-1]:
            source = word.replace("${TORCH_LOCK}", "requirements-torch.lock")
            assert (ROOT / source).exists()
            assert any(fnmatch(source, pattern) for pattern in sent)


def test_the_image_asks_after_itself_by_a_command_that_there_is() -> None:
    (check,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    words = json.loads(check.partition("CMD ")[2])
    assert words[0] == "fallow"
    check_command(words[1:])
    (entry,) = [rest for name, rest in instructions() if name == "ENTRYPOINT"]
    assert json.loads(entry) == ["fallow"]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    result = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services: dict[str, Any] = result["services"]
    return services


def test_each_party_has_its_own_folder_and_no_rights(services: Mapping[str, Any]) -> None:
    parties = {name: service for name, service in services.items() if name != "prepare"}
    assert set(parties) == {"coordinator", "north", "north-page", "south", "south-page"}
    for name, details in parties.items():
        assert details["volumes"] == [f"{name.removesuffix('-page')}:/party"]
        check_command(details["command"])
    for name, details in services.items():
        assert details["read_only"] is True
        assert details["cap_drop"] == ["ALL"]
        assert details["security_opt"] == ["no-new-privileges:true"]
        assert name.endswith("-page") or "ports" not in details
        assert not details.get("privileged")


@pytest.mark.parametrize("site", ["north", "south"])
def test_a_labeling_page_is_published_on_this_machine_alone(
    services: Mapping[str, Any], site: str
) -> None:
    details = services[f"{site}-page"]
    command = details["command"]
    port = command[command.index("--port") + 1]
    assert details["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert details["networks"] == [f"{site}-page"]
    sharing = [name for name, item in services.items() if f"{site}-page" in str(item)]
    assert sharing == [f"{site}-page"]  # unreachable from other containers


def test_the_preparation_is_a_script_that_is_there(services: Mapping[str, Any]) -> None:
    mounted = services["prepare"]["volumes"][0].split(":")
    assert (DEPLOY / mounted[0]).resolve() == DEPLOY / "prepare.sh"
    assert services["prepare"]["entrypoint"][1] == mounted[1]
    done = subprocess.run(["sh", "-n", str(DEPLOY / "prepare.sh")], check=False)
    assert done.returncode == 0


def test_the_preparation_uses_commands_that_there_are() -> None:
    text = (DEPLOY / "prepare.sh").read_text().replace("\\\n", " ")
    commands = re.findall(r"(?:^|\()fallow (.*?)(?: \||>|$)", text, flags=re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        check_command(shlex.split(command))


def prepare(parties: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Run the script in an environment with only a path."""
    return subprocess.run(
        [shutil.which("sh") or "/bin/sh", str(DEPLOY / "prepare.sh"), str(parties)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": path},
    )


def test_a_preparation_that_was_cut_short_is_not_taken_for_done(tmp_path: Path) -> None:
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    study = tmp_path / "coordinator" / "study"
    study.mkdir(parents=True)
    done = prepare(tmp_path, here)
    assert done.returncode == 1
    assert "was begun and not finished: remove the folders study" in done.stderr
    (study / "sites.json").write_text('{"north": {}}')  # killed in between
    assert prepare(tmp_path, here).returncode == 1
    (study / "sites.json").write_text('{"north": {}, "south": {}}')
    done = prepare(tmp_path, here)
    assert done.returncode == 0
    assert "the trial is already prepared" in done.stdout


def test_the_preparation_says_where_fallow_is_to_be_found(tmp_path: Path) -> None:
    done = prepare(tmp_path, str(tmp_path))
    assert done.returncode == 2
    assert "there is no fallow on the path: after 'make setup', set PATH=" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_command_as_nobody_in_particular(unit: Path) -> None:
    config_parser = ConfigParser(strict=False, interpolation=None)
    config_parser.optionxform = str  # type: ignore[assignment, method-assign]  # its names have capitals
    config_parser.read_string(unit.read_text())
    service = config_parser["Service"]
    program, *words = shlex.split(service["ExecStart"])
    if unit.stem.startswith("fallow-nvflare"):
        assert program == f"{SERVED}/nvflare/bin/python"  # a separate environment
        assert words == [f"{NVFLARE}/{KEEP}", f"{NVFLARE}/{JOB}", f"{SERVED}/kit"]
    else:
        assert program == f"{SERVED}/venv/bin/fallow"
        check_command(words)
    assert service["User"] == "fallow"
    assert service["UMask"] == "0077"
    assert service["ProtectSystem"] == "strict"
    assert [service[name] for name in HARDENED] == ["yes"] * len(HARDENED)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_writes_to_the_folder_of_its_party_and_not_to_its_program(
    unit: Path,
) -> None:
    (line,) = re.findall(r"^ReadWritePaths=(.*)$", unit.read_text(), re.MULTILINE)
    wanted = [f"{SERVED}/%i"]
    if unit.stem.startswith("fallow-nvflare"):
        wanted.append(
            f"{SERVED}/kit"
        )  # the admin's startup kit, to which NVFlare writes its log
    assert line.split() == wanted


def test_a_site_and_a_monitor_reach_no_address_that_is_not_allowed() -> None:
    denied = [unit.stem for unit in UNITS if "\nIPAddressDeny=any\n" in unit.read_text()]
    assert denied == ["fallow-monitor@", "fallow-site@"]
    for unit in UNITS:
        allowed = re.findall(r"^IPAddressAllow=(.*)$", unit.read_text(), re.MULTILINE)
        assert allowed == (["localhost"] if unit.stem in denied else [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    program = shlex.quote(shutil.which("true") or "/bin/true")
    text = unit.read_text()
    for name in ("venv/bin/fallow", "nvflare/bin/python"):
        text = text.replace(f"{SERVED}/{name}", program)
    copy = tmp_path / unit.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# -- the chart, with the subset of Helm's language that its templates use --------------

EXPRESSION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")


def lookup(path: str, values: Mapping[str, Any]) -> Any:
    outcome: Any = values
    for step in path.strip(".").split("."):
        outcome = outcome[step]
    return outcome


def evaluate(expression: str, values: Mapping[str, Any]) -> Any:
    """Evaluate a path, a string or a call.

    Calls are ``eq A B``, ``not A``, ``A | default B``, ``A | required B`` and ``A |
    toJson``.
    """
    first, *filters = [part.strip() for part in expression.split("|")]
    words = shlex.split(first, posix=False)
    match words:
        case ["eq", left, right]:
            result = evaluate(left, values) == evaluate(right, values)
        case ["not", name]:
            result = not evaluate(name, values)
        case [text] if text.startswith('"'):
            result = json.loads(text)
        case [path]:
            result = lookup(path, values)
        case _:
            raise AssertionError(f"the test does not know {expression!r}")
    for name in filters:
        if name == "toJson":
            result = json.dumps(result)
        elif name.startswith("default "):
            result = result or evaluate(name.removeprefix("default "), values)
        elif name.startswith("required "):
            assert result, evaluate(name.removeprefix("required "), values)
        else:
            raise AssertionError(f"the test does not know the filter {name!r}")
    return result


def render(template: Path, values: Mapping[str, Any]) -> str:
    """Return the text of a template for these values."""
    shown = [True]
    out = []
    text = re.sub(r"\s*\{\{-", "{{", template.read_text())
    for part in re.split(r"(\{\{.*?\}\})", text):
        match = EXPRESSION.fullmatch(part)
        if match is None:
            out.append(part if all(shown) else "")
        elif match[1].startswith("if "):
            shown.append(bool(evaluate(match[1].removeprefix("if "), values)))
        elif match[1] == "else":
            shown[-1] = not shown[-1]
        elif match[1] == "end":
            shown.pop()
        elif all(shown):
            out.append(str(evaluate(match[1], values)))
    assert shown == [True]
    return "".join(out)


def objects(
    role: str,
    *,
    claim: str = "",
    digest: str = f"sha256:{64 * '0'}",
    coordinator: str = "203.0.113.7/32",
) -> Iterator[dict[str, Any]]:
    """Return the objects that a release would create."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    values["role"] = role
    values["volume"]["existingClaim"] = claim
    values["image"]["digest"] = digest
    values["network"]["coordinator"] = coordinator
    details = yaml.safe_load((CHART / "Chart.yaml").read_text())
    known = {
        "Values": values,
        "Release": {"Name": "basel"},
        "Chart": {"AppVersion": details["appVersion"]},
    }
    for template in TEMPLATES:
        result = yaml.safe_load(render(template, known))
        if result is not None:
            yield result


def image_of(manifests: Iterable[dict[str, Any]]) -> str:
    (image,) = [
        item["spec"]["template"]["spec"]["containers"][0]["image"]
        for item in manifests
        if item["kind"] == "StatefulSet"
    ]
    return str(image)


def test_a_site_calls_its_coordinator_and_a_coordinator_calls_nobody() -> None:
    site = {item["kind"]: item for item in objects("site")}["NetworkPolicy"]["spec"]
    assert site["policyTypes"] == ["Ingress", "Egress"]
    assert site["ingress"] == []
    assert site["egress"][0] == {
        "to": [{"ipBlock": {"cidr": "203.0.113.7/32"}}],
        "ports": [{"protocol": "TCP", "port": 9092}],
    }
    assert [port["port"] for port in site["egress"][1]["ports"]] == [53, 53]
    assert len(site["egress"]) == 2
    result = {
        manifest["kind"]: manifest for manifest in objects("coordinator", coordinator="")
    }
    spec = result["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"protocol": "TCP", "port": 9092}]}]
    assert spec["egress"] == []
    with pytest.raises(AssertionError, match=r"network\.coordinator: give"):
        list(objects("site", coordinator=""))


@pytest.mark.parametrize("role", ["site", "coordinator"])
def test_a_release_is_one_process_without_rights(role: str) -> None:
    values = {item["kind"]: item for item in objects(role)}
    spec = values["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    check_command(container["args"])
    assert ("coordinate" in container["args"]) == (role == "coordinator")
    check_command(container["readinessProbe"]["exec"]["command"][1:])
    assert ("Service" in values) == (role == "coordinator")


def test_labels_and_keys_outlive_a_release_and_a_claim_may_be_there_already() -> None:
    (claim,) = [item for item in objects("site") if item["kind"] == "PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    kinds = {manifest["kind"]: manifest for manifest in objects("site", claim="rows")}
    assert "PersistentVolumeClaim" not in kinds
    volumes = kinds["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["persistentVolumeClaim"] == {"claimName": "rows"}


def test_the_chart_is_of_this_version() -> None:
    details = yaml.safe_load((CHART / "Chart.yaml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert details["appVersion"] == citation["version"]
