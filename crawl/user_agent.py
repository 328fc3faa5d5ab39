"""The User-Agent that every request states: our name and version, and how to reach whoever runs the program."""

from __future__ import annotations

import re

from webtext.base.errors import ConfigError

_CONTACT = re.compile(r"[!-'*-:<-~]+(?: [!-'*-:<-~]+)*")  # printable ASCII allowed in a header's comment


def user_agent(contact: str | None) -> str:
    """Return an honest User-Agent: our name, our version, and the contact if there is one."""
    from webtext import __version__

    return f"webtext/{__version__} (+{contact})" if contact else f"webtext/{__version__}"


def check_contact(contact: str | None, name: str) -> None:
    """Raise ConfigError if a contact is not allowed in a User-Agent."""
    if contact is not None and not _CONTACT.fullmatch(contact):
        raise ConfigError(
            f"{name} = {contact!r}: not allowed in a User-Agent",
            "use an e-mail address or a URL in ASCII, without parentheses, e.g. crawler@example.org",
        )
