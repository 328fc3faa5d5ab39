"""The true text of a source: its blocks in order, by a real parser of each format.

Every format becomes a tree (docutils' XML, DocBook, Mallard, the HTML of mandoc and markdown-it), and a table for each kind
of tree says which elements are blocks of text. Words that a generator adds by itself are not in it; titles that it takes
from elsewhere in the source, for a reference, are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lxml import etree, html
from markdown_it import MarkdownIt
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

# A menu is what a source asks for but isn't its text: a table of contents, a line of authors.
KINDS = "paragraph", "heading", "item", "code", "row", "caption", "menu"
PARAGRAPH, HEADING, ITEM, CODE, ROW, CAPTION, MENU = KINDS
SKIP, GAP = "skip", "gap"  # an element whose text doesn't count; one that parts the words around it
_SIGN_GAP = re.compile(r"\0+(?=[\s.,;:!?)\]])|(?<=[\s(\[])\0+")
SECONDS = 600  # for a tool


class Block(NamedTuple):
    """A block of a source: its kind, and its text without markup; cells of a row are parted by tabs."""

    kind: str
    text: str


class Unresolved(Exception):
    """A source whose text can't be known from it alone; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Book:
    """Sources of one format and language that refer to each other, and their pages if the package has them."""

    format: str
    folder: Path
    language: str
    sources: Mapping[str, Path]  # by the name of the page, without suffix
    pages: Mapping[str, bytes] = field(default_factory=dict)
    generator: str = ""


Trees = Iterator[tuple[str, "etree._Element | Unresolved"]]


def read(book: Book) -> dict[str, list[Block] | Unresolved]:
    """Return the text of every source of a book, by the name of its page."""
    reader, rules = FORMATS[book.format]
    return {name: tree if isinstance(tree, Unresolved) else blocks(tree, rules) for name, tree in reader(book)}


def blocks(root: etree._Element, rules: Mapping[str, str]) -> list[Block]:
    """Return the blocks of a tree. Inside an item, a paragraph is an item; in code, rows and titles no block begins.

    >>> blocks(etree.fromstring("<l><li>a <b>b</b><p>c</p>d</li><tr><td>1</td><td>2</td></tr></l>"), HTML)[2:]
    [Block(kind='item', text='d'), Block(kind='row', text='1\\t2')]
    """
    found: list[Block] = []
    buffer: list[str] = []

    def close(kind: str) -> None:
        text = "".join(buffer)
        buffer.clear()
        text = _SIGN_GAP.sub("", text).replace("\0", " ")  # 'Undo.', not 'Undo .'
        if kind != CODE:
            cells = text.split("\t") if kind == ROW else [text]
            text = "\t".join(" ".join(cell.split()) for cell in cells if cell.strip())
        if text.strip():
            found.append(Block(kind, text.strip("\n\t")))

    def visit(element: etree._Element, kind: str) -> None:
        buffer.append(element.text or "")
        for child in element:
            rule = _rule(child, rules)
            if rule in KINDS and kind not in (CODE, ROW, CAPTION, HEADING, MENU):
                close(kind)
                inner = ITEM if rule == PARAGRAPH and kind == ITEM else rule
                visit(child, inner)
                close(inner)
            elif rule != SKIP:
                gap = "" if not rule else "\t" if kind == ROW else "\n" if kind == CODE and rule != GAP else "\0"
                buffer.append(gap)
                visit(child, kind)
                buffer.append(gap)
            buffer.append(child.tail or "")

    visit(root, PARAGRAPH)
    close(PARAGRAPH)
    return found


def _rule(element: etree._Element, rules: Mapping[str, str]) -> str:
    if not isinstance(element.tag, str):
        return SKIP  # a comment or a processing instruction
    name = _name(element)
    return rules.get(f"{_name(element.getparent())}/{name}") or rules.get(name, "")


def _name(element: etree._Element) -> str:
    return re.split("[}:]", element.tag)[-1]


def sphinx(book: Book) -> Trees:
    """Yield the sources of a Sphinx project as its XML builder resolves them.

    A source with raw HTML, or a directive, role or file that Sphinx alone doesn't know, is unresolved.
    """
    with tempfile.TemporaryDirectory() as folder:
        project, out = Path(folder, "project"), Path(folder, "out")
        sphinx_project(book, project)
        run([sys.executable, "-m", "sphinx", "-qbxml", "-thtml", f"-Dlanguage={book.language}", project, out])
        for name in book.sources:
            try:
                tree = etree.parse(out / f"{name}.xml", etree.XMLParser(huge_tree=True)).getroot()
            except (OSError, etree.XMLSyntaxError):
                yield name, Unresolved("source_not_parsed")
                continue
            for menu in tree.xpath(
                "//compound[contains(@classes, 'toctree')] | //topic[contains(@classes, 'contents')]"
            ):
                menu.tag = MENU
            for label in tree.xpath("//inline[contains(@classes, 'versionmodified')]"):
                label.tag = "comment"  # 'New in version 3', in the words of the release of Sphinx
            if tree.xpath("//system_message[@level > 2]"):
                yield name, Unresolved("unknown_directive")
            elif tree.xpath("//raw[contains(@format, 'html')][normalize-space()]"):
                yield name, Unresolved("raw_html")
            else:
                yield name, tree


def sphinx_project(book: Book, project: Path) -> None:
    """Write the sources of a book as a Sphinx project with a minimal configuration."""
    for name, path in book.sources.items():
        target = project / (name + (".md" if path.name.removesuffix(".txt").endswith(".md") else ".rst"))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    root = "index" if "index" in book.sources else next(iter(book.sources))
    extensions = ["sphinx.ext.doctest", "sphinx.ext.graphviz", "sphinx.ext.todo", "myst_parser"]
    settings = {"extensions": extensions, "root_doc": root, "keep_warnings": True, "xml_pretty": False}
    text = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
    (project / "conf.py").write_text(text, encoding="utf-8")


def docbook(book: Book) -> Trees:
    """Yield the pages of books in DocBook, or in what a tool turns into it: a page holds the section that its name is the id of.

    A footnote comes at the end of its page, a shortcut after its menu; a reference without text has its target's title.
    """
    for main in dict.fromkeys(book.sources.values()):
        names = [name for name, path in book.sources.items() if path == main]
        try:
            if book.format in TO_DOCBOOK:
                root = etree.fromstring(
                    run([*TO_DOCBOOK[book.format], main]).encode(), etree.XMLParser(no_network=True)
                )
            else:
                root = etree.parse(
                    main, etree.XMLParser(load_dtd=True, resolve_entities=True, no_network=True)
                ).getroot()
                root.getroottree().xinclude()
        except (OSError, etree.LxmlError):
            yield from ((name, Unresolved("source_not_parsed")) for name in names)
            continue
        ids = {node.get("id") or node.get(XML_ID): node for node in root.iter("*")}
        for node in root.iter("{*}xref", "{*}link"):
            if not len(node) and not node.text and (target := ids.get(node.get("linkend"))) is not None:
                node.text = target.xpath("string((*|*/*)[local-name() = 'title'])")
        for keys in list(root.iter("{*}shortcut")):
            keys.getparent().append(keys)
        for node in root.xpath("//*[contains(local-name(), 'info')]/*[not(contains(local-name(), 'title'))]"):
            node.tag = MENU  # authors, dates, a licence
        sections = {name: root if name == "index" or len(names) == 1 else ids.get(name) for name in names}
        for name, section in sections.items():
            yield name, Unresolved("no_such_section") if section is None else _page(section, set(sections.values()))


def _page(section: etree._Element, others: set[etree._Element]) -> etree._Element:
    """Return a copy of a section without the sections in it that have pages of their own."""

    def copy(node: etree._Element) -> etree._Element:
        new = etree.Element(_name(node)) if isinstance(node.tag, str) else etree.Comment()
        new.text, new.tail = node.text, node.tail
        new.extend(copy(child) for child in node if child not in others)
        return new

    page = etree.Element("page")
    page.append(copy(section))
    page[0].tail = None
    for note in page.findall(".//{*}footnote"):
        note.addprevious(etree.Comment(""))
        note.getprevious().tail, note.tail = note.tail, None
        page.append(note)
    return page


def mallard(book: Book) -> Trees:
    """Yield the pages of a book in Mallard; a link without text has its target's title."""
    trees = {}
    for name, path in book.sources.items():
        try:
            trees[name] = etree.parse(path, etree.XMLParser(no_network=True))
            trees[name].xinclude()
        except etree.LxmlError:
            yield name, Unresolved("source_not_parsed")
    titles = {
        name: " ".join(tree.xpath("string(/*/*[local-name() = 'title'])").split()) for name, tree in trees.items()
    }
    for name, tree in trees.items():
        for link in tree.iter("{*}link"):
            if not len(link) and not (link.text or "").strip():
                link.text = titles.get(link.get("xref", "").partition("#")[0], "")
        conditional = any("if/1.0" in f"{node.tag}{node.attrib}" for node in tree.iter("*"))
        yield name, Unresolved("conditional_text") if conditional else tree.getroot()


def man(book: Book) -> Trees:
    """Yield manual pages as mandoc parses them, without the lines at their head and foot."""
    for name, path in book.sources.items():
        tree = html.fragment_fromstring(run(["mandoc", "-Thtml", "-Ofragment", path]), create_parent="div")
        for table in tree.xpath("//table[@class = 'head' or @class = 'foot']"):
            table.drop_tree()
        yield name, tree


def markdown(book: Book) -> Trees:
    """Yield sources in Markdown: CommonMark with tables, and with the extensions that site generators have."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for plugin in (front_matter_plugin, footnote_plugin, deflist_plugin, admon_plugin):
        parser.use(plugin)
    for name, path in book.sources.items():
        text = path.read_text(encoding="utf-8", errors="replace")
        made_elsewhere = re.search(r"\{[{%]|^:::|^\[TOC\]|^--8<--", text, re.MULTILINE)  # by templates and plugins
        tree = html.fragment_fromstring(parser.render(text), create_parent="div")
        yield name, Unresolved("unknown_directive") if made_elsewhere else tree


XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
TO_DOCBOOK = {
    "texinfo": ["makeinfo", "--docbook", "--no-warn", "--force", "-o", "-"],
    "asciidoc": ["asciidoctor", "-q", "-b", "docbook5", "-o", "-"],
}


def _rules(**tags: str) -> dict[str, str]:
    return {tag: kind for kind, names in tags.items() for tag in names.split()}


HTML = _rules(
    paragraph="p blockquote", heading="h1 h2 h3 h4 h5 h6", item="li dt dd", code="pre", row="tr",
    caption="caption figcaption", gap="td th br div", skip="head script style",
)  # fmt: skip
DOCUTILS = _rules(
    paragraph="paragraph line attribution compact_paragraph centered",
    heading="title subtitle rubric",
    item="list_item term definition field option_group description footnote citation",
    code="literal_block doctest_block math_block desc_signature productionlist",
    row="row",
    caption="caption table/title",
    menu="menu",
    gap="entry desc_parameter desc_returns field_name label production option",
    skip="comment raw index substitution_definition system_message meta image",
)
DOCBOOK = _rules(
    paragraph="para simpara bridgehead attribution footnote",
    heading="title subtitle refname",
    item="listitem term member glossentry/glossterm glossdef question answer",
    code="programlisting screen literallayout synopsis cmdsynopsis funcsynopsis address",
    row="row tr",
    caption="caption table/title figure/title example/title",
    gap="entry td th arg group keycap guimenu guisubmenu guimenuitem guibutton firstname surname refpurpose",
    menu="menu",
    skip="indexterm remark screeninfo refmeta index toc textobject imageobject",
)
MALLARD = _rules(
    paragraph="p", heading="title subtitle", item="item item/title", row="tr",
    code="screen listing page/code section/code item/code note/code example/code",
    caption="desc table/title figure/title", gap="td th gui key", skip="info comment links revision media",
)  # fmt: skip


FORMATS: dict[str, tuple[Callable[[Book], Trees], Mapping[str, str]]] = {
    "rst": (sphinx, DOCUTILS),
    "docbook": (docbook, DOCBOOK),
    "texinfo": (docbook, DOCBOOK),
    "asciidoc": (docbook, DOCBOOK),
    "mallard": (mallard, MALLARD),
    "man": (man, HTML),
    "markdown": (markdown, HTML),
}


def run(command: list[object], cwd: Path | None = None) -> str:
    """Return what a tool prints, without the user's settings; TimeoutExpired if it takes too long."""
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent"}
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, timeout=SECONDS, check=False)
    return done.stdout.decode("utf-8", "replace")
