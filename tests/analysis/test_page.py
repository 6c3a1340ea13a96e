"""The HTML page: nothing in it is foreign, and its tables sort, in a real browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.markdown import escape, table
from analysis.page import html_page
from analysis.transcripts import BeforeAndAfter, side_by_side

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) ![y](http://evil/z.png) `</code>` | &lt;b&gt;"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page(markdown: str, tmp_path: Path) -> str:
    return html_page(markdown, tmp_path)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = page(f"# {escape(HOSTILE)}\n\n{HOSTILE}\n\n```text\n{HOSTILE}\n```\n", tmp_path)
    body = text[text.index("<main>") : text.index("</main>")]
    assert "<script" not in body
    assert 'href="javascript:' not in body
    assert "evil/z.png" not in re.sub(r"<h1.*?</h1>|<pre>.*?</pre>", "", body, flags=re.DOTALL)
    assert "&lt;script&gt;" in body


def test_figures_of_the_folder_are_inside_and_others_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"picture")
    (tmp_path / "secret.png").write_bytes(b"secret")
    text = page("![a](a.png)\n\n![b](../secret.png)\n\n![c](missing.png)\n", folder)
    assert "data:image/png;base64,cGljdHVyZQ==" in text
    assert "c2VjcmV0" not in text


def test_headings_have_the_anchors_that_links_use(tmp_path: Path) -> None:
    text = page(
        "[below](#trials-that-do-not-count)\n\n## Trials that do not count\n\n## Same\n\n## Same\n", tmp_path
    )
    assert 'id="trials-that-do-not-count"' in text
    assert 'id="same-1"' in text


def test_transcripts_cannot_leave_their_fence() -> None:
    turn = {"observation": "a ``` b\n\x1b[31m", "response": "````\n<b>", "action": None, "reward": 0}
    episode = {"step": 3, "kind": "eval", "success": True, "turns": [turn]}
    text = side_by_side(BeforeAndAfter(None, episode, episode))  # type: ignore[arg-type]
    fence = text.split("text\n", 1)[0]
    assert set(fence) == {"`"}
    assert len(fence) > 4
    assert text.endswith(f"\n{fence}")
    assert fence not in text[len(fence) : -len(fence)]
    assert "\x1b" not in text
    widths = {line.index(" | ") for line in text.splitlines()[1:-1] if " | " in line}
    assert len(widths) == 1


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_tables_sort_in_a_browser(tmp_path: Path) -> None:
    rows = [["a", "+0.10 [+0.02, +0.20]"], ["b", "-0.30"], ["c", "-"], ["d", "1,200"]]
    text = page("# t\n\n" + table(("name", "value"), rows), tmp_path)

    def dom(html: str) -> str:
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                   (tmp_path / "page.html").as_uri()]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    assert 'role="button"' in dom(text)  # the page's own script runs under its policy
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)
    assert policy
    click = "<script>document.querySelectorAll('th')[1].click();{}</script></body>"
    for again, order in (("", "badc"), ("document.querySelectorAll('th')[1].click()", "cdab")):
        sorted_page = dom(text.replace(policy[0], "").replace("</body>", click.format(again)))
        assert "".join(re.findall(r"<tr>\s*<td>(\w)</td>", sorted_page)) == order
