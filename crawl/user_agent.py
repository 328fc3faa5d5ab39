"""The User-Agent that every request states: our name and version, and how to reach whoever runs the program."""

from __future__ import annotations

import re

from webtext.base.errors import ConfigError

_PRINTED = re.compile(r"[!-'*-:<-~]+")  # printable ASCII allowed in a header's comment
_EMAIL = re.compile(r"[^@/]+@[^@/.]+(?:\.[^@/.]+)+")


def user_agent(contact: str | None) -> str:
    """Return an honest User-Agent: our name, our version, and the contact if there is one."""
    from webtext import __version__

    return f"webtext/{__version__} (+{contact})" if contact else f"webtext/{__version__}"


def check_contact(contact: str | None, name: str) -> None:
    """Raise ConfigError if a contact is not an e-mail address or an http(s) URL, or is not allowed in a User-Agent."""
    if contact is None:
        return
    from webtext.base.web.urls import canonical_url  # only if it is needed: `--help` loads this module

    if not (_PRINTED.fullmatch(contact) and (_EMAIL.fullmatch(contact) or canonical_url(contact))):
        raise ConfigError(
            f"{name} = {contact!r}: not a contact for the User-Agent",
            "use an e-mail address or an http(s) URL in ASCII, without parentheses, e.g. crawler@example.org",
        )
