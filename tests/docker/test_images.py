"""Images and compose file, checked as far as that goes without building them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE = ROOT / "docker" / "compose.yaml"

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)

# https://github.com/compose-spec/compose-spec/blob/main/05-services.md, of those that are of use here
SERVICE_KEYS = {
    "build",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "image",
    "networks",
    "ports",
    "restart",
    "secrets",
    "security_opt",
    "shm_size",
    "user",
    "volumes",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return content


def instructions(path: Path) -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined, comments dropped."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (name.upper(), rest)
        for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


@every_file
def test_images_are_pinned_unprivileged_and_say_whether_they_work(path: Path) -> None:
    found = instructions(path)
    bases = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", base) for base in bases), bases
    users = [rest for name, rest in found if name == "USER"]
    assert users, "runs as root"
    assert users[-1].isdecimal()
    assert users[-1] != "0"
    assert any(name == "HEALTHCHECK" for name, _ in found)
    assert not any(name == "ADD" for name, _ in found)


@every_file
def test_what_images_copy_exists_and_is_sent(path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name, rest in instructions(path):
        if name == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert any(fnmatch(source, pattern) for pattern in kept), f"{source} is ignored"


@every_file
def test_no_secret_is_in_an_image(path: Path) -> None:
    for name, rest in instructions(path):
        if name in ("ENV", "ARG", "LABEL"):
            assert not re.search(r"(?i)passw|secret|token|key", rest), rest


def test_nothing_but_sources_is_sent_to_a_builder() -> None:
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    assert not any("secrets" in line or "studies" in line for line in lines)
    assert "/docker/secrets/" in (ROOT / ".gitignore").read_text()


def test_versions_in_images_are_those_that_are_tested() -> None:
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    for path in FILES:
        for package, version in re.findall(r"\b([a-z0-9-]+)==([0-9.]+)", path.read_text()):
            # vLLM is in no test environment, and asks for an older numpy
            if package not in ("vllm", "numpy"):
                assert pinned.get(package, version) == version, f"{path.name}: {package}"
                assert package in pinned, f"{package} is pinned in {path.name} alone"


def test_the_python_of_the_gpu_image_is_the_one_its_base_maintains() -> None:
    text = (ROOT / "docker" / "gpu.Dockerfile").read_text()
    base, python = re.search(r"ubuntu(\d+\.\d+)", text), re.search(r"^ARG PYTHON=(\d+)\.(\d+)$", text, re.M)
    assert base
    assert python
    # packages.ubuntu.com: the `python3` of each release
    assert python[0].partition("=")[2] == {"22.04": "3.10", "24.04": "3.12"}[base[1]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = re.fullmatch(r">=(\d+)\.(\d+)", project["requires-python"])
    assert least
    assert (int(python[1]), int(python[2])) >= (int(least[1]), int(least[2]))


def test_services_are_healthy_restarted_unprivileged_and_reached_from_this_machine_alone(
    compose: dict[str, Any],
) -> None:
    for name, service in compose["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped"
        assert "no-new-privileges:true" in service["security_opt"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert not service["image"].endswith(":latest")
        assert ":" in service["image"]


def test_the_compose_file_refers_to_what_is_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for other, how in service.get("depends_on", {}).items():
            assert "healthcheck" in compose["services"][other]
            assert how == {"condition": "service_healthy"}
        assert set(service.get("networks", ())) <= set(compose["networks"])
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        named = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert named <= set(compose["volumes"])


def test_passwords_come_from_files(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for key, value in service.get("environment", {}).items():
            if re.search(r"(?i)passw|secret", key):
                assert key.endswith("_FILE")
                assert value.startswith("/run/secrets/")


@every_file
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    linter = shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    found = subprocess.run([linter, str(path)], capture_output=True, text=True, check=False)
    assert not found.stdout, found.stdout
    assert found.returncode == 0


def test_the_script_of_the_server_is_a_shell_script() -> None:
    script = ROOT / "docker" / "mlflow-server.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
