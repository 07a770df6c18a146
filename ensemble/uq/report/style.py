"""The style sheet of a report: colours for light and dark windows, and a page that fits narrow and wide ones."""

from __future__ import annotations

__all__ = ["COLORS", "STYLE_SHEET"]

COLORS = {
    "paper": ("#ffffff", "#12171d"),
    "raised": ("#f3f5f8", "#1c242d"),
    "line": ("#7c8794", "#76838f"),
    "ink": ("#1b2733", "#e7ecf1"),
    "muted": ("#505c69", "#a9b5c1"),
    "link": ("#0b5394", "#7cc0f5"),
    "blue": ("#22699f", "#62aee8"),
    "orange": ("#b64c12", "#f2935a"),
    "green": ("#35752f", "#7fc476"),
    "purple": ("#76499a", "#c29be0"),
    "red": ("#ab2430", "#f28b8f"),
}
"""Colours by name in a light and in a dark window. Text has a contrast of 4.5 or more, lines of pictures of 3."""


def variables(which: int) -> str:
    """The colours of one scheme as variables."""
    return " ".join(f"--{name}: {pair[which]};" for name, pair in COLORS.items())


STYLE_SHEET = (
    f"""
:root {{ color-scheme: light dark; {variables(0)}
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(1)} }} }}
"""
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 var(--font); }
header, main, footer { max-width: 84rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1, h2, h3 { line-height: 1.25; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.75rem 0 .5rem; }
p, figcaption, dd, li { overflow-wrap: anywhere; }
p { max-width: 48rem; margin: .5rem 0; }
a { color: var(--link); }
a:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { position: static; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: 1rem 0 0; list-style: none; }
.state { font-size: 1.08rem; }
.note { border-left: .25rem solid var(--orange); padding-left: .75rem; }
progress { width: 100%; max-width: 30rem; height: 1rem; accent-color: var(--blue); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .5rem 1.5rem; margin: 1rem 0; }
dt { color: var(--muted); font-size: .875rem; }
dd { margin: 0; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9375rem; }
caption { text-align: left; color: var(--muted); padding-bottom: .25rem; position: sticky; left: 0; }
th, td { padding: .25rem 1rem .25rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th[scope="row"], .text { text-align: left; }
td.text { white-space: pre-line; min-width: 9rem; overflow-wrap: anywhere; }
th.text[scope="row"] { white-space: pre-line; min-width: 13rem; overflow-wrap: anywhere; }
thead th { border-bottom: 1px solid var(--line); }
tbody tr { border-bottom: 1px solid var(--raised); }
th { font-weight: 600; }
figure { margin: 1rem 0; min-width: 0; }
figcaption { color: var(--muted); font-size: .9375rem; max-width: 48rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 0 2rem; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
svg.picture { display: block; width: 100%; height: auto; fill: var(--ink); font-family: var(--font); }
svg.picture * { stroke-linejoin: round; stroke-linecap: butt; }
footer { margin-top: 3rem; padding-bottom: 2rem; color: var(--muted); font-size: .9375rem; }
@media print { .skip, nav { display: none; } section { break-inside: avoid-page; } }
"""
)
