"""The manifests against Kubernetes' own schemas, custom resources against what is demanded of them, and each other."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from serving.config import ENV_PREFIX, ServeConfig, load_config
from serving.engines.triton.endpoints import split_address

DEPLOY = Path(__file__).parents[2] / "deploy"
VERSIONS = ("1.29", "1.33")
SERVERS = ("ghostless", "ghostless-embedded")
FOLDERS = ("kubernetes", "embedded", "kserve")
FILES = sorted(file for folder in FOLDERS for file in (DEPLOY / folder).glob("*.yaml"))

# Of resources that Kubernetes itself does not know: the fields that their controllers demand, and no others.
_ENDPOINT = {
    "type": "object",
    "required": ["port", "interval"],
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string", "pattern": "^/"},
        "interval": {"type": "string", "pattern": "^[0-9]+s$"},
        "scheme": {"enum": ["http", "https"]},
        "tlsConfig": {
            "type": "object",
            "required": ["ca", "serverName"],
            "properties": {"ca": {"type": "object", "required": ["secret"]}, "serverName": {"type": "string"}},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
_SELECTOR = {
    "type": "object",
    "required": ["matchLabels"],
    "properties": {"matchLabels": {"type": "object", "minProperties": 1}},
    "additionalProperties": False,
}
_TEXT = {"type": "string"}
_RULE_GROUP = {
    "type": "object",
    "required": ["name", "rules"],
    "properties": {
        "name": {"type": "string"},
        "rules": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["expr"],
                "oneOf": [{"required": ["record"]}, {"required": ["alert"]}],
                "properties": {
                    "record": _TEXT,
                    "alert": _TEXT,
                    "expr": _TEXT,
                    "for": {"type": "string", "pattern": "^[0-9]+[smhd]$"},
                    "labels": {"type": "object", "additionalProperties": _TEXT},
                    "annotations": {"type": "object", "additionalProperties": _TEXT},
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
CUSTOM = {
    "monitoring.coreos.com/v1 ServiceMonitor": {
        "type": "object",
        "required": ["selector", "endpoints"],
        "properties": {"selector": _SELECTOR, "endpoints": {"type": "array", "minItems": 1, "items": _ENDPOINT}},
        "additionalProperties": False,
    },
    # What the rules say is promtool's business (test_prometheus_rules.py).
    "monitoring.coreos.com/v1 PrometheusRule": {
        "type": "object",
        "required": ["groups"],
        "properties": {"groups": {"type": "array", "minItems": 1, "items": _RULE_GROUP}},
        "additionalProperties": False,
    },
    "serving.kserve.io/v1beta1 InferenceService": {
        "type": "object",
        "required": ["predictor"],
        "properties": {
            "predictor": {
                "type": "object",
                "required": ["triton"],
                "properties": {
                    "minReplicas": {"type": "integer", "minimum": 1},
                    "maxReplicas": {"type": "integer", "minimum": 1},
                    "automountServiceAccountToken": {"const": False},
                    "securityContext": {"type": "object"},
                    "triton": {
                        "type": "object",
                        "required": ["storageUri", "protocolVersion", "resources"],
                        "properties": {
                            "protocolVersion": {"enum": ["v1", "v2"]},
                            "storageUri": {"type": "string", "pattern": "^(pvc|s3|gs|https?)://"},
                            "args": {"type": "array", "items": {"type": "string"}},
                            "ports": {"type": "array", "items": {"type": "object", "required": ["containerPort"]}},
                            "resources": {"type": "object"},
                            "securityContext": {"type": "object"},
                        },
                        "additionalProperties": False,
                    },
                },
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    },
}


def documents(file: Path) -> Iterator[dict[str, Any]]:
    yield from (document for document in yaml.safe_load_all(file.read_text()) if document)


def resources() -> list[dict[str, Any]]:
    return [document for file in FILES for document in documents(file) if document["kind"] != "Kustomization"]


def find(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in resources() if each["kind"] == kind and each["metadata"].get("name") == name)
    return found


def container(deployment: str) -> dict[str, Any]:
    pod = find("Deployment", deployment)["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return dict(only)


def named(resource: dict[str, Any]) -> str:
    metadata = resource["metadata"]
    return f"{resource['kind']}/{metadata.get('name') or metadata['generateName']}"


def complaint(resource: dict[str, Any], version: str) -> str:
    """What the schema has against it; empty if nothing."""
    kind = f"{resource['apiVersion']} {resource['kind']}"
    try:
        if kind in CUSTOM:
            jsonschema.validate(resource["spec"], CUSTOM[kind])
        else:
            kubernetes_validate.validate(resource, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", resources(), ids=named)
def test_every_resource_fits_its_schema(resource: dict[str, Any], version: str) -> None:
    assert complaint(resource, version) == ""


def test_the_schemas_would_notice() -> None:
    broken = find("Deployment", "triton") | {"spec": {"replicas": "two"}}
    assert complaint(broken, VERSIONS[0])


@pytest.mark.parametrize(
    ("folder", "deployments"), [("kubernetes", ("ghostless", "triton")), ("embedded", ("ghostless-embedded",))]
)
def test_kustomization_names_files_that_are_there(folder: str, deployments: tuple[str, ...]) -> None:
    (content,) = documents(DEPLOY / folder / "kustomization.yaml")
    for name in content["resources"]:
        assert (DEPLOY / folder / name).is_file(), name
    assert {each["name"] for each in content["images"]} == {container(name)["image"] for name in deployments}
    assert all(each["newTag"] not in ("", "latest") for each in content["images"])


def pods() -> list[tuple[str, dict[str, Any]]]:
    """The pod specs of everything that runs here."""
    return [(named(each), each["spec"]["template"]["spec"]) for each in resources() if "template" in each["spec"]]


@pytest.mark.parametrize(("name", "pod"), pods(), ids=[name for name, _ in pods()])
def test_every_pod_is_confined(name: str, pod: dict[str, Any]) -> None:
    context = pod["securityContext"]
    assert context["runAsNonRoot"]
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for each in pod["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert each["resources"]["limits"]["memory"]
        writable = {mount["name"] for mount in each["volumeMounts"] if not mount.get("readOnly")}
        secret = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
        assert not writable & secret
    for volume in pod["volumes"]:
        if "secret" in volume:
            # Read by its group: what ghostless.contract.secret_files accepts.
            assert volume["secret"]["defaultMode"] == 0o440
            assert context["fsGroup"] == context["runAsGroup"]


@pytest.mark.parametrize(("name", "pod"), pods(), ids=[name for name, _ in pods()])
def test_deployments_start_slowly_and_spread_over_nodes(name: str, pod: dict[str, Any]) -> None:
    if name.startswith("Job/"):
        return
    for each in pod["containers"]:
        assert each["startupProbe"]["failureThreshold"] * each["startupProbe"]["periodSeconds"] >= 300
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_every_pod_has_a_network_policy_that_drops_the_rest() -> None:
    policies = [each["spec"] for each in resources() if each["kind"] == "NetworkPolicy"]
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies)
    chosen = [policy["podSelector"]["matchLabels"] for policy in policies]
    for each in resources():
        if "template" in each["spec"]:
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert sum(selector.items() <= labels.items() for selector in chosen) == 1, named(each)


@pytest.mark.parametrize("name", SERVERS)
def test_servers_accept_their_settings_and_serve_tls_with_identities(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = container(name)
    for variable in server["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    flags = dict(zip(server["args"][::2], server["args"][1::2], strict=True))
    config = load_config({flag[2:].replace("-", "_"): value for flag, value in flags.items()})
    assert config.tls_paths is not None
    assert config.metrics_tls_paths is not None
    assert not config.metrics_tls_paths.requires_client
    assert config.identities is not None
    mounted = [mount["mountPath"] for mount in server["volumeMounts"]]
    for path in (*config.tls_paths.files, config.identities, config.triton_ca):
        assert path is None or str(path.parent) in mounted


@pytest.mark.parametrize("name", [*SERVERS, "triton"])
def test_services_and_budgets_select_the_pods_and_name_their_ports(name: str) -> None:
    labels = find("Deployment", name)["spec"]["template"]["metadata"]["labels"]
    service = find("Service", name)["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= labels.items()
    assert find("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = {port["name"] for port in container(name)["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml"])
def test_images_are_pinned(file: str) -> None:
    text = (DEPLOY / file).read_text()
    images = re.findall(r"(?:BASE=|_IMAGE:-)([a-z/]+(?::\S*?)?)[}\n]", text)
    assert images
    assert all(re.search(r":v?\d+\.\d+\.\d+", image) for image in images), images


def test_the_facade_is_started_with_settings_that_it_knows() -> None:
    facade = container("ghostless")
    flags = dict(zip(facade["args"][::2], facade["args"][1::2], strict=True))
    known = {f"--{field.replace('_', '-')}" for field in ServeConfig.model_fields}
    assert flags.keys() <= known
    for variable in facade["env"]:
        assert variable["name"].removeprefix(ENV_PREFIX).lower() in ServeConfig.model_fields
    host, port = split_address(flags["--triton"])
    service = find("Service", host)
    assert port in [each["port"] for each in service["spec"]["ports"]]
    settings = {v["name"]: float(v["value"]) for v in facade["env"] if v["name"].endswith("_S")}
    grace = find("Deployment", "ghostless")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert sum(settings.values()) < grace, "it would be killed while it drains"


@pytest.mark.parametrize("name", [*SERVERS, "triton"])
def test_the_monitors_find_the_metrics(name: str) -> None:
    monitor = find("ServiceMonitor", name)["spec"]
    service = find("Service", name)
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_the_facades_metrics_port_is_the_one_it_is_told() -> None:
    facade = container("ghostless")
    (told,) = (v["value"] for v in facade["env"] if v["name"] == f"{ENV_PREFIX}METRICS_PORT")
    (port,) = (port["containerPort"] for port in facade["ports"] if port["name"] == "metrics")
    assert int(told) == port


def test_compose_starts_what_prometheus_scrapes_and_grafana_shows() -> None:
    (content,) = documents(DEPLOY / "compose.yaml")
    services = content["services"]
    facade = services["facade"]["command"]
    (scraping,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraping["scrape_configs"]}
    assert targets["ghostless"] == [f"facade:{facade[facade.index('--metrics-port') + 1]}"]
    mounted = [volume for name in ("prometheus", "grafana") for volume in services[name]["volumes"]]
    for source in (volume.split(":")[0] for volume in mounted):
        assert source in content["volumes"] or (DEPLOY / source).exists(), source
    (sources,) = documents(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml")
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    (boards,) = documents(DEPLOY / "grafana" / "provisioning" / "dashboards" / "ghostless.yml")
    assert f"./grafana/dashboards:{boards['providers'][0]['options']['path']}:ro" in services["grafana"]["volumes"]


def test_compose_starts_the_facade_before_tritons_grpc_port() -> None:
    (content,) = documents(DEPLOY / "compose.yaml")
    facade = content["services"]["facade"]
    flags = dict(zip(facade["command"][::2], facade["command"][1::2], strict=True))
    assert split_address(flags["--triton"]) == ("triton", 8001)
    assert (DEPLOY / facade["build"]["context"] / facade["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_the_image_copies_what_the_distributions_are_built_from() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in shlex.split(line)[1:-1]}
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    described = {project["project"]["readme"], *project["project"]["license-files"]}
    needed = {"pyproject.toml", "setup.py", "constraints.txt", "packaging", "ghostless"}
    assert packages | described | needed <= copied
