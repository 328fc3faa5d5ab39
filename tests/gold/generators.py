"""Make the pages of a book with the generators and themes that people publish such sources with.

The tools are the Debian packages asciidoc-base, asciidoctor, docbook-xsl, doxygen, groff, jekyll, jekyll-theme-minima,
man2html-base, mandoc, pandoc, ruby-jekyll-optional-front-matter, ruby-jekyll-titles-from-headings, texinfo, xsltproc,
yelp-tools and yelp-xsl, and the Python packages of themes.txt, in a virtual environment at `VENV`.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lxml import etree

from . import truth

VENV = Path(__file__).parents[2] / "build/gold/generators"
SPHINX_THEMES = (
    "agogo alabaster bizstyle bootstrap classic furo haiku insegel insipid nature piccolo_theme press pydata_sphinx_theme "
    "pyramid python_docs_theme scrolls shibuya sphinx_book_theme sphinx_material sphinx_nefertiti sphinx_rtd_theme "
    "sphinxawesome_theme sphinxdoc traditional"
)
MKDOCS_THEMES = "bootstrap cinder dracula gitbook ivory material mkdocs nature readthedocs terminal windmill"
_SPHINX = "sphinx-build -q -d {work}/doctrees -D keep_warnings=0 -D language={language} -D root_doc={main}"
_XSLTPROC = "xsltproc --nonet --stringparam use.id.as.filename 1 --stringparam l10n.gentext.language {language}"
_XSL = "/usr/share/xml/docbook/stylesheet/docbook-xsl"
_MAKEINFO = "makeinfo --html --force --no-warn --document-language {language}"

Commands = list[tuple[str, str, str]]
"""Generator, theme, and a command that writes the pages of a book into {out}, or prints the page of a {source}."""
_IN_SPHINX: Commands = [
    ("sphinx", theme, f"{_SPHINX} -D project={{title}} -D html_theme={theme} {{project}} {{out}} {{only}}")
    for theme in SPHINX_THEMES.split()
]
_FROM_DOCBOOK: Commands = [
    ("yelp", "", "yelp-build html -o {out} {docbook}"),
    ("docbook-xsl", "html", f"{_XSLTPROC} -o {{out}}/ {_XSL}/html/chunk.xsl {{docbook}}"),
    ("docbook-xsl", "xhtml5", f"{_XSLTPROC} --stringparam html.ext .html -o {{out}}/ {_XSL}/xhtml5/chunk.xsl {{docbook}}"),
    ("docbook-xsl", "single", f"{_XSLTPROC} -o {{out}}/{{main}}.html {_XSL}/html/docbook.xsl {{docbook}}"),
    ("pandoc", "", "pandoc -f docbook -s --toc -o {out}/{main}.html {docbook}"),
]  # fmt: skip
COMMANDS: dict[str, Commands] = {
    "rst": _IN_SPHINX,
    "markdown": [
        *(("mkdocs", theme, f"mkdocs build -q -f {{work}}/mkdocs.yml -t {theme} -d {{out}}") for theme in MKDOCS_THEMES.split()),
        ("jekyll", "minima", "jekyll build -q -s {project} -d {out} --config {work}/jekyll.yml"),
        ("doxygen", "", "doxygen {work}/Doxyfile"),
        ("pandoc", "", "pandoc -f gfm -s --toc {source}"),
        *_IN_SPHINX,
    ],
    "mallard": [("yelp", "", "yelp-build html -o {out} {folder}")],
    "docbook": _FROM_DOCBOOK,
    "texinfo": [
        ("makeinfo", "node", f"{_MAKEINFO} --split=node -o {{out}} {{source}}"),
        ("makeinfo", "chapter", f"{_MAKEINFO} --split=chapter -o {{out}} {{source}}"),
        *_FROM_DOCBOOK,
    ],
    "asciidoc": [
        ("asciidoctor", "", "asciidoctor -q -a lang={language} -o - {source}"),
        ("asciidoctor", "toc", "asciidoctor -q -a lang={language} -a toc=left -a sectnums -a sectanchors -o - {source}"),
        ("asciidoc", "xhtml11", "/usr/bin/python3 -m asciidoc -b xhtml11 -o - {source}"),
        *_FROM_DOCBOOK,
    ],
    "man": [
        ("mandoc", "", "mandoc -T html {source}"),
        ("groff", "", "groff -k -t -e -man -T html {source}"),
        ("man2html", "", "man2html -r {source}"),
        ("pandoc", "", "pandoc -f man -s {source}"),
    ],
}  # fmt: skip
SETTINGS = {
    "mkdocs.yml": "{{site_name: {title}, docs_dir: {project}, use_directory_urls: false, "
    "markdown_extensions: [admonition, def_list, footnotes]}}",
    "jekyll.yml": "{{title: {title}, theme: minima, plugins: [jekyll-optional-front-matter, jekyll-titles-from-headings], "
    'defaults: [{{scope: {{path: ""}}, values: {{layout: page, render_with_liquid: false}}}}]}}',
    "Doxyfile": "PROJECT_NAME={title}\nINPUT={project}\nSTRIP_FROM_PATH={project}\nRECURSIVE=YES\nHTML_OUTPUT=.\n"
    "GENERATE_LATEX=NO\nHAVE_DOT=NO\n",
}
DOCBOOK = {
    "docbook": "",
    "texinfo": "makeinfo --docbook --no-warn --force -o {docbook} {source}",
    "asciidoc": "asciidoctor -q -b docbook5 -o {docbook} {source}",
}


def made(book: truth.Book, work: Path, only: Collection[str] = ()) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Render a book in the folder `work`; yield each generator, its theme and its pages by name, or `only` those pages.

    A book in DocBook, or that is turned into it, is cut into pages named after the ids of their sections. A generator
    that is missing, fails or takes longer than `truth.SECONDS` yields nothing.
    """
    main = "index" if "index" in book.sources else next(iter(book.sources))
    values = {
        "work": work, "project": work / "project", "docbook": work / "index.docbook", "folder": book.folder, "main": main,
        "language": book.language, "source": book.sources[main],
        "title": next(part for part in reversed(book.folder.parts) if part not in ("_sources", "html", "docs", "doc")),
    }  # fmt: skip
    prepare(book, values)
    sources = {name: path for name, path in book.sources.items() if not only or name in only}
    # Doxygen and makeinfo name pages in their own way.
    names = {re.sub(r"\W", "_", f"md_{name}"): name for name in sources} | {"index.docbook": "index"}
    commands = COMMANDS[book.format]
    if book.format == "docbook" and book.language != "en":
        # Translations are into dozens of languages: each takes every other generator.
        commands = commands[zlib.crc32(book.language.encode()) % 2 :: 2]
    for number, (generator, theme, command) in enumerate(commands):
        out = work / str(number)
        out.mkdir()
        if "{source}" in command and "{out}" not in command:
            for name, path in sources.items():
                printed = run(command, values | {"source": path}, out)
                target = out / f"{name}.html"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(printed[printed.find("<") :], encoding="utf-8")  # man2html has a header before it
        else:
            files = [str(path) for name in only for path in (work / "project").glob(f"{glob.escape(name)}.*")]
            run(command, values | {"out": out}, out, files)
        found = {str(path.relative_to(out).with_suffix("")): path.read_bytes() for path in sorted(out.rglob("*.html"))}
        pages = {names.get(name, name): page for name, page in found.items() if page}
        if pages := {name: page for name, page in pages.items() if name in sources or book.format in DOCBOOK}:
            yield generator, theme, pages
        shutil.rmtree(out)


def prepare(book: truth.Book, values: Mapping[str, object]) -> None:
    """Write what the commands read: a project with settings, or the book as DocBook without entities and inclusions."""
    work = Path(str(values["work"]))
    work.mkdir(parents=True, exist_ok=True)
    if book.format in ("rst", "markdown"):
        truth.sphinx_project(book, work / "project")
        for name, text in SETTINGS.items():
            (work / name).write_text(text.format(**values), encoding="utf-8")
    elif book.format == "docbook":
        parser = etree.XMLParser(load_dtd=True, resolve_entities=True, no_network=True)
        with suppress(OSError, etree.LxmlError):
            tree = etree.parse(str(values["source"]), parser)
            tree.xinclude()
            Path(str(values["docbook"])).write_bytes(etree.tostring(tree.getroot()))
    elif book.format in DOCBOOK:
        run(DOCBOOK[book.format], values, work)


def run(command: str, values: Mapping[str, object], folder: Path, only: Sequence[str] = ()) -> str:
    """Return what a command prints; empty if it is missing, fails or takes too long."""
    words = [word for part in command.split() for word in (only if part == "{only}" else [part.format(**values)])]
    program = shutil.which(words[0], path=f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with suppress(OSError, subprocess.TimeoutExpired):
        return truth.run([program, *words[1:]], folder) if program else ""
    return ""
