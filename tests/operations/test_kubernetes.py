"""The manifests for Kubernetes: valid, and they fit each other, the image and the broker."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.config.load import load_settings
from tests.support.deadline import DEADLINE_S

validator = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is not installed: `make setup` does"
)
yaml = pytest.importorskip("yaml")

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "packaging" / "kubernetes"
VERSIONS: Final = ("1.29", "1.37")
"""The oldest one that is supported, and the newest one that the schemas are known of."""

Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    """All of them, in the order of the files that kustomization.yaml lists."""
    files = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    assert {*files} == {file.name for file in MANIFESTS.iterdir()} - {"kustomization.yaml"}
    return [
        manifest
        for file in files
        for manifest in yaml.safe_load_all((MANIFESTS / file).read_text())
    ]


def one(kind: str) -> Manifest:
    """The only manifest of a kind."""
    (found,) = (manifest for manifest in manifests() if manifest["kind"] == kind)
    return found


def pod() -> Manifest:
    found: Manifest = one("StatefulSet")["spec"]["template"]["spec"]
    return found


def broker() -> Manifest:
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_is_valid(version: str) -> None:
    for manifest in manifests():
        assert validator.validate(manifest, version, strict=True) == version, manifest["kind"]


def test_a_mistake_would_be_found() -> None:
    wrong = one("StatefulSet")
    wrong["spec"]["template"]["spec"]["runAsNonRoot"] = True  # it belongs into securityContext
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_them() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    rendered = [
        (each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(done.stdout)
    ]
    assert sorted(rendered) == sorted(
        (each["kind"], each["metadata"]["name"]) for each in manifests()
    )


def test_every_selector_means_the_pod() -> None:
    labels = one("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one("StatefulSet")["spec"]["selector"]["matchLabels"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(each["spec"]["selector"] for each in manifests() if each["kind"] == "Service"),
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    services = [each["metadata"]["name"] for each in manifests() if each["kind"] == "Service"]
    assert one("StatefulSet")["spec"]["serviceName"] in services


def test_the_configuration_is_one_and_fits_ports_and_mounts(tmp_path: Path) -> None:
    """It is read as the broker reads it, with the environment of the container."""
    file = tmp_path / "penstock.toml"
    file.write_text(one("ConfigMap")["data"]["penstock.toml"])
    environ = {each["name"]: each["value"] for each in broker()["env"]}
    settings = load_settings(file, {}, environ)
    ports = {each["name"]: each["containerPort"] for each in broker()["ports"]}
    assert getattr(settings.listener.bind, "port", None) == ports["mqtt"]
    assert settings.stream.bind.port == ports["stream"]
    assert getattr(settings.admin.bind, "port", 0) == ports["admin"], "of metrics"
    named = {
        port
        for service in manifests()
        if service["kind"] == "Service"
        for port in (each["targetPort"] for each in service["spec"]["ports"])
    }
    named |= {
        each["port"] for rule in one("NetworkPolicy")["spec"]["ingress"] for each in rule["ports"]
    }
    assert named == set(ports)
    mounts = {each["name"]: Path(each["mountPath"]) for each in broker()["volumeMounts"]}
    assert settings.durability.data_dir.is_relative_to(mounts["data"])
    secrets = (settings.access.password_file, settings.stream.token_file, settings.admin.token_file)
    for secret in secrets:
        assert Path(secret).parent == mounts["secrets"]
    assert Path(broker()["args"][2]) == mounts["config"] / file.name
    claims = one("StatefulSet")["spec"]["volumeClaimTemplates"]
    volumes = [each["name"] for each in (*pod()["volumes"], *(c["metadata"] for c in claims))]
    assert sorted(volumes) == sorted(mounts)


def test_the_broker_runs_without_privileges() -> None:
    """As the `restricted` Pod Security Standard of Kubernetes wants it."""
    security, own = pod()["securityContext"], broker()["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"]["type"] == "RuntimeDefault"
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"] is True
    assert pod()["automountServiceAccountToken"] is False


def test_the_manifest_fits_the_image() -> None:
    image = (ROOT / "packaging" / "container" / "Containerfile").read_text()
    security = pod()["securityContext"]
    assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in image
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        program, *_, script = (word for word in broker()[probe]["exec"]["command"] if "/" in word)
        assert program.startswith("/opt/penstock/bin/")
        assert f"{script}\n" in image
