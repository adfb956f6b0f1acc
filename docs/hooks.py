"""What the site does to a page: a link to a file that is no page becomes the file's path."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """The page's text for the site. Raises ValueError for a link to a file that is not there."""
    own = DOCS / page.file.src_uri

    def told(found: re.Match[str]) -> str:
        words, at = found[1], found[2].partition("#")[0]
        if "://" in at or not at:
            return found[0]
        path = (own.parent / at).resolve()
        if not path.exists():
            raise ValueError(f"{page.file.src_uri} links to {at}, which is not there")
        if path.is_relative_to(DOCS) and path.is_file():
            return found[0]
        return f"{words} (`{path.relative_to(DOCS.parent)}`)"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", told, markdown)
