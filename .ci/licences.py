"""Print the licences of the packages that webtext installs, from their metadata: `licences.py > docs/licences.md`."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("", "build", "train", "s3", "view", "score", "tasks")
ABOUT = {"": "core: `pip install webtext`"}
MAX_CHARACTERS = 40  # a longer `License` is a complete text
SPDX = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "ISC License": "ISC",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "The MIT License (MIT)": "MIT",
    "The BSD 2-Clause License": "BSD-2-Clause",
}
"""Names of licences that older metadata uses, and SPDX's. Metadata that says only BSD doesn't name its variant."""

HEAD = """\
# Licences

The packages that each extra installs on Linux in addition to the extras above it, with licences by their own metadata
(`.ci/licences.py`). PyPI's torch for CUDA also installs NVIDIA's libraries, which have NVIDIA's licence.

webtext is under the MIT licence. Its wheels contain compiled code of nanobind (BSD-3-Clause) and robin-map (MIT), with
their licences and a CycloneDX bill of materials in `.dist-info/sboms`. Tables of character categories come from the
Unicode Character Database (Unicode-3.0). The extractor was learned from WCXB by Murrough Foley (CC-BY-4.0),
trafilatura's evaluation pages (Apache-2.0), pages in the tests of newspaper, newspaper4k and fundus (MIT) and of harvest
(Apache-2.0), and documentation in Debian. Its weights contain single words and names of HTML classes of these pages.
"""


def main() -> None:
    """Print the page."""
    print(page(), end="")


def page() -> str:
    """Return the page: for each extra, a table of the packages that it names, then their dependencies."""
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    seen: set[str] = {"webtext"}
    parts = [HEAD]
    for extra in EXTRAS:
        asked = [*map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"])]
        named = {canonicalize_name(each.name) for each in asked} - seen
        seen |= named
        parts.append(f"\n## {ABOUT.get(extra, f'`webtext[{extra}]`')}\n\n|package|licence|\n|---|---|\n")
        parts += (f"|{name}|{licence(distribution(name))}|\n" for name in sorted(named))
        others = defaultdict(list)
        for name in sorted(needed(asked, seen)):
            others[licence(distribution(name))].append(name)
        if others:
            parts.append("\nTheir dependencies by licence:\n\n")
            parts += (f"- {name}: {', '.join(packages)}\n" for name, packages in sorted(others.items()))
    return "".join(parts)


def needed(requirements: list[Requirement], seen: set[str]) -> Iterator[str]:
    """Yield the packages that these need, directly or not, and add them to `seen`."""
    for requirement in requirements:
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:  # for another platform or Python
            continue
        extras = requirement.extras or {""}
        needs = [each for each in map(Requirement, found.requires or []) if each.name != "webtext"]
        active = [each for each in needs if not each.marker or any(each.marker.evaluate({"extra": x}) for x in extras)]
        new = [each for each in active if canonicalize_name(each.name) not in seen]
        seen |= {canonicalize_name(each.name) for each in new}
        yield from (canonicalize_name(each.name) for each in new)
        yield from needed(new, seen)


def licence(package: Distribution) -> str:
    """Return a package's licence, as an SPDX expression where its metadata allows."""
    metadata = package.metadata
    if found := metadata.get("License-Expression"):
        return found
    stated = metadata.get("License", "")
    classifiers = (each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if "License ::" in each)
    found = (
        stated
        if stated and len(stated) <= MAX_CHARACTERS and stated != "Dual License"
        else " OR ".join(sorted(classifiers)) or stated.partition("\n")[0]
    )
    return " OR ".join(SPDX.get(each, each) for each in found.split(" OR "))


if __name__ == "__main__":
    main()
