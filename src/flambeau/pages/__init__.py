# SPDX-License-Identifier: Apache-2.0
"""Pages that show what a GPU did: one HTML file each, with script, style and data inside.

A page loads nothing from anywhere, so it can be kept, mailed and opened without a network. The
scripts and the style are the files of this folder; `render` puts them together with the data.
"""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Kind", "render"]

Kind: TypeAlias = Literal["memory", "graph", "trace"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<script id="data" type="application/json">{data}</script>
<script>
{script}
</script>
</body>
</html>
"""


def render(kind: Kind, title: str, data: Mapping[str, Any]) -> str:
    """A page as text.

    Parameters
    ----------
    kind
        Which page.
    title
        Its title.
    data
        What its script reads; must be JSON.

    Returns
    -------
    str
        The whole HTML.
    """
    # What looks like the end of the script element must not be in it.
    text = json.dumps({"title": title, **data}, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.format(
        title=escape(title),
        style=_asset("base.css"),
        data=text,
        script="\n".join([_asset("base.js"), _asset(f"{kind}.js")]),
    )


def _asset(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
