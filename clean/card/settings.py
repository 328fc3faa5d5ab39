"""Settings of the dataset card. A module of its own, so that `--help` doesn't load the card writer."""

from __future__ import annotations

from dataclasses import dataclass, fields

from webtext.base.config import setting
from webtext.base.errors import ConfigError

MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSettings:
    """The publisher's entries on the dataset card, corpus/README.md: the section [clean.card]."""

    name: str = setting("webtext corpus", "name on the dataset card", in_recipe=False, flag="--card-name")
    license: str | None = setting(
        None,
        "licence on the dataset card, a Hugging Face identifier such as odc-by or other",
        in_recipe=False,
        flag="--card-license",
    )
    contact: str | None = setting(
        None, "address on the dataset card for removal requests", in_recipe=False, flag="--card-contact"
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (value.isprintable() and 0 < len(value) <= MAX_CHARACTERS):
                raise ConfigError(
                    f"clean.card.{field.name} is {value[:40]!r}",
                    f"expected one line of 1 to {MAX_CHARACTERS} printable characters",
                )
