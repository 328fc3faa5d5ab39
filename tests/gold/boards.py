"""Render threads as boards show them: JSON threads on standard input, a JSON page with its dates for each on standard output.

Runs in the environment of `boards.txt`. Spirit and machina are run as Django sites in memory; FlaskBB's templates, and
those of `boards.jinja`, are filled in by Jinja. Labels are translated by what these projects and Django bring along.
"""

from __future__ import annotations

import functools
import json
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from babel import Locale, UnknownLocaleError
from babel.dates import format_datetime
from babel.messages.pofile import read_po
from jinja2 import ChainableUndefined, ChoiceLoader, Environment, FileSystemLoader
from markupsafe import Markup

Thread = dict[str, Any]
Pages = Iterator[tuple[str, list[str]]]
"""A page, and the dates in it."""
JINJA = {"flaskbb": "forum/topic.html", "flaskbb-wide": "forum/topic_horizontal.html"}
MEMORY = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
SETTINGS = {
    "SECRET_KEY": "-", "ALLOWED_HOSTS": ["*"], "ROOT_URLCONF": "board_urls", "SITE_ID": 1, "LOGGING": {},
    "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    "CACHES": {"default": MEMORY, "st_rate_limit": MEMORY, "machina_attachments": MEMORY},
    "HAYSTACK_CONNECTIONS": {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}},
    "HAYSTACK_SIGNAL_PROCESSOR": "haystack.signals.BaseSignalProcessor", "ST_SITE_URL": "http://example.com/",
    "ST_TASK_MANAGER": None, "MACHINA_MARKUP_LANGUAGE": ("builtins.str", {}), "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
}  # fmt: skip
APPS = (
    ",_conversation,_conversation.forum_attachments,_conversation.forum_polls,_feeds,_moderation,_search,_tracking,_member,"
    "_permission"
)
"""What machina consists of, after `machina.apps.forum`."""


def package(name: str) -> Path:
    """Return the folder of a package without importing it; one that doesn't exist if it isn't installed."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else Path("/nonexistent")


def locale_of(language: str) -> Locale:
    try:
        return Locale.parse(language.partition("@")[0])
    except (UnknownLocaleError, ValueError):
        return Locale("en")


@functools.cache
def labels(language: str) -> dict[str, str]:
    """Return the translations of all installed boards for a language, by the English label."""
    found: dict[str, str] = {}
    for name in ("django", "machina", "spirit", "flaskbb"):
        for path in package(name).rglob(f"{locale_of(language).language}*/LC_MESSAGES/*.po"):
            with path.open("rb") as file, redirect_stdout(sys.stderr):  # where Babel prints what it doubts
                found |= {m.id: m.string for m in read_po(file) if isinstance(m.id, str) and m.string}
    return found


def in_jinja(threads: list[Thread]) -> Pages:
    """Fill in templates. What they ask of a running site, such as permissions, is undefined and thus empty."""
    loaders = [FileSystemLoader(Path(__file__).parent), FileSystemLoader(package("flaskbb") / "templates")]
    site = Environment(
        loader=ChoiceLoader(loaders), autoescape=True, undefined=ChainableUndefined, extensions=["jinja2.ext.i18n"]
    )
    asked = "is_online post_reply edit_post delete_post delete_topic can_moderate is_admin_or_moderator"
    site.filters |= {name: lambda *_: False for name in asked.split()}
    nothing = lambda *_, **__: ""  # noqa: E731
    site.globals |= {
        "theme": str, "url_for": lambda name, **_: f"/{name.replace('.', '/')}", "run_hook": nothing,
        "csrf_token": nothing, "get_flashed_messages": nothing, "generate_obj_id": lambda _page, index, _n: index,
    }  # fmt: skip
    site.filters["markup"] = Markup
    for thread in threads:
        known, locale, dates = labels(thread["language"]), locale_of(thread["language"]), []

        def show(date: str, _format: str = "", locale: Locale = locale, dates: list[str] = dates) -> str:
            shown = format_datetime(datetime.fromisoformat(date), "medium", locale=locale)
            dates += [shown] if "+" in date else []  # not the day when somebody joined
            return shown

        site.install_gettext_callables(  # type: ignore[attr-defined]
            lambda text, known=known: known.get(text) or known.get(f"{text}:", text).rstrip(":"),
            lambda one, many, n: one if n == 1 else many, newstyle=True,
        )  # fmt: skip
        site.filters["format_date"] = show
        numbers = list(range(1, thread["n_pages"] + 1))
        posts = [
            post | {"content": post["html"], "date_created": post["date"], "user_id": 1} for post in thread["posts"]
        ]
        users = [post["user"] | {"url": "/user", "primary_group": {"name": post["user"]["rank"]}} for post in posts]
        page = types.SimpleNamespace(items=list(zip(posts, users, strict=True)), page=1, has_next=len(numbers) > 1)
        page.iter_pages = lambda n=numbers: n
        text = site.get_template(JINJA.get(thread["layout"], "boards.jinja")).render(
            thread=thread, topic=thread["topic"], posts=page, locale=locale, shown=thread["posts"],
            current_user={"permissions": {}},
            flaskbb_config=defaultdict(str, PROJECT_TITLE=thread["board"], SIGNATURE_ENABLED=True),
        )  # fmt: skip
        yield text, dates


def start_site() -> None:
    """Start a Django site with both engines, by the settings that Spirit gives new sites, and a database in memory."""
    import django
    import machina
    from django.conf import settings as site
    from django.core.management import call_command
    from django.urls import include, path

    text = (package("spirit") / "extra/project_template/project_name/settings/base.py").read_text(encoding="utf-8")
    settings: dict[str, Any] = {"__file__": "/nonexistent/a/b/c"}
    exec(text, settings)  # noqa: S102
    settings = {name: value for name, value in settings.items() if name.isupper()} | SETTINGS
    settings["INSTALLED_APPS"] += [
        "mptt",
        "widget_tweaks",
        "machina",
        *(f"machina.apps.forum{app}" for app in APPS.split(",")),
    ]
    settings["MIDDLEWARE"] += ["machina.apps.forum_permission.middleware.ForumPermissionMiddleware"]
    templates = settings["TEMPLATES"][0]
    templates["DIRS"] = [machina.MACHINA_MAIN_TEMPLATE_DIR]
    templates["OPTIONS"]["context_processors"].append("machina.core.context_processors.metadata")
    site.configure(**settings)
    sys.modules["board_urls"] = module = types.ModuleType("board_urls")
    django.setup()
    parts = [path("", include("spirit.urls")), path("machina/", include("machina.urls"))]
    module.urlpatterns = parts  # type: ignore[attr-defined]
    call_command("migrate", verbosity=0)


def _get(url: str, language: str) -> str:
    from django.test import Client

    return Client().get(url, headers={"accept-language": str(locale_of(language)).replace("_", "-")}).content.decode()


def _shown(posts: list[Thread], language: str, form: str) -> list[str]:
    from django.utils import translation
    from django.utils.formats import date_format

    with translation.override(str(locale_of(language)).replace("_", "-")):
        return [date_format(datetime.fromisoformat(post["date"]), form) for post in posts]


def _user(post: Thread) -> Any:
    from django.contrib.auth import get_user_model

    name = post["user"]["username"]
    return get_user_model().objects.get_or_create(username=name, defaults={"email": f"{name}@example.com"})[0]


def in_spirit(threads: list[Thread]) -> Pages:
    """Publish threads with Spirit."""
    start_site()
    from spirit.category.models import Category
    from spirit.comment.models import Comment
    from spirit.topic.models import Topic

    for thread in threads:
        board = Category.objects.create(title=thread["forum"][:75])
        posts = thread["posts"]
        topic = Topic.objects.create(
            user=_user(posts[0]), category=board, title=thread["topic"]["title"][:255], slug="topic"
        )
        for post in posts:
            facts = {"date": post["date"], "likes_count": post["likes"], "modified_count": post["likes"] % 3}
            Comment.objects.create(user=_user(post), topic=topic, comment_html=post["html"], **facts)
        yield _get(topic.get_absolute_url(), thread["language"]), _shown(posts, thread["language"], "j M 'y")


def in_machina(threads: list[Thread]) -> Pages:
    """Publish threads with machina."""
    start_site()
    from machina.apps.forum.models import Forum
    from machina.apps.forum_conversation.models import Post, Topic
    from machina.apps.forum_member.models import ForumProfile
    from machina.apps.forum_permission.models import ForumPermission, UserForumPermission

    for permission in ForumPermission.objects.filter(codename__in=("can_see_forum", "can_read_forum")):
        UserForumPermission.objects.create(permission=permission, anonymous_user=True, has_perm=True)

    for thread in threads:
        board = Forum.objects.create(name=thread["forum"][:100], type=Forum.FORUM_POST)
        title, first = thread["topic"]["title"][:255], _user(thread["posts"][0])
        topic = Topic.objects.create(
            forum=board, subject=title, slug="topic", poster=first, type=Topic.TOPIC_POST, status=Topic.TOPIC_UNLOCKED
        )
        for i, post in enumerate(thread["posts"]):
            subject = title if i == 0 else f"Re: {title}"[:255]
            made = Post.objects.create(topic=topic, poster=_user(post), subject=subject, content=post["html"])
            Post.objects.filter(pk=made.pk).update(created=post["date"])
            facts = {"posts_count": post["user"]["post_count"], "signature": post["user"]["signature"]}
            ForumProfile.objects.update_or_create(user=_user(post), defaults=facts)
        url = f"/machina/forum/{board.slug}-{board.pk}/topic/topic-{topic.pk}/"
        yield _get(url, thread["language"]), _shown(thread["posts"], thread["language"], "DATETIME_FORMAT")


ENGINES: dict[str, Callable[[list[Thread]], Pages]] = {"spirit": in_spirit, "machina": in_machina}

if __name__ == "__main__":
    for page in ENGINES.get(sys.argv[1], in_jinja)(json.load(sys.stdin)):
        print(json.dumps(page))
