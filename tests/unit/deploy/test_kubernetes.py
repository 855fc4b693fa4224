"""What kustomize makes of deploy/kubernetes is valid, shut in, and fits together."""

import ipaddress
import re
import shutil

import kubernetes_validate
import pytest
from rendered_objects import (
    KUBERNETES,
    NAMES,
    RENDERED,
    Object,
    Rendered,
    objects_in,
    render_script,
    selects,
)
from typer.main import get_command

from laser_vfl.cli.main import app
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.release import __version__
from laser_vfl.security.identity import client_of, coordinator_of

OLDEST = "1.27"
"""The first release whose disruption budgets know `unhealthyPodEvictionPolicy` by default."""
CUSTOM = {
    "Certificate": {
        "secretName",
        "issuerRef",
        "commonName",
        "uris",
        "dnsNames",
        "usages",
        "duration",
        "renewBefore",
        "privateKey",
    },
    "Issuer": {"ca"},
    "ServiceMonitor": {"jobLabel", "selector", "endpoints"},
}
"""Kinds of cert-manager and the Prometheus operator, and what we use of their `spec`."""


@pytest.fixture(params=NAMES, scope="module")
def rendered(request: pytest.FixtureRequest) -> Rendered:
    return Rendered.read(request.param)


def test_what_is_committed_is_what_the_sources_render_to() -> None:
    script = render_script()
    heads = {path.read_text().splitlines()[0] for path in RENDERED.glob("*.yaml")}
    assert heads == {f"# Written by `make manifests`; sources {script.sources_digest()}"}, (
        "run `make manifests`"
    )
    if kubectl := shutil.which("kubectl"):
        fresh = {name: objects_in(text) for name, text in script.render(kubectl).items()}
        assert fresh == {name: Rendered.read(name).objects for name in NAMES}


def _valid(each: Object) -> None:
    for release in (OLDEST, str(kubernetes_validate.latest_version())):
        kubernetes_validate.validate(each, release, strict=True)


def test_every_object_is_valid(rendered: Rendered) -> None:
    for each in rendered.objects:
        if each["kind"] in CUSTOM:
            assert set(each) == {"apiVersion", "kind", "metadata", "spec"}
            assert set(each["spec"]) <= CUSTOM[each["kind"]]
        else:
            _valid(each)
        assert each["metadata"]["namespace"] == f"laser-vfl-{rendered.role}"
    custom = {each["kind"] for each in rendered.objects} & set(CUSTOM)
    assert custom == (set(CUSTOM) if rendered.with_components else set())


def test_the_schemas_refuse_what_is_wrong() -> None:
    wrong = Rendered.read("client").one("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        _valid(wrong)


def _check_shut_in(pod: Object) -> None:
    """As the restricted profile of pod security has it, and a read-only file system on top."""
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    around = pod["securityContext"]
    assert around["runAsNonRoot"] is True
    assert around["runAsUser"] == around["runAsGroup"] == around["fsGroup"] == 10001
    assert around["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"] + pod.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
    allowed = {"projected", "emptyDir", "persistentVolumeClaim"}
    assert all(set(volume) - {"name"} <= allowed for volume in pod["volumes"])
    for source in (s for v in pod["volumes"] for s in v.get("projected", {}).get("sources", [])):
        assert "serviceAccountToken" not in source


def test_pods_have_no_rights(rendered: Rendered) -> None:
    _check_shut_in(rendered.pod["spec"])
    assert rendered.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert rendered.pod["spec"]["serviceAccountName"] == "laser-vfl"
    assert rendered.container["image"] == f"laser-vfl:{__version__}"


def test_the_loader_of_data_is_a_valid_pod_without_rights() -> None:
    [loader] = objects_in((KUBERNETES / "overlays/client/data-loader.yaml").read_text())
    _valid(loader)
    _check_shut_in(loader["spec"])
    client = Rendered.read("client")
    assert loader["metadata"]["namespace"] == client.one("StatefulSet")["metadata"]["namespace"]
    [claim] = client.all_of("PersistentVolumeClaim")
    [volume] = loader["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert not selects(
        client.one("NetworkPolicy")["spec"]["podSelector"], loader["metadata"].get("labels", {})
    )


def test_every_mount_has_a_volume_and_every_volume_what_it_holds(rendered: Rendered) -> None:
    spec = rendered.one("StatefulSet")["spec"]
    claims = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    volumes = {each["name"]: each for each in rendered.pod["spec"]["volumes"]}
    mounts = {each["name"]: each for each in rendered.container["volumeMounts"]}
    assert set(mounts) == claims | set(volumes)
    paths = {name: each["mountPath"] for name, each in mounts.items()}
    assert (paths["config"], paths["state"]) == ("/etc/laser-vfl", "/var/lib/laser-vfl")
    assert not any("subPath" in each for each in mounts.values()), "would not follow renewals"
    config_map, secret = volumes["config"]["projected"]["sources"]
    assert config_map["configMap"]["name"] == rendered.one("ConfigMap")["metadata"]["name"]
    assert secret["secret"]["name"] == "laser-vfl-certs"
    if rendered.role == "client":
        claimed = volumes["data"]["persistentVolumeClaim"]
        assert claimed["claimName"] == rendered.one("PersistentVolumeClaim")["metadata"]["name"]
        assert mounts["data"]["readOnly"]


def test_the_configuration_is_what_the_daemon_takes(rendered: Rendered, tmp_path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(rendered.one("ConfigMap")["data"]["config.yaml"])
    load_config(path, ClientConfig if rendered.role == "client" else CoordinatorConfig)
    config, mounts = rendered.config, rendered.container["volumeMounts"]
    assert rendered.container["args"] == [
        rendered.role,
        "run",
        "--config",
        "/etc/laser-vfl/config.yaml",
    ]
    assert config["listen"] == f"0.0.0.0:{rendered.ports['grpc']}"
    assert config["state"].startswith("/var/lib/laser-vfl/")
    projected = {
        item["path"]
        for volume in rendered.pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        for item in source.get("secret", {}).get("items", [])
    }
    assert set(config["tls"].values()) == projected
    if rendered.role == "client":
        assert config["predict_listen"] == f"0.0.0.0:{rendered.ports['predict']}"
        assert config["data"]["train"].startswith("/srv/laser-vfl/")
        assert "/srv/laser-vfl" in {mount["mountPath"] for mount in mounts}
        peers = _service(rendered, "laser-vfl-peers")
        assert config["advertise"].endswith(f":{peers['spec']['ports'][0]['port']}")


def test_probes_ask_by_a_command_that_exists(rendered: Rendered) -> None:
    probes = [rendered.container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    asked = ["laser-vfl", "health", "--config", "/etc/laser-vfl/config.yaml"]
    alive = ["laser-vfl", "health", "--alive", "--config", "/etc/laser-vfl/config.yaml"]
    assert [probe["exec"]["command"] for probe in probes] == [asked, asked, alive]
    assert "health" in get_command(app).commands


def _service(rendered: Rendered, name: str) -> Object:
    [found] = [each for each in rendered.all_of("Service") if each["metadata"]["name"] == name]
    return found


def test_services_find_the_pod_and_its_ports(rendered: Rendered) -> None:
    labels = rendered.pod["metadata"]["labels"]
    wanted = {"laser-vfl", "laser-vfl-peers"}
    wanted |= {"laser-vfl-predictions"} if rendered.role == "client" else set()
    wanted |= {"laser-vfl-metrics"} if rendered.with_components else set()
    assert {each["metadata"]["name"] for each in rendered.all_of("Service")} == wanted
    for service in rendered.all_of("Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        for port in service["spec"]["ports"]:
            assert port["name"] == port["targetPort"]
            assert port["port"] == rendered.ports[port["targetPort"]]
    governing = _service(rendered, rendered.one("StatefulSet")["spec"]["serviceName"])
    assert governing["spec"]["clusterIP"] == "None"
    peers = _service(rendered, "laser-vfl-peers")["spec"]
    assert peers["type"] == "LoadBalancer"
    assert peers["externalTrafficPolicy"] == "Local", "or the policy sees the address of a node"


def test_selectors_find_the_pod_and_no_other(rendered: Rendered) -> None:
    labels = rendered.pod["metadata"]["labels"]
    other = Rendered.read("coordinator" if rendered.role == "client" else "client")
    for selector in (
        rendered.one("StatefulSet")["spec"]["selector"],
        rendered.one("PodDisruptionBudget")["spec"]["selector"],
        rendered.one("NetworkPolicy")["spec"]["podSelector"],
    ):
        assert selects(selector, labels)
        assert not selects(selector, other.pod["metadata"]["labels"])
        assert not selects(selector, {})


def test_the_network_policy_lets_in_whom_it_should(rendered: Rendered) -> None:
    spec = rendered.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    rules = {each["ports"][0]["port"]: each["from"] for each in spec["ingress"]}
    assert sorted(rules) == sorted(rendered.ports.values())
    assert not any("podSelector" in each for each in rules[rendered.ports["grpc"]])
    for block in rules[rendered.ports["grpc"]]:
        assert ipaddress.ip_network(block["ipBlock"]["cidr"]).prefixlen >= 16
    if rendered.role == "client":
        [asking] = rules[rendered.ports["predict"]]
        assert selects(asking["podSelector"], {"laser-vfl/predictions": "allowed"})
        assert not selects(asking["podSelector"], {})
        assert "namespaceSelector" not in asking
    if rendered.with_components:
        [scraping] = rules[rendered.ports["metrics"]]
        assert selects(scraping["namespaceSelector"], {"kubernetes.io/metadata.name": "monitoring"})


def test_the_network_policy_lets_out_what_the_daemon_dials(rendered: Rendered) -> None:
    rules = rendered.one("NetworkPolicy")["spec"]["egress"]
    if rendered.role == "coordinator":
        assert rules == [], "a coordinator dials nobody"
        return
    names, coordinator, peers = rules
    assert {(each["port"], each["protocol"]) for each in names["ports"]} == {
        (53, "UDP"),
        (53, "TCP"),
    }
    dns = names["to"][0]
    assert selects(dns["namespaceSelector"], {"kubernetes.io/metadata.name": "kube-system"})
    assert selects(dns["podSelector"], {"k8s-app": "kube-dns"})
    assert rendered.config["coordinator"].endswith(f":{coordinator['ports'][0]['port']}")
    assert peers["ports"][0]["port"] == rendered.ports["grpc"]
    for rule in (coordinator, peers):
        for block in rule["to"]:
            ipaddress.ip_network(block["ipBlock"]["cidr"])


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-with-components")])
def test_cert_manager_issues_what_the_daemon_needs(name: str) -> None:
    rendered = Rendered.read(name)
    spec, config = rendered.one("Certificate")["spec"], rendered.config
    federation = config["federation"]
    is_client = rendered.role == "client"
    me = client_of(federation, config["name"]) if is_client else coordinator_of(federation)
    assert spec["uris"] == [me.uri], "two URIs would name nobody"
    assert spec["dnsNames"] == [me.dns]
    assert {"server auth", "client auth", "digital signature"} == set(spec["usages"])
    assert spec["privateKey"]["algorithm"] == "ECDSA"
    assert spec["privateKey"]["size"] == 256
    secrets = [
        source["secret"]["name"]
        for volume in rendered.pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "secret" in source
    ]
    assert secrets == [spec["secretName"]]
    issuer = rendered.one("Issuer")
    assert spec["issuerRef"]["name"] == issuer["metadata"]["name"]
    assert spec["issuerRef"]["kind"] == issuer["kind"]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-with-components")])
def test_prometheus_finds_the_metrics_and_nothing_else(name: str) -> None:
    rendered = Rendered.read(name)
    monitor = rendered.one("ServiceMonitor")["spec"]
    found = [
        each
        for each in rendered.all_of("Service")
        if selects(monitor["selector"], each["metadata"]["labels"])
    ]
    assert [each["metadata"]["name"] for each in found] == ["laser-vfl-metrics"]
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
    environment = {each["name"]: each["value"] for each in rendered.container["env"]}
    assert environment == {"LASER_VFL_METRICS_LISTEN": f"0.0.0.0:{rendered.ports['metrics']}"}


def test_a_gpu_is_asked_for_where_the_component_is_on() -> None:
    for name in ("client", "client-with-components"):
        rendered = Rendered.read(name)
        resources = rendered.container["resources"]
        wanted = "1" if rendered.with_components else None
        assert resources["limits"].get("nvidia.com/gpu") == wanted
        assert resources["requests"].get("nvidia.com/gpu") == wanted


def test_the_page_names_what_is_there() -> None:
    page = (KUBERNETES / "README.md").read_text()
    client = Rendered.read("client")
    namespaces = {Rendered.read(name).objects[0]["metadata"]["namespace"] for name in NAMES}
    assert set(re.findall(r"--namespace (\S+)", page)) <= namespaces
    for path in re.findall(r"(?:apply -[kf]|kustomize) (overlays/\S+)", page):
        assert (KUBERNETES / path).exists(), path
    for name in re.findall(r"statefulset (\S+)", page):
        assert name == client.one("StatefulSet")["metadata"]["name"]
    [secret] = set(re.findall(r"create secret generic (.*?certs/bank.key)", page))
    assert secret.split()[0] == "laser-vfl-certs"
    [source] = client.pod["spec"]["volumes"][1]["projected"]["sources"][1:]
    keys = {item["key"] for item in source["secret"]["items"]}
    assert set(re.findall(r"--from-file=([a-z.]+)=", secret)) == keys
    [asking] = client.one("NetworkPolicy")["spec"]["ingress"][1]["from"]
    key, value = re.findall(r"label `(\S+): (\S+)`", page)[0]
    assert selects(asking["podSelector"], {key: value})
