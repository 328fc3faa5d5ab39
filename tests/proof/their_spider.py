"""Fetches the posts' links with Scrapy, in its own environment: `their_spider.py DUMP FOLDER DELAY`.

FOLDER gets gzip'ed JSON lines with `url` and `text`, which is the HTML, and `stats.json`, Scrapy's own counts.
"""

import argparse
import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard
from scrapy import Spider  # type: ignore[import-not-found]
from scrapy.crawler import CrawlerProcess  # type: ignore[import-not-found]
from scrapy.http import HtmlResponse  # type: ignore[import-not-found]

MIN_SCORE = 3  # the paper's
SETTINGS = {  # as its documentation advises for broad crawls, but retries and redirects stay on
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "CONCURRENT_REQUESTS": 100,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "INFO",
    "COOKIES_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 15,
    "ROBOTSTXT_OBEY": True,
}
FEED = {
    "format": "jsonlines",
    "batch_item_count": 500,
    "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
}


class Pages(Spider):  # type: ignore[misc]
    name = "pages"

    def parse(self, response: Any) -> Iterator[dict[str, str]]:
        if isinstance(response, HtmlResponse):
            yield {"url": response.url, "text": response.text}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("dump", "folder", "delay"):
        parser.add_argument(name)
    dump, folder, delay = vars(parser.parse_args()).values()
    with zstandard.open(dump, "rt", encoding="utf-8") as file:
        posts = map(json.loads, file)
        urls = list(dict.fromkeys(html.unescape(post["url"]) for post in posts if post["score"] >= MIN_SCORE))
    feeds = {f"{folder}/%(batch_id)05d.jsonl.gz": FEED}
    process = CrawlerProcess(SETTINGS | {"DOWNLOAD_DELAY": float(delay), "FEEDS": feeds})
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, start_urls=urls)
    process.start()
    Path(folder, "stats.json").write_text(json.dumps(crawler.stats.get_stats() | {"links": len(urls)}, default=str))
