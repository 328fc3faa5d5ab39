"""The columns of every record kind that stages exchange, as Arrow schemas with the meaning of each column.

A column is required unless `nullable=True`. Readers reject a part whose schema differs (`base/parts/partset.py`).
Times are UTC seconds since 1970; hashes and ids are lower-case hex.
"""

from __future__ import annotations

import pyarrow as pa


def _column(name: str, type_: pa.DataType, meaning: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, type_, nullable=nullable, metadata={"meaning": meaning})


POST = pa.struct(
    [
        pa.field("source", pa.string(), nullable=False),  # `reddit` or `list`
        pa.field("post_id", pa.string(), nullable=False),  # id in the source
        pa.field("subreddit", pa.string()),  # community
        pa.field("score", pa.int64(), nullable=False),  # upvotes minus downvotes
        pa.field("created", pa.int64(), nullable=False),  # when the post was made
        pa.field("retrieved", pa.int64()),  # when the score was read, if the source states it
    ]
)

_POSTS = pa.list_(pa.field("item", POST, nullable=False))

NOTICE = pa.struct(
    [
        pa.field("rule", pa.string(), nullable=False),  # name of the opt-out
        pa.field("source", pa.string(), nullable=False),  # URL of a file, `header of URL` or `meta tag of URL`
        pa.field("noticed", pa.int64(), nullable=False),  # when the file was fetched, or the page was captured
    ]
)

LINK = pa.schema(
    [
        _column("link_id", pa.string(), "first 32 hex digits of SHA-256 of url"),
        _column("url", pa.string(), "canonical URL (WHATWG, no fragment), without tracking parameters"),
        _column("url_raw", pa.string(), "the URL as it appears in the source, HTML-unescaped once"),
        _column("domain", pa.string(), "registrable domain by the public suffix list, or the host"),
        _column("karma", pa.int64(), "highest score among posts"),
        _column("karma_sum", pa.int64(), "sum of the posts' scores"),
        _column("first_created", pa.int64(), "when the earliest post was made"),
        _column("posts", _POSTS, "all posts that link to url, earliest first"),
        _column("split", pa.string(), "'train' or 'validation', by a keyed hash of link_id"),
    ]
)

PAGE = pa.schema(
    [
        LINK.field("link_id"),
        LINK.field("url"),
        _column("final_url", pa.string(), "URL of the last response, after redirects", nullable=True),
        _column("redirects", pa.list_(pa.field("item", pa.string(), nullable=False)), "URLs passed through, in order"),
        _column(
            "outcome",
            pa.string(),
            "'fetched' (a WARC record has the body), 'linked' (redirects to another link's URL), 'failed' or 'refused'",
        ),
        _column("reason", pa.string(), "why the page was not fetched; null if it was fetched", nullable=True),
        _column("status", pa.int32(), "HTTP status of the last response", nullable=True),
        _column(
            "source",
            pa.string(),
            "where the page came from, or the last source that was tried: 'web', 'common-crawl', 'wayback' or 'warc'",
        ),
        _column("captured", pa.int64(), "when the response was captured", nullable=True),
        _column("voted", pa.int64(), "when the link's earliest post was made; the page's age is captured - voted"),
        LINK.field("karma"),
        LINK.field("split"),
        _column(
            "warc_file", pa.string(), "file of the response (or revisit) record, in the same part set", nullable=True
        ),
        _column("warc_offset", pa.int64(), "offset of that record's gzip member", nullable=True),
        _column("warc_length", pa.int64(), "length of that gzip member", nullable=True),
        _column("milliseconds", pa.int64(), "from the first connection to the last byte", nullable=True),
        _column("requests", pa.int32(), "requests made for the link, with redirects and retries, without robots.txt"),
        _column("cause", pa.string(), "explanation for people, at most 200 characters", nullable=True),
        _column(
            "opt_outs",
            pa.list_(pa.field("item", pa.string(), nullable=False)),
            "opt-outs of the sites; a fetched page has only opt-outs that settings overruled",
        ),
        _column(
            "opt_out_evidence", pa.list_(pa.field("item", NOTICE, nullable=False)), "one for each of opt_outs, in order"
        ),
        LINK.field("posts"),
    ]
)

DOCUMENT = pa.schema(
    [
        _column("id", pa.string(), "unique in a set"),
        _column(
            "link_ids",
            pa.list_(pa.field("item", pa.string(), nullable=False)),
            "all links that led here; empty for imported documents",
        ),
        _column("url", pa.string(), "the WARC record's target URI, byte for byte", nullable=True),
        _column(
            "text",
            pa.string(),
            "clean text: `\\n` line ends, no controls but `\\n` and `\\t`, at most two `\\n` in a row",
        ),
        _column("text_digest", pa.string(), "first 32 hex digits of SHA-256 of text in UTF-8"),
        _column(
            "title", pa.string(), "as the page states it; without the site's name if a heading lacks it", nullable=True
        ),
        _column("author", pa.string(), "as the page states it; several names are joined by '; '", nullable=True),
        _column(
            "published",
            pa.int64(),
            "as the page states it, or as htmldate finds it; midnight if only the day is known",
            nullable=True,
        ),
        _column("date", pa.int64(), "when the page was captured", nullable=True),
        _column("domain", pa.string(), "registrable domain of url", nullable=True),
        _column(
            "page_kind", pa.string(), "kind of page, estimated from its markup: 'article', 'forum', ...", nullable=True
        ),
        _column(
            "extractor_agreement",
            pa.float64(),
            "F1 of the word trigrams of two extractors' texts; null if only one extractor ran",
            nullable=True,
        ),
        _column("language", pa.string(), "ISO 639-1 code", nullable=True),
        _column("language_score", pa.float64(), "probability of language in [0, 1]", nullable=True),
        _column("karma", pa.int64(), "highest karma among the links that led here", nullable=True),
        _column("split", pa.string(), "'train' or 'validation'"),
        _column("warc_file", pa.string(), "file of the response record in the pages set", nullable=True),
        _column("warc_offset", pa.int64(), "offset of the record's gzip member", nullable=True),
        _column("warc_length", pa.int64(), "length of that gzip member", nullable=True),
        _column(
            "n_scrubbed",
            pa.int64(),
            "number of e-mail and IP addresses replaced by placeholders; null without `scrub`",
            nullable=True,
        ),
        _column("posts", _POSTS, "posts of all links that led here, without repeats, sorted by source and post_id"),
    ]
)

RELEASE = pa.schema([column for column in DOCUMENT if column.name not in ("text", "title", "author")])
"""A document without its author's words, for publication where the texts may not be published.

It keeps `posts`: ids, communities, scores and times of votes are facts about the page, also in `release/links`.
"""

DECISION = pa.schema(
    [
        _column("id", pa.string(), "id of the document that was dropped"),
        _column("url", pa.string(), "its URL", nullable=True),
        _column("stage", pa.string(), "'remove', 'votes', 'filter', 'dedup' or 'decontaminate'"),
        _column("reason", pa.string(), "'too_few_words', 'near_duplicate', ..."),
        _column("value", pa.float64(), "measured value", nullable=True),
        _column("threshold", pa.float64(), "threshold of the value", nullable=True),
        _column("duplicate_of", pa.string(), "id of the document that was kept", nullable=True),
        _column("request", pa.string(), "line of the removal list that removed it", nullable=True),
        _column("text_start", pa.string(), "first 200 characters of the text; empty if it was removed on request"),
    ]
)

TOP_NGRAM_SIZES = (2, 3, 4)
DUPLICATE_NGRAM_SIZES = (5, 6, 7, 8, 9, 10)
_RATIO = pa.float64()

SIGNALS = pa.schema(
    [
        *(DOCUMENT.field(name) for name in ("id", "language", "language_score", "extractor_agreement")),
        _column("n_characters", pa.int64(), "characters of the text"),
        _column("n_words", pa.int64(), "words without symbols; a letter of an unspaced script is a fraction of a word"),
        _column(
            "mean_word_length",
            pa.float64(),
            "characters per word of spaced scripts; null if most words are of unspaced scripts",
            nullable=True,
        ),
        _column("hash_word_ratio", pa.float64(), "'#' per word"),
        _column("ellipsis_word_ratio", pa.float64(), "ellipses per word"),
        _column("alphabetic_word_ratio", _RATIO, "share of words with a letter"),
        _column(
            "n_stop_words",
            pa.int64(),
            "how many of Gopher's eight English stop words occur; null like mean_word_length",
            nullable=True,
        ),
        _column("bullet_line_ratio", _RATIO, "share of lines that start with a bullet"),
        _column("ellipsis_line_ratio", _RATIO, "share of lines that end in an ellipsis"),
        _column("punctuated_line_ratio", _RATIO, "share of non-blank lines that end in terminal punctuation"),
        _column("short_line_ratio", _RATIO, "share of non-blank lines of at most 30 characters"),
        _column(
            "prose_character_ratio",
            _RATIO,
            "share of characters in lines without table cells that have six words, or four if they end a sentence, of which "
            "70 % have only letters, hyphens and apostrophes",
        ),
        _column("newline_word_ratio", pa.float64(), "line ends per word"),
        _column("duplicate_line_ratio", _RATIO, "share of non-blank lines that occurred before"),
        _column("duplicate_line_character_ratio", _RATIO, "share of characters in lines that occurred before"),
        _column("duplicate_character_ratio", _RATIO, "the same, as a share of the characters without line ends"),
        _column("duplicate_paragraph_ratio", _RATIO, "share of paragraphs that occurred before"),
        _column("duplicate_paragraph_character_ratio", _RATIO, "share of characters in repeated paragraphs"),
        *(
            _column(f"top_{n}gram_character_ratio", _RATIO, f"share of characters in the most frequent word {n}-gram")
            for n in TOP_NGRAM_SIZES
        ),
        *(
            _column(f"duplicate_{n}gram_character_ratio", _RATIO, f"share of characters in repeated {n}-grams of words")
            for n in DUPLICATE_NGRAM_SIZES
        ),
        _column("n_lorem_ipsum_lines", pa.int64(), "lines of three words or more with 'lorem ipsum'"),
        _column("n_curly_brace_lines", pa.int64(), "lines of three words or more with '{', without 'javascript'"),
        _column(
            "n_sentences",
            pa.int64(),
            "sentences in lines of three words or more, without 'javascript' or policy phrases",
        ),
        _column(
            "n_punctuated_lorem_ipsum_lines", pa.int64(), "n_lorem_ipsum_lines that end in . ? ! or a quotation mark"
        ),
        _column("n_punctuated_curly_brace_lines", pa.int64(), "n_curly_brace_lines that end in such punctuation"),
        _column("n_punctuated_sentences", pa.int64(), "n_sentences in lines that end in such punctuation"),
        _column(
            "failed", pa.string(), "why all values are 0 and were not measured: 'killed_worker', ...", nullable=True
        ),
    ]
)

SCORED_SIGNALS = SIGNALS.append(
    _column("vote_score", pa.float64(), "by the recipe's model, in [0, 1]; null without a word", nullable=True)
)
WIDER = {"signals": SCORED_SIGNALS}
"""Record kind -> schema of parts with the optional columns (`PartWriter.widen`)."""

TOKEN_INDEX = pa.schema(
    [
        _column("shard", pa.string(), "token file, e.g. 'train-00000.tok'"),
        _column("start", pa.int64(), "index in the shard of the <|endoftext|> that opens the document"),
        _column("length", pa.int64(), "number of tokens, including the opening <|endoftext|>"),
        _column("id", pa.string(), "the document's id"),
        _column("source_part", pa.string(), "part of the corpus, or input file"),
        _column("row", pa.int64(), "row in that part"),
    ]
)

SIGNATURES = pa.schema(
    [
        *(DOCUMENT.field(name) for name in ("id", "text_digest", "karma", "date", "split")),
        _column("has_words", pa.bool_(), "whether the text has shingles; without them the signature is meaningless"),
        _column("failed", pa.string(), "why the text could not be signed: 'too_many_bytes', ...", nullable=True),
    ]
)
"""One row per document, in the same order; the part's attachment `.signatures` has a signature for each."""

DUPLICATES = pa.schema(
    [
        _column("row", pa.int64(), "a row of the documents part"),
        _column(
            "reason", pa.string(), "'exact_duplicate', 'near_duplicate', 'near_duplicate_of_train', or why it failed"
        ),
        _column("duplicate_of", pa.string(), "id of the document that is kept; empty if the row failed"),
        _column("similarity", pa.float64(), "exact Jaccard similarity with that document; NaN if the row failed"),
    ]
)
"""The rows of a documents part that dedup drops or could not compare, ascending."""

EXCHANGE = pa.schema(
    [
        _column("row", pa.int64(), "a row of the source that could not be processed"),
        _column("reason", pa.string(), "why: 'killed_worker', 'raised', 'too_many_bytes', ..."),
    ]
)
"""Rows that failed; the others are in the part's attachment `.exchange` (`base/parts/exchange.py`), sorted by range."""

SCHEMAS = {
    "links": LINK,
    "pages": PAGE,
    "documents": DOCUMENT,
    "signals": SIGNALS,
    "corpus": DOCUMENT,
    "dropped": DECISION,
    "release": RELEASE,
    "signatures": SIGNATURES,
    "tokens": TOKEN_INDEX,
    "duplicates": DUPLICATES,
    "exchange": EXCHANGE,
}
"""Record kind -> schema of its Parquet part."""
