"""The verbs of `webtext crawl`: from votes to links, from links to pages.

`collect` and `crawl` wire the sources: Reddit's API into the collection of links, archives into the fetching of pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from webtext.base.command import KOfN, need_out, verb
from webtext.crawl.fetch.settings import FetchSettings
from webtext.crawl.links.settings import ApiSettings, LinkSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webtext.base.parts.partset import PartSet
    from webtext.base.run import Parts, Run
    from webtext.base.sample import Sample


LINKS, API, FETCH = "crawl.links", "crawl.api", "crawl.fetch"


def collect(inputs: Sequence[str], out: str, settings: LinkSettings, run: Run, api: ApiSettings) -> PartSet:
    """Collect links from files and Reddit's API: `collect_links`, with inputs that name a listing harvested to files."""
    from webtext.crawl.links.collect import collect_links

    def harvest(inputs: Sequence[str]) -> Sequence[str]:
        if not any(text.startswith("reddit:") for text in inputs):
            return inputs
        from webtext.crawl.links.reddit_api.harvest import harvest_inputs  # network code, only needed for the API

        return harvest_inputs(inputs, out, api, run)

    return collect_links(inputs, out, settings, run, harvest)


def crawl(
    links: str,
    out: str,
    settings: FetchSettings,
    run: Run,
    sample: Sample | None = None,
    smaller: PartSet | None = None,
    parts: Parts | None = None,
) -> PartSet:
    """Fetch pages from the web and from archives: `fetch_pages`, with all sources."""
    from webtext.crawl.archives.sources import open_archives
    from webtext.crawl.fetch.run import fetch_pages

    return fetch_pages(links, out, settings, run, sample, smaller, open_archives, parts)


@click.group(name="crawl")
def group() -> None:
    """Collect voted links and fetch their pages."""


LINKS_EXAMPLES = """\b
Examples:
  webtext crawl links RS_2017-*.xz --out build/links
  webtext crawl links dumps/ s3://bucket/RS_2016-01.zst --before 2017-01-01 --out build/links
  webtext crawl links RS_2017-12.xz top.csv --out build/links
  webtext crawl links urls.txt --default-score 3 --default-created 2017-12-31 --out build/links
  webtext crawl links huggingface:NAME:COLUMN --default-score 3 --out build/links
  webtext crawl links "reddit:r/programming/top?t=year" --reddit-user NAME --before none --out build/links

\b
Reads:  files, by the format that their names or --source imply; plain or in xz, bz2, zst or gz
  RS_*, *_submissions         Reddit's submissions
  *.csv, *.tsv, *.jsonl,      tables with the columns url, score and created (seconds, or a date)
  *.parquet
  *.txt                       one URL per line; # begins a comment
  FOLDER                      the RS_* files of its tree, or those of --source
  huggingface:NAME[:CONFIG]:COLUMN[@REVISION]   a dataset's column, or a folder's
  reddit:...                  Reddit's API, asked once; the answers are kept in 'harvest' beside DIR
Writes: DIR, a part set of links
"""


@verb(
    group,
    "links",
    replaces=False,
    workers=True,
    settings={LINKS: LinkSettings, API: ApiSettings},
    epilog=LINKS_EXAMPLES,
)
@click.argument("inputs", nargs=-1, required=True, metavar="FILE|FOLDER|API...")
@click.option("--out", metavar="DIR", help="Folder to write.")
def links(run: Run, settings: dict[str, Any], inputs: tuple[str, ...], out: str | None) -> None:
    """Collect the links that people voted for, one row per URL."""
    from webtext.base.console import counted
    from webtext.crawl.links.collect import check_dumps

    found = collect(inputs, need_out(out), settings[LINKS], run, settings[API])
    _show(run, found, "votes", f"{counted(found.records, 'link')} in", check_dumps)


FETCH_EXAMPLES = """\b
Examples:
  webtext crawl fetch build/links --out build/pages --contact you@example.org
  webtext crawl fetch build/links --out build/pages --contact you@example.org --from wayback,web
  webtext crawl fetch build/links --out build/pages --contact you@example.org --from common-crawl \\
      --cc-index s3://commoncrawl/cc-index/table/cc-main/warc/crawl=CC-MAIN-2017-51
  webtext crawl fetch build/links --out build/pages --contact you@example.org --from warc --warc old/

\b
Reads:  a part set of links; for archives also an index of Parquet files, or WARC files
Writes: DIR, a part set of pages: WARC files, and a row with the outcome for every link
"""


@verb(group, "fetch", resumes=True, settings=FetchSettings, section=FETCH, epilog=FETCH_EXAMPLES)
@click.argument("links", metavar="LINKS")
@click.option("--out", metavar="DIR", help="Folder to write.")
@click.option("--parts", type=KOfN(), help="Fetch the K-th of N parts of the hosts only.")
def fetch(run: Run, settings: FetchSettings, links: str, out: str | None, parts: Parts | None) -> None:
    """Fetch the pages of a link list, politely, into WARC files."""
    _show(run, crawl(links, need_out(out), settings, run, parts=parts), "links", "logged in")


def _show(run: Run, made: PartSet, title: str, told: str, *checks: Callable[[PartSet], None]) -> None:
    """Print the set's funnel and place, and raise the error that its counts call for."""
    from webtext.base.console import funnel_text
    from webtext.base.parts.outcomes import check_kept, check_settled

    counts, url = made.counts.to_json(), made.folder.url
    answer = {"out": url, "links": made.records, "parts": len(made.parts), "counts": counts}
    run.console.result(answer, f"{funnel_text(title, counts)}\n{told} '{url}'")
    for check in (check_kept, *checks, check_settled):
        check(made)
