"""A daemon in what a pod of deploy/kubernetes gives it: files by links that change all at once."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from laser_vfl.security.certificate_files import init_authority, issue, renew
from laser_vfl.security.identity import coordinator_of
from tests.support.daemons.harness import Site

RENDERED = Path(__file__).parents[2] / "unit" / "deploy" / "rendered" / "coordinator.yaml"


class Volume:
    """A projected volume as the kubelet keeps it: `..data` links to the latest directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def fill(self, files: dict[str, bytes]) -> None:
        """Put all files in place at once."""
        latest = self.path / f"..{len(list(self.path.iterdir()))}"
        for name, content in files.items():
            (latest / name).parent.mkdir(parents=True, exist_ok=True)
            (latest / name).write_bytes(content)
            (latest / name).chmod(0o440)
        link = self.path / "..data_tmp"
        link.symlink_to(latest.name)
        link.rename(self.path / "..data")
        for name in {file.split("/")[0] for file in files}:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        for old in self.path.glob("..[0-9]*"):
            if old != latest:
                shutil.rmtree(old)


@pytest.mark.timeout(60)
def test_a_coordinator_follows_its_secret(plain_site: Site) -> None:
    objects = {each["kind"]: each for each in yaml.safe_load_all(RENDERED.read_text())}
    config = yaml.safe_load(objects["ConfigMap"]["data"]["config.yaml"])
    here = {"listen": "127.0.0.1:0", "state": str(plain_site.path / "state")}
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    [projected] = [v["projected"] for v in pod["volumes"] if v["name"] == "config"]
    items = {
        item["key"]: item["path"]
        for source in projected["sources"]
        for item in source.get("secret", {}).get("items", [])
    }
    certs, me = plain_site.path / "certs", coordinator_of(config["federation"])
    authority = init_authority(certs, config["federation"], now=datetime.now(UTC))
    issue(authority, certs, [me], now=datetime.now(UTC))

    def secret() -> dict[str, bytes]:
        made = {"ca.crt": "ca.pem", "tls.crt": "coordinator.pem", "tls.key": "coordinator.key"}
        assert made.keys() == items.keys()
        files = {items[key]: (certs / file).read_bytes() for key, file in made.items()}
        return {"config.yaml": yaml.safe_dump({**config, **here}).encode(), **files}

    volume = Volume(plain_site.path / "volume")
    volume.fill(secret())
    [container] = pod["containers"]
    words = [word.replace("/etc/laser-vfl", str(volume.path)) for word in container["args"]]
    coordinator = plain_site.run("coordinator", *words)
    coordinator.wait_ready()

    renew(authority, certs, [me], now=datetime.now(UTC))
    volume.fill(secret())
    coordinator.wait_for("the certificate has changed")
    assert coordinator.terminate() == 0
    assert "Traceback" not in coordinator.stderr
