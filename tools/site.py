"""Completes the documentation site after it was built, and checks its links: `make site`.

    python -m tools.site site

Pages link to files of the repository outside docs/. Each such file is copied into files/, as text that a browser shows,
and the links lead to it. llms.txt and llms-full.txt are written (`tools.llms_text`). Every link within the site must
then lead to a file, and to an anchor on it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

from tools import llms_text

ROOT = Path(__file__).parents[1]
LINK = re.compile(r'(<(?:a|img|link|script)\b[^>]*?\s(?:href|src)=)(?:"([^"]*)"|([^\s">]+))')
ANCHOR = re.compile(r'\s(?:id|name)=(?:"([^"]*)"|([^\s">]+))')


def bring_files(site: Path) -> None:
    """Copy the files outside docs/ that pages link to, and lead the links to the copies."""
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        source = ROOT / "docs" / page.relative_to(site)

        def to_copy(link: re.Match[str], page: Path = page, source: Path = source) -> str:
            target = unescape(link[2] if link[2] is not None else link[3])
            path = Path(os.path.normpath(source.parent / target.partition("#")[0]))
            is_outside = path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "docs")
            if not is_outside or ":" in target or not path.is_file():
                return link[0]
            copy = site / "files" / f"{path.relative_to(ROOT)}.txt"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            return f'{link[1]}"{os.path.relpath(copy, page.parent)}"'

        page.write_text(LINK.sub(to_copy, text), encoding="utf-8")


def broken_links(site: Path) -> Iterator[str]:
    """Yield every link of a page that leads to no file of the site, or to an anchor that the file does not have."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    anchors = {page: {unescape(a or b) for a, b in ANCHOR.findall(text)} for page, text in pages.items()}
    for page, text in sorted(pages.items()):
        for _, quoted, plain in LINK.findall(text):
            target = unquote(unescape(quoted or plain))
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:|//", target):
                continue
            file = Path(os.path.normpath(page.parent / path)) if path else page
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file() or (anchor and file in anchors and anchor not in anchors[file]):
                yield f"{page.relative_to(site)}: {target}"


def main(site: Path) -> None:
    """Complete the site. Raise SystemExit with the links that lead nowhere."""
    bring_files(site)
    llms_text.write(site)
    if broken := list(dict.fromkeys(broken_links(site))):
        sys.exit("These links of the site lead nowhere:\n" + "\n".join(broken))
    print(f"{len(list(site.rglob('*.html')))} pages, and every link leads somewhere")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
