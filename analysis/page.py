"""A report as one HTML file that needs nothing else: styles, figures and the sorting of tables inside it.

It is made from the report's markdown, so both say the same. Nothing in the text is read as HTML, and the page
may load nothing and run nothing but the script it carries.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --muted: #59636e; --ground: #ffffff; --line: #d1d9e0;
  --soft: #f6f8fa; --link: #0969da; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --muted: #9198a1; --ground: #0d1117; --line: #3d444d; --soft: #161b22;
    --link: #4493f8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
.page { display: flex; gap: 2.5rem; max-width: 84rem; margin: 0 auto; padding: 2rem 1.5rem 6rem; }
nav { position: sticky; top: 2rem; align-self: flex-start; flex: 0 0 13rem; font-size: 0.86rem;
  max-height: calc(100vh - 4rem); overflow-y: auto; }
nav a { display: block; color: var(--muted); text-decoration: none; padding: 0.16rem 0; }
nav a:hover { color: var(--link); }
main { flex: 1 1 auto; min-width: 0; }
h1 { margin-top: 0; line-height: 1.2; }
h2 { margin-top: 3rem; padding-bottom: 0.3rem; border-bottom: 1px solid var(--line); }
h3 { margin-top: 2rem; }
a { color: var(--link); }
blockquote { margin: 0 0 1rem; padding: 0 1rem; border-left: 4px solid var(--line); color: var(--muted);
  font-size: 1.1rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: 0.32rem 0.6rem; text-align: left; vertical-align: top; }
th { background: var(--soft); white-space: nowrap; }
th[role=button] { cursor: pointer; user-select: none; }
th[aria-sort=ascending]::after { content: " \\25B2"; font-size: 0.7em; }
th[aria-sort=descending]::after { content: " \\25BC"; font-size: 0.7em; }
tbody tr:nth-child(even) { background: var(--soft); }
code { font-size: 0.88em; background: var(--soft); border-radius: 4px; padding: 0.1em 0.3em;
  overflow-wrap: break-word; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: 0.8rem;
  overflow-x: auto; font-size: 0.8rem; line-height: 1.35; }
pre code { background: none; padding: 0; font-size: inherit; overflow-wrap: normal; }
img { max-width: 100%; height: auto; border-radius: 4px; }
@media (max-width: 60rem) { nav { display: none; } .page { padding: 1rem; } }
@media print { nav { display: none; } }
"""

_SCRIPT = """
const number = text => {
  const found = text.replace(/,(?=\\d{3})/g, "").match(/[-+]?(\\d+\\.?\\d*|\\.\\d+)(e[-+]?\\d+)?/i);
  return found ? parseFloat(found[0]) : NaN;
};
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 3 || !table.tHead) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.setAttribute("role", "button");
    head.tabIndex = 0;
    head.title = "sort";
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      const keys = new Map(rows.map(row => [row, row.cells[column].textContent.trim()]));
      const numeric = rows.filter(row => /^[<\\s]*[-+]?[.\\d]/.test(keys.get(row))).length * 2 > rows.length;
      rows.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        if (!numeric) return x.localeCompare(y, undefined, {numeric: true});
        const m = number(x), n = number(y);
        return isNaN(m) ? (isNaN(n) ? 0 : 1) : isNaN(n) ? -1 : m - n;
      });
      if (down) rows.reverse();
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
  });
}
"""


def html_page(markdown: str, folder: Path) -> str:
    """The page of a report. folder: what the links of the markdown are relative to; figures are put inside.

    A figure that is not there, or lies outside the folder, is left as its description.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(markdown)
    headings = _anchors(tokens)
    _embed(tokens, folder.resolve())
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    title = next((text for level, text, _ in headings if level == 1), "report")
    links = "".join(
        f'<a href="#{anchor}">{html.escape(text)}</a>' for level, text, anchor in headings if level == 2
    )
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f'<body>\n<div class="page">\n<nav>{links}</nav>\n<main>\n{body}</main>\n</div>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _anchors(tokens: Sequence[Token]) -> list[tuple[int, str, str]]:
    """Give headings the anchors that links in the markdown use; level, text and anchor of each."""
    found: list[tuple[int, str, str]] = []
    for opening, inline in itertools.pairwise(tokens):
        if opening.type != "heading_open":
            continue
        text = "".join(child.content for child in inline.children or ())
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") or "section"
        taken = {name for _, _, name in found}
        unique = next(
            name
            for name in (anchor, *(f"{anchor}-{k}" for k in range(1, len(taken) + 2)))
            if name not in taken
        )
        opening.attrSet("id", unique)
        found.append((int(opening.tag[1:]), text, unique))
    return found


def _embed(tokens: Sequence[Token], folder: Path) -> None:
    """Figures of the folder as data."""
    for token in tokens:
        for child in token.children or ():
            if child.type != "image":
                continue
            path = (folder / str(child.attrGet("src") or "")).resolve()
            if path.is_relative_to(folder) and path.suffix == ".png" and path.is_file():
                data = base64.b64encode(path.read_bytes()).decode()
                child.attrSet("src", f"data:image/png;base64,{data}")
                child.attrSet("loading", "lazy")
            else:
                child.attrSet("src", "data:,")
