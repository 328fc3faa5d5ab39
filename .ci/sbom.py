"""Write what a wheel says about its contents: `sbom.py FOLDER`. CMake runs it, so it uses only what a build has.

webtext.cdx.json is a CycloneDX 1.6 document, which PEP 770 places in `.dist-info/sboms`: the package, the code that is
compiled into its extensions, and the packages that it asks for. The licences of that code are beside it. The same
sources and SOURCE_DATE_EPOCH give the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FOR_DEVELOPERS = ("bench", "dev")  # extras that add nothing to the package
VERSION = re.compile(r"TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)")
COMMENT = re.compile(r"/\*\*\n(.*?)\*/", re.DOTALL)


def main(folder: Path) -> None:
    """Write the document and the licences."""
    nanobind = distribution("nanobind")
    headers = Path(str(nanobind.locate_file("nanobind/ext/robin_map/include/tsl")))
    version = ".".join(VERSION.findall((headers / "robin_growth_policy.h").read_text(encoding="utf-8")))
    licence = COMMENT.search((headers / "robin_map.h").read_text(encoding="utf-8"))
    text = nanobind.read_text("licenses/LICENSE")
    if not version or not licence or not text:
        raise SystemExit("nanobind or its robin-map have no version or licence where they used to: update .ci/sbom.py")
    linked = [
        component("nanobind", f"pkg:pypi/nanobind@{nanobind.version}", "BSD-3-Clause", nanobind.version),
        component("robin-map", f"pkg:github/tessil/robin-map@v{version}", "MIT", version),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nanobind.txt").write_text(text, encoding="utf-8")
    lines = (line.removeprefix(" *").removeprefix(" ").rstrip() for line in licence[1].splitlines())
    (folder / "robin-map.txt").write_text("\n".join(lines).strip() + "\n", encoding="utf-8")
    (folder / "webtext.cdx.json").write_text(json.dumps(document(linked), indent=1) + "\n", encoding="utf-8")


def document(linked: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the CycloneDX document of this source tree with these linked components."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = (ROOT / "app" / "_package.py").read_text(encoding="utf-8")
    version = source.partition('__version__ = "')[2].partition('"')[0]
    package = component("webtext", f"pkg:pypi/webtext@{version}", project["license"], version)
    extras = {name: asked for name, asked in project["optional-dependencies"].items() if name not in FOR_DEVELOPERS}
    asked: dict[str, dict[str, Any]] = {}
    for extra, requirements in {"": project["dependencies"], **extras}.items():
        for requirement in map(Requirement, requirements):
            if requirement.name != "webtext":
                reference = f"pkg:pypi/{requirement.name.lower().replace('_', '-')}"
                properties = {"webtext:requirement": str(requirement)} | ({"webtext:extra": extra} if extra else {})
                asked[reference] = component(requirement.name, reference) | {
                    "scope": "optional" if extra else "required",
                    "properties": [{"name": name, "value": value} for name, value in properties.items()],
                }
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": package,
        },
        "components": [*linked, *asked.values()],
        "dependencies": [
            {"ref": package["bom-ref"], "dependsOn": [linked[0]["bom-ref"], *asked]},
            {"ref": linked[0]["bom-ref"], "dependsOn": [linked[1]["bom-ref"]]},
        ],
    }


def component(name: str, reference: str, licence: str = "", version: str = "") -> dict[str, Any]:
    """Return a component; without version, one that an installer chooses."""
    found = {"type": "library", "bom-ref": reference, "name": name, "purl": reference}
    versioned = {"version": version, "licenses": [{"license": {"id": licence}}]} if version else {}
    return found | versioned


if __name__ == "__main__":
    main(Path(sys.argv[1]))
