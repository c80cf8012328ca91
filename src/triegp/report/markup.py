"""A small writer of HTML that escapes everything it is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

VOID = frozenset({"meta", "br", "hr"})
BAD_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


Child = str | None | Sequence["Child"]


def text(value: str) -> Html:
    """Text as HTML; characters that HTML forbids are shown as a replacement character."""
    if isinstance(value, Html):
        return value
    return Html(escape(clean(value), quote=True))


def clean(value: str) -> str:
    """Text with a replacement character in place of those that HTML forbids."""
    return BAD_CONTROLS.sub("\ufffd", value)


def tag(name: str, /, *children: Child, **attributes: str | bool | None) -> Html:
    """An element. Strings are escaped unless they are Html; None is left out.

    Names of attributes may end in "_", and "_" inside is read as "-". True writes a bare
    attribute; False and None write none.

    Examples
    --------
    >>> tag("p", "a < b ", tag("b", "bold"), class_="note", aria_label='"')
    '<p class="note" aria-label="&quot;">a &lt; b <b>bold</b></p>'
    """
    opened = f"<{name}{''.join(_attribute(*pair) for pair in attributes.items())}>"
    if name in VOID:
        return Html(opened)
    return Html(f"{opened}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Children one after the other; lists and tuples are flattened."""
    out = []
    for child in children:
        if child is None:
            continue
        out.append(text(child) if isinstance(child, str) else join(*child))
    return Html("".join(out))


def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{text(value)}"'
