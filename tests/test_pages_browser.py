"""Pages in a real browser: nothing overlaps and nothing is cut at 400, 900 and 1600 pixels."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import pages

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDTHS = (400, 900, 1600)

# measures in a frame of each width, and says what is wrong; the page itself has no script
MEASURE = r"""
function wrong(doc, width) {
  const found = [], say = (what, e) => found.push(width + ': ' + what + ': ' +
    (e.textContent || e.tagName).trim().replace(/\s+/g, ' ').slice(0, 60));
  const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const scrolls = e => e.closest('.scroll, .math > span');
  if (doc.documentElement.scrollWidth > width) say('wider than the window', doc.body);
  for (const e of doc.querySelectorAll('body *')) {
    if (!seen(e) || e.closest('svg, math')) continue;
    const r = e.getBoundingClientRect();
    if (!scrolls(e) && (r.right > width + 1 || r.left < -1)) say('outside', e);
    const style = getComputedStyle(e);
    if (style.overflowX == 'hidden' && !e.matches('.track') && e.scrollWidth > e.clientWidth + 1)
      say('cut', e);
    if (!e.matches('.scroll, .math > span, .track') && e.scrollWidth > e.clientWidth + 1 &&
        e.clientWidth && !scrolls(e)) say('flows over', e);
  }
  const apart = (list, what) => {
    const boxes = list.filter(seen).map(e => [e.getBoundingClientRect(), e]);
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const [a, e] = boxes[i], [b, f] = boxes[j];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 1 && !e.contains(f) && !f.contains(e))
        say(what + ' over ' + f.textContent.trim().slice(0, 30), e);
    }
  };
  const holders = 'main, .pair, .figures, .card, .bars, ol, ul, tr, figure, .math';
  for (const p of doc.querySelectorAll(holders))
    apart([...p.children].filter(c => !c.matches('style')), 'lies');
  for (const svg of doc.querySelectorAll('svg')) {
    const edge = svg.getBoundingClientRect();
    apart([...svg.querySelectorAll('.box')], 'a box lies');
    apart([...svg.querySelectorAll('text')], 'a text lies');
    for (const e of svg.querySelectorAll('text, rect, circle')) {
      const r = e.getBoundingClientRect();
      if (r.left < edge.left - 1 || r.right > edge.right + 1 || r.top < edge.top - 1 ||
          r.bottom > edge.bottom + 1) say('outside its picture', e);
    }
    for (const box of svg.querySelectorAll('.box')) {
      const r = box.querySelector('rect').getBoundingClientRect();
      for (const t of box.querySelectorAll('text')) {
        const b = t.getBoundingClientRect();
        if (b.left < r.left || b.right > r.right || b.bottom > r.bottom + 1)
          say('outside its box', t);
      }
    }
  }
  return found;
}
window.onload = () => {
  const found = [];
  let texts = 0;
  for (const frame of document.querySelectorAll('iframe')) {
    const doc = frame.contentDocument;
    for (const d of doc.querySelectorAll('details')) d.open = true;
    texts += doc.querySelectorAll('h1, h2, td, p').length;
    found.push(...wrong(doc, frame.width));
  }
  const out = document.createElement('pre');
  out.id = 'found';
  out.textContent = JSON.stringify({texts, found});
  document.body.append(out);
};
"""


def looked_at(text: str, folder: Path) -> list[str]:
    """What a browser finds wrong with a page."""
    frames = "".join(
        f'<iframe width="{w}" height="900" style="border:0" srcdoc="{html.escape(text)}"></iframe>'
        for w in WIDTHS
    )
    path = folder / "look.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{frames}<script>{MEASURE}</script>")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [*command, path.as_uri()], capture_output=True, text=True, timeout=300, check=False
    )
    said = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert said is not None, f"the browser said nothing: {done.stderr[-500:]}"
    answer = json.loads(html.unescape(said[1]))
    assert answer["texts"] > 20  # something was looked at
    return answer["found"]


needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium on PATH: pages were not looked at in a browser"
)


@needs_browser
@pytest.mark.parametrize("name", sorted(pages.PAGES))
def test_nothing_overlaps_or_is_cut(tmp_path, name):
    assert looked_at(pages.PAGES[name](tmp_path), tmp_path) == []


@needs_browser
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("<h1", "<p style='width: 1500px'>x</p><h1", "wider than the window"),
        ("<h2", "<p style='margin-bottom: -3rem'>over the next</p><h2", "lies over"),
        ("<h2", "<p style='white-space: nowrap; overflow: hidden'>" + "x" * 999 + "</p><h2", "cut"),
        ('rx="7"/><text', 'rx="7"/><text x="-40" y="9">far out</text><text', "outside its"),
    ],
)
def test_a_fault_is_seen(tmp_path, before, after, words):
    text = pages.PAGES["explain"](tmp_path).replace(before, after, 1)
    assert any(words in line for line in looked_at(text, tmp_path))
