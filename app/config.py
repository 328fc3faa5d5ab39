"""The TOML file behind `build` and `pretrain`: which section sets which component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from webtext.base.config import all_settings, load_config, read_sections, setting
from webtext.base.errors import ConfigError, WebtextError
from webtext.base.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """The section [build]: inputs and the output folder."""

    links: tuple[str, ...] = setting(
        (), "Reddit submission dumps: files, folders or globs; or APIs, e.g. reddit:r/programming/top"
    )
    pages: tuple[str, ...] = setting((), "page sets or WARC files to start from instead of links")
    out: str = setting("build", "output folder of the build", in_recipe=False)
    sample: str | None = setting(None, "share of the links to build, e.g. 0.1%")

    def __post_init__(self) -> None:
        sample = self.sample_of()
        if not self.out:
            raise ConfigError("[build] out is empty", "name a folder; '.' is the current one")
        if bool(self.links) == bool(self.pages):
            raise ConfigError(
                "[build] needs either links or pages", 'e.g. links = ["RS_2017-*.zst"], or pages = ["crawl.warc.gz"]'
            )
        if sample is not None and self.pages:
            raise ConfigError(f"[build] sample = {self.sample!r}: only links can be sampled", "remove sample or pages")

    def sample_of(self) -> Sample | None:
        """Return `sample` as a share; ConfigError when it isn't one."""
        return None if self.sample is None else Sample.parse(self.sample, "[build] sample")


def settings_classes() -> dict[str, type]:
    """Return section -> settings class for every component that `build` and `pretrain` run."""
    from webtext.clean.command import SETTINGS, sections
    from webtext.crawl.fetch.settings import FetchSettings
    from webtext.crawl.links.settings import ApiSettings, LinkSettings
    from webtext.shards.settings import PackSettings
    from webtext.tokenizer.files.corpus import TokenizerSettings
    from webtext.train.settings import EvalSettings, SampleSettings, TrainSettings

    return {
        "build": BuildSettings,
        "crawl.links": LinkSettings,
        "crawl.api": ApiSettings,
        "crawl.fetch": FetchSettings,
        **sections(*SETTINGS),
        "tokenizer": TokenizerSettings,
        "shards": PackSettings,
        "train": TrainSettings,
        "train.eval": EvalSettings,
        "train.sample": SampleSettings,
    }


def classes_of_other_verbs() -> dict[str, type]:
    """Return section -> settings class for verbs outside the build, which read the same file with `--config`."""
    from webtext.shards.settings import FileSettings
    from webtext.train.settings import ExperimentSettings, ScaleSettings

    return {
        "shards.files": FileSettings,
        "train.compare": ExperimentSettings,
        "train.sweep": ExperimentSettings,
        "train.scale": ScaleSettings,
    }


class BuildConfig:
    """All sections, resolved and checked; wrong keys and values are an error before anything runs.

    With `errors` they are added to these, and the wrong values are their defaults.
    """

    def __init__(self, table: Mapping[str, Any], errors: list[WebtextError] | None = None) -> None:
        self._settings = read_sections(table, lambda: settings_classes() | classes_of_other_verbs(), errors=errors)

    @classmethod
    def read(cls, path: str, overrides: Iterable[str] = (), errors: list[WebtextError] | None = None) -> BuildConfig:
        """Read the TOML file at `path` with `section.key=value` overrides. Paths in it are relative to the working directory."""
        return cls(load_config(path, overrides), errors)

    def __getitem__(self, section: str) -> Any:
        return self._settings[section]

    def to_json(self) -> dict[str, Any]:
        return {name: all_settings(self[name]) for name in settings_classes()}
