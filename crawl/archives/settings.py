"""The settings of `webtext crawl fetch --from`: sources of pages, and how archives are asked."""

from __future__ import annotations

from dataclasses import dataclass

from webtext.base.config import setting, timestamp
from webtext.base.errors import ConfigError, did_you_mean

WEB, COMMON_CRAWL, WAYBACK, WARC = SOURCES = ("web", "common-crawl", "wayback", "warc")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """Sources of pages. An archive's location and pace are not part of the recipe."""

    sources: tuple[str, ...] = setting(
        (WEB,), f"sources of pages in the order to try: {', '.join(SOURCES)}; separated by commas", flag="--from"
    )
    archive_before: str | None = setting(
        None, "take an archive's newest capture before this moment; off: the capture nearest to the vote"
    )
    take_gone_sites: bool = setting(
        False, "take archived pages of sites that are gone: the host name doesn't exist, or the site never answered"
    )
    gone_runs: int = setting(3, "runs in which a site was asked and didn't answer, before it counts as gone")
    gone_days: float = setting(30.0, "days from the first of these runs to the latest; 30 is RFC 9309's example")
    archive_delay: float = setting(1.0, "seconds between two requests to an archive, per connection", in_recipe=False)
    wayback_cdx: str = setting("https://web.archive.org/cdx/search/cdx", "URL of the CDX server that lists captures")
    wayback_replay: str = setting("https://web.archive.org/web", "URL of the replay; /TIMESTAMPid_/URL is appended")
    cc_index: tuple[str, ...] = setting(
        (), "Common Crawl's columnar index: Parquet files or folders, local or fsspec; repeatable", in_recipe=False
    )
    cc_data: str = setting(
        "https://data.commoncrawl.org", "URL or folder of Common Crawl's WARC files", in_recipe=False
    )
    cc_connections: int = setting(4, "connections to Common Crawl's file server", in_recipe=False)
    cc_max_gap: int = setting(
        128 * 1024, "largest gap, in bytes, between records that one request fetches", in_recipe=False
    )
    warc: tuple[str, ...] = setting(
        (), "WARC files to take pages from: files, folders, patterns; repeatable", in_recipe=False
    )

    def __post_init__(self) -> None:
        sources = tuple(name.strip() for text in self.sources for name in text.split(","))
        object.__setattr__(self, "sources", sources)
        _check_sources(sources)
        for source, option, given in ((COMMON_CRAWL, "cc-index", self.cc_index), (WARC, "warc", self.warc)):
            if bool(given) != (source in sources):
                raise ConfigError(f"--from {source} and --{option} go together", f"give both, e.g. --{option} FOLDER")
        if self.cc_connections < 1 or self.cc_max_gap < 0 or not self.archive_delay >= 0:
            raise ConfigError(
                f"[crawl.fetch] cc_connections = {self.cc_connections}, cc_max_gap = {self.cc_max_gap}, "
                f"archive_delay = {self.archive_delay}: expected at least 1, 0 and 0"
            )
        if self.gone_runs < 1 or not self.gone_days >= 0:
            raise ConfigError(
                f"[crawl.fetch] gone_runs = {self.gone_runs}, gone_days = {self.gone_days}: expected at least 1 and 0"
            )
        for name in ("wayback_cdx", "wayback_replay"):
            if not getattr(self, name).startswith(("http://", "https://")):
                raise ConfigError(f"[crawl.fetch] {name} = {getattr(self, name)!r}: expected an http(s) URL")
        for path in self.cc_index:
            if path.startswith(("http://", "https://")):
                raise ConfigError(f"--cc-index '{path}' is an HTTP URL", "name a folder, or s3://commoncrawl/...")
        _ = self.before

    @property
    def before(self) -> int | None:
        """`archive_before` in UTC seconds."""
        moment = self.archive_before
        return None if moment is None else timestamp(moment, "[crawl.fetch] archive_before")


def _check_sources(sources: tuple[str, ...]) -> None:
    for name in sources:
        if name not in SOURCES:
            raise ConfigError(f"--from: unknown source '{name}'", did_you_mean(name, SOURCES))
    if len(set(sources)) < len(sources) or not sources:
        raise ConfigError(f"--from '{','.join(sources)}': expected one or more sources, each once")
