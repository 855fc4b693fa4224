"""What kustomize makes of deploy/kubernetes, and how Kubernetes would match it."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
RENDERED = Path(__file__).parent / "rendered"
NAMES = ["client", "client-with-components", "coordinator", "coordinator-with-components"]

Object = dict[str, Any]


def render_script() -> ModuleType:
    """Return the script that renders, as a module."""
    path = ROOT / "scripts" / "render_kubernetes.py"
    spec = importlib.util.spec_from_file_location("render_kubernetes", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def objects_in(text: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(text) if each]


@dataclass
class Rendered:
    """What one overlay comes to."""

    name: str
    objects: list[Object]

    @classmethod
    def read(cls, name: str) -> "Rendered":
        return cls(name, objects_in((RENDERED / f"{name}.yaml").read_text()))

    @property
    def role(self) -> str:
        return self.name.split("-")[0]

    @property
    def with_components(self) -> bool:
        return self.name.endswith("-with-components")

    def all_of(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str) -> Object:
        [found] = self.all_of(kind)
        return found

    @property
    def pod(self) -> Object:
        return self.one("StatefulSet")["spec"]["template"]

    @property
    def container(self) -> Object:
        [found] = self.pod["spec"]["containers"]
        return found

    @property
    def ports(self) -> dict[str, int]:
        return {each["name"]: each["containerPort"] for each in self.container["ports"]}

    @property
    def config(self) -> Object:
        return yaml.safe_load(self.one("ConfigMap")["data"]["config.yaml"])


def selects(selector: Object | None, labels: dict[str, str]) -> bool:
    """Return whether a label selector matches; as in Kubernetes, an empty one matches all."""
    if selector is None:
        return False
    assert set(selector) <= {"matchLabels", "matchExpressions"}, selector
    wanted = selector.get("matchLabels", {}).items()
    asked = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in asked)
    return wanted <= labels.items() and all(labels.get(e["key"]) in e["values"] for e in asked)
