"""Fills in what a package index shows: the README without relative links, and addresses where the repository has one.

Hatchling calls this for every wheel and source archive. `PGTOP_TUNE_REPOSITORY` is the address of the repository, as
the publish workflow sets it; without it links become their words, and pictures are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY: Final = "PGTOP_TUNE_REPOSITORY"
_LINK: Final = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s:]+)\)")
"""A link whose target has no scheme."""
_VERSION: Final = re.compile(r'__version__: Final = "([^"]+)"')


class IndexMetadata(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the two fields."""
        root = Path(self.root)
        repository = os.environ.get(REPOSITORY, "").rstrip("/")
        found = _VERSION.search((root / "pgtop_tune" / "__init__.py").read_text(encoding="utf-8"))
        assert found is not None
        text = rendered_outside((root / "README.md").read_text(encoding="utf-8"), repository, found[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository, found[1])


def addresses(repository: str, version: str) -> dict[str, str]:
    """Return the project's addresses by label; none without a repository."""
    if not repository:
        return {}
    files = f"{repository}/blob/v{version}"
    return {
        "Source": repository,
        "Documentation": f"{files}/README.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def rendered_outside(text: str, repository: str, version: str) -> str:
    """Return the README as a page on its own: links lead to the files of this version in the repository.

    Args:
        text: The README.
        repository: Address of the repository; "" drops pictures, with the paragraphs that they are in, and links.
        version: Names the tag of this version.
    """
    if not repository:
        paragraphs = (each for each in text.split("\n\n") if "![" not in each)
        return _LINK.sub(lambda link: link["words"], "\n\n".join(paragraphs))

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['words']}]({repository}/{kind}/v{version}/{link['target']})"

    return _LINK.sub(absolute, text)
