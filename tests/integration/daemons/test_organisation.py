"""A new organisation follows deploy/organisation/README.md, with the service, to real daemons."""

import shutil

import pytest

from tests.support.daemons.harness import Site
from tests.support.daemons.organisation_host import DEPLOY, Host, follow_the_page


@pytest.mark.timeout(300)
def test_ten_steps_and_what_comes_after(plain_site: Site) -> None:
    files = plain_site.path / "files"
    shutil.copytree(DEPLOY, files)
    follow_the_page(Host(plain_site, files))
