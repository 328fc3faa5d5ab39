"""Replace inputs that name an API by files of its answers, which are requested once and read like other files.

The answers are kept in `harvest/` beside the links set, in one folder per input, so `crawl links` stays a function of
files.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from webtext.base.errors import ConfigError, DryRun
from webtext.base.progress import Progress
from webtext.base.run import Run
from webtext.base.storage import Folder
from webtext.crawl.apis.api import Api
from webtext.crawl.apis.hacker_news import ItemsByNumber, StoriesByTime, newest_item
from webtext.crawl.apis.harvest import Asker, HarvestFiles, Step, harvest
from webtext.crawl.apis.inputs import ApiInput, Listing, Stories, parse_input
from webtext.crawl.apis.reddit_api import Credentials, Reddit, open_reddit
from webtext.crawl.apis.settings import ApiSettings
from webtext.crawl.exchange.addresses import is_loopback_host
from webtext.crawl.exchange.client import host_and_port
from webtext.crawl.user_agent import user_agent

FOLDER = "harvest"


def harvest_inputs(inputs: Sequence[str], out: str, settings: ApiSettings, run: Run) -> list[str]:
    """Return the inputs with each API replaced by the files of its answers; missing answers are requested.

    `out` is the links set to be written. Raises ConfigError if the settings do not allow the requests, and NetworkError
    if the API does not answer; earlier answers are kept.
    """
    asked = {text: spec for text in dict.fromkeys(inputs) if (spec := parse_input(text)) is not None}
    files = {text: HarvestFiles(_folder(out, text)) for text in asked}
    missing = [text for text in asked if not files[text].is_complete]
    for text in asked.keys() - missing:
        began = datetime.fromtimestamp((files[text].about() or {}).get("began", 0), UTC)
        run.console.say(f"{text}: answers of {began:%Y-%m-%d} in '{files[text].folder.url}'; remove it to ask again")
    _check([asked[text] for text in missing], settings)
    for text in missing:
        if run.dry_run:
            run.console.say(f"{text}: to be harvested into '{files[text].folder.url}'")
            continue
        with files[text].folder.held(), run.console.progress(None, text, "records") as progress:
            files[text].folder.remove_leftovers()
            asyncio.run(_harvest(text, asked[text], files[text], settings, progress))
    if missing and run.dry_run:
        raise DryRun
    return [name for text in inputs for name in (files[text].locations if text in files else [text])]


def _folder(out: str, text: str) -> Folder:
    """Return the folder for an input, beside `out`: its name is readable, and has a hash to keep inputs apart."""
    folder = Folder(out)
    beside = Folder(Path(folder.url).resolve().parent) if folder.is_local else Folder(folder.url.rpartition("/")[0])
    name = re.sub("[^0-9A-Za-z]+", "-", text).strip("-")[:60]
    return beside.child(FOLDER).child(f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}")


def _check(specs: Iterable[ApiInput], settings: ApiSettings) -> None:
    """Raise ConfigError for wrong settings before anything is sent."""
    for spec in specs:
        if isinstance(spec, Listing):
            assert settings.reddit_name
            Credentials.read(settings.reddit_credentials)
            continue
        url = settings.algolia_url if isinstance(spec, Stories) else settings.hacker_news_url
        if settings.contact is None and not is_loopback_host(host_and_port(url)[0]):
            raise ConfigError(
                "no contact for Hacker News' hosts",
                "set --contact to an e-mail address or a URL; it is sent in the User-Agent",
            )
        if isinstance(spec, Stories) and spec.end > time.time():
            raise ConfigError("the requested stories of Hacker News end in the future", "choose an end before now")


async def _harvest(text: str, spec: ApiInput, files: HarvestFiles, settings: ApiSettings, progress: Progress) -> None:
    async with _asker(spec, files, settings) as (asker, end):
        if files.about() is None:
            files.begin({"input": text, "began": int(time.time()), "end": end})
        await harvest(asker, files, settings.part_seconds, progress)


@asynccontextmanager
async def _asker(spec: ApiInput, files: HarvestFiles, settings: ApiSettings) -> AsyncIterator[tuple[Asker, int | None]]:
    """Open the API of an input. An open end is fixed once, when the harvest begins."""
    if isinstance(spec, Listing):
        async with open_reddit(settings) as reddit:
            yield _Posts(reddit, spec), None
    elif isinstance(spec, Stories):
        async with Api(user_agent(settings.contact), settings, settings.requests_per_minute) as api:
            yield StoriesByTime(api, settings, spec.start, spec.end), spec.end
    else:
        async with Api(user_agent(settings.contact), settings, None) as api:
            end = spec.end or (files.about() or {}).get("end") or await newest_item(api, settings) + 1
            yield ItemsByNumber(api, settings, spec.start, end), end


class _Posts:
    """A listing on Reddit, a hundred posts per step."""

    api = "reddit"
    first = "first"

    def __init__(self, reddit: Reddit, listing: Listing) -> None:
        self._reddit = reddit
        self._listing = listing

    async def ask(self, cursor: str) -> Step:
        query = {"t": self._listing.period} if self._listing.period else {}
        page = await self._reddit.listing(self._listing.path, query, None if cursor == self.first else cursor)
        return Step([_post(thing) for thing in page.things], page.read, page.after)


def _post(thing: Any) -> Any:
    """Return the post in a thing; a thing of another kind is returned as it is, for the link source to count."""
    return thing["data"] if isinstance(thing, dict) and thing.get("kind") == "t3" and "data" in thing else thing
