"""Checks a page that has to stand alone: well formed, no script, nothing from elsewhere, every file
that it names is there, and every picture is an SVG that can be parsed."""

import pathlib
import sys
import xml.dom.minidom
from html.parser import HTMLParser

OPEN_ENDED = {"meta", "img", "link", "br"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.named, self.tags = [], set(), set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag not in OPEN_ENDED:
            self.open.append(tag)
        self.named.update(value for name, value in attributes if name in ("href", "src"))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()


path = pathlib.Path(sys.argv[1])
page = Page()
page.feed(path.read_text())
assert not page.open, f"never closed: {page.open}"
assert "script" not in page.tags, "it has a script"
assert page.named, "it names no file"
for name in sorted(page.named):
    file = path.parent / name
    assert "//" not in name and file.is_file() and file.stat().st_size, f"no {name}"
    if name.endswith(".svg"):
        xml.dom.minidom.parse(str(file))
print(f"{path}: {len(page.named)} files, all there")
