"""Metrics pages for tests: read like Prometheus, and checked by promtool where there is one."""

import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not here; Debian's package prometheus has it"
)


class Page:
    """The samples of a page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self._samples}

    def value(self, name: str, **labels: str) -> float:
        """The sample with exactly these labels."""
        return self._samples[name, frozenset(labels.items())]

    def values(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The samples that have these labels, by one more label."""
        found = {}
        for (sample, pairs), value in self._samples.items():
            if sample == name and labels.items() <= dict(pairs).items():
                found[dict(pairs)[label]] = value
        return found


def promtool(*arguments: str, text: str = "") -> str:
    """Run promtool, which must find nothing wrong; return what it says."""
    assert PROMTOOL is not None
    ended = subprocess.run(
        [PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
