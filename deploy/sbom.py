"""Write what is in an image as a CycloneDX document: Python's distributions, Debian's packages."""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from locked import normalised

ENVIRONMENT = Path("/opt/laser-vfl")
PACKAGE = "laser-vfl"
RECORD = "laser-vfl:record-sha256"
"""The property with the digest of a distribution's RECORD, which has those of its files."""


def main() -> None:
    """Print the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--more", type=Path, help="packages of Debian that were copied in")
    options = parser.parse_args()
    debian = packages_in(debian_packages() + (options.more.read_text() if options.more else ""))
    json.dump(document(site_packages(), options.base, options.revision, debian), sys.stdout)


def site_packages() -> Path:
    """Return where the image's distributions are."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return ENVIRONMENT / "lib" / version / "site-packages"


def document(
    site: Path, base: str, revision: str, debian: Iterable[tuple[str, str, str]] = ()
) -> dict[str, Any]:
    """Return the document. The same image gives the same one: it has no time and no serial."""
    found = sorted(distributions(path=[str(site)]), key=lambda one: normalised(one.name))
    ours = next(one for one in found if normalised(one.name) == PACKAGE)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": PACKAGE,
                "version": ours.version,
                "properties": [{"name": "laser-vfl:revision", "value": revision}],
            }
        },
        "components": [
            base_component(base),
            *map(component, found),
            *map(debian_component, debian),
        ],
        "dependencies": [
            {"ref": "image", "dependsOn": ["base", *map(reference, found)]},
        ],
    }


def base_component(base: str) -> dict[str, Any]:
    """Return the base image, with its digest if it was named by one."""
    name, _, digest = base.partition("@")
    image, _, tag = name.rpartition(":")
    found: dict[str, Any] = {
        "type": "container",
        "bom-ref": "base",
        "name": image or name,
        "version": tag if image else "latest",
    }
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]
    return found


def component(one: Distribution) -> dict[str, Any]:
    """Return a distribution."""
    record = one.read_text("RECORD") or ""
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(one),
        "name": normalised(one.name),
        "version": one.version,
        "purl": reference(one),
        "properties": [{"name": RECORD, "value": hashlib.sha256(record.encode()).hexdigest()}],
    }
    if licences := licences_of(one.metadata):  # type: ignore[arg-type]
        found["licenses"] = licences
    return found


def reference(one: Distribution) -> str:
    """Return by what others know a distribution."""
    return reference_of(one.name, one.version)


def reference_of(name: str, version: str) -> str:
    """Return by what others know a release of a package."""
    return f"pkg:pypi/{normalised(name)}@{version}"


def licences_of(metadata: Message) -> list[dict[str, Any]]:
    """Return the licences that a distribution names: an expression, or else whatever it says."""
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    classified = [
        one.rpartition(" :: ")[2]
        for one in metadata.get_all("Classifier", [])
        if one.startswith("License :: ")
    ]
    stated = (metadata.get("License") or "").strip()
    if not classified and stated:
        classified = [stated.splitlines()[0][:100]]
    return [{"license": {"name": name}} for name in classified]


def debian_packages() -> str:
    """Return a line for each of Debian's packages: name, version and architecture."""
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Version} ${Architecture}\\n"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def packages_in(lines: str) -> list[tuple[str, str, str]]:
    """Return what such lines say, in order."""
    found = [line.split() for line in lines.splitlines()]
    return sorted({(name, version, architecture) for name, version, architecture in found})


def debian_component(package: tuple[str, str, str]) -> dict[str, Any]:
    """Return a package of Debian's."""
    name, version, architecture = package
    purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }


if __name__ == "__main__":
    main()
