"""Manifests of a cluster for Kubernetes: valid, and they fit what `cluster init` writes."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.cluster.setup.files import ClusterPlan, cluster_files, new_passwords, write_files
from penstock.cluster.setup.machines import Ports, parse_machines
from penstock.config.load import load_settings
from tests.support.deadline import DEADLINE_S

validator = pytest.importorskip(
    "kubernetes_validate", reason="kubernetes-validate is not installed: `make setup` does"
)
pytest.importorskip("cryptography", reason="the extra cluster is not installed")
yaml = pytest.importorskip("yaml")

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "packaging" / "kubernetes-cluster"
VERSIONS: Final = ("1.29", "1.37")
PODS: Final = ("penstock-0", "penstock-1", "penstock-2")

Manifest = dict[str, Any]


def manifests(kind: str = "", name: str = "") -> list[Manifest]:
    """Those of a kind and a name; all without."""
    files = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    assert {*files} == {file.name for file in MANIFESTS.iterdir()} - {"kustomization.yaml"}
    found = [
        manifest
        for file in files
        for manifest in yaml.safe_load_all((MANIFESTS / file).read_text())
    ]
    return [
        each
        for each in found
        if kind in ("", each["kind"]) and name in ("", each["metadata"]["name"])
    ]


def one(kind: str, name: str = "") -> Manifest:
    (found,) = manifests(kind, name)
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


def test_every_selector_means_members_or_the_front() -> None:
    members = one("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    front = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert one("Service", "penstock")["spec"]["selector"] == front
    (spread,) = pod()["topologySpreadConstraints"]
    rules = pod()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for selector in (
        one("StatefulSet")["spec"]["selector"]["matchLabels"],
        one("Service", "penstock-pods")["spec"]["selector"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        spread["labelSelector"]["matchLabels"],
        *(rule["labelSelector"]["matchLabels"] for rule in rules),
    ):
        assert selector == members
    assert [rule["topologyKey"] for rule in rules] == ["kubernetes.io/hostname"]
    assert one("StatefulSet")["spec"]["replicas"] == len(PODS)
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_members_find_each_other_before_they_are_ready() -> None:
    spec = one("StatefulSet")["spec"]
    service = one("Service", spec["serviceName"])["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert spec["podManagementPolicy"] == "Parallel"


def test_probes_ask_for_a_role_and_the_front_for_the_primary() -> None:
    """A standby is ready, so that a rolling update and a drained node go on to the next member."""
    assert broker()["readinessProbe"]["exec"]["command"][-1] == "--ready"
    for probe in ("startupProbe", "livenessProbe"):
        assert broker()[probe]["exec"]["command"][-1].endswith("/health.py")
    front = one("ConfigMap")["data"]["haproxy.cfg"]
    assert "option httpchk GET /readyz\n" in front
    ports = {each["name"]: each["containerPort"] for each in broker()["ports"]}
    assert f"check port {ports['admin']} " in front
    for name in PODS:
        assert f"server {name} {name}.penstock-pods:{ports['mqtt']}\n" in front


def test_the_files_of_init_and_the_environment_are_the_settings_of_each_member(
    tmp_path: Path,
) -> None:
    members = parse_machines([f"{name}={name}.penstock-pods" for name in PODS], Ports())
    plan = ClusterPlan("penstock", members, True, True, "/etc/penstock", "10GB")
    write_files(tmp_path / "made", cluster_files(plan, new_passwords(), datetime.now(UTC)))
    mounts = {each["name"]: each for each in broker()["volumeMounts"]}
    assert mounts["members"]["mountPath"] == plan.place
    assert mounts["members"]["subPathExpr"] == "$(POD_NAME)"
    (volume,) = (each for each in pod()["volumes"] if each["name"] == "members")
    shown = {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    environ = {each["name"]: each["value"] for each in broker()["env"] if "value" in each}
    ports = {each["name"]: each["containerPort"] for each in broker()["ports"]}
    for name in PODS:
        settings = load_settings(tmp_path / "made" / name / "penstock.toml", {}, environ)
        assert settings.cluster.node == name
        assert settings.cluster.log[0] == f"tls://{name}.penstock-pods:{ports['nats']}"
        assert str(settings.cluster.advertise) == f"{name}.penstock-pods:{ports['mqtt']}"
        assert str(settings.cluster.stream_advertise) == f"{name}.penstock-pods:{ports['stream']}"
        assert settings.stream.bind.port == ports["stream"]
        assert getattr(settings.admin.bind, "port", 0) == ports["admin"]
        assert settings.durability.data_dir.is_relative_to(mounts["data"]["mountPath"])
        cluster = settings.cluster
        used = [cluster.credentials_file, cluster.seed_token_file, cluster.ca_file]
        used += [cluster.seed_ca_file, cluster.certificate, cluster.key, cluster.server_config]
        used += [settings.stream.certificate, settings.stream.key, f"{plan.place}/penstock.toml"]
        for path in used:
            file = Path(path).relative_to(plan.place)
            assert shown[f"{name}/{file}"] == (name, str(file))
            assert (tmp_path / "made" / name / file).is_file()
        nats = (tmp_path / "made" / name / "nats.conf").read_text()
        assert f":{ports['routes']}" in nats
        for secret in (settings.access.password_file, settings.admin.token_file):
            assert Path(secret).parent == Path(mounts["secrets"]["mountPath"])
    named = {
        each["port"]
        for way in ("ingress", "egress")
        for rule in one("NetworkPolicy")["spec"][way]
        for each in rule["ports"]
    }
    assert named - {53} == set(ports)


def test_all_pods_run_without_privileges() -> None:
    """As the `restricted` Pod Security Standard of Kubernetes wants it."""
    for found in (pod(), one("Deployment")["spec"]["template"]["spec"]):
        (container,) = found["containers"]
        assert found["securityContext"]["runAsNonRoot"] is True
        assert found["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        assert found["automountServiceAccountToken"] is False
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["readOnlyRootFilesystem"] is True


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
def test_haproxy_takes_its_configuration(tmp_path: Path) -> None:
    file = tmp_path / "haproxy.cfg"
    file.write_text(one("ConfigMap")["data"]["haproxy.cfg"])
    done = subprocess.run(
        [str(shutil.which("haproxy")), "-c", "-f", str(file)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
