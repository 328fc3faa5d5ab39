"""The report's inline style sheet: light and dark, with the reader's own fonts."""

from __future__ import annotations

STYLE = """
:root{--paper:#fff;--ink:#1c2430;--soft:#677281;--line:#e2e6eb;--tint:#f5f7f9;--kept:#2f8f68;--dropped:#d99a3d;
--failed:#c0453b;--model:#2b62a8;--pale:#a9c3e4;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#15191f;--ink:#e4e8ee;--soft:#96a1b0;--line:#2c333d;--tint:#1d232b;
--kept:#4fb58b;--dropped:#d9a04a;--failed:#e0695f;--model:#79aeee;--pale:#45648d}}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:var(--paper);
max-width:62rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header p,.soft{color:var(--soft)}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.2rem;margin:3rem 0 .3rem}
h3{font-size:1rem;margin:1.6rem 0 .2rem}
h2+p.soft{margin:.1rem 0 1rem}
p{margin:.4rem 0}
code{font:.86em/1.45 ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
b,.n{font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%}
td,th{padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:500;color:var(--soft)}
td.n,th.n{text-align:right;white-space:nowrap}
.way{display:grid;grid-template-columns:repeat(auto-fit,minmax(6.3rem,1fr));gap:.5rem;margin:1.6rem 0 0;padding:0;list-style:none}
.way li{background:var(--tint);border-radius:8px;padding:.6rem .75rem}
.way b{display:block;font-size:1.25rem;line-height:1.2}
.way span{display:block;color:var(--soft);font-size:.82rem;line-height:1.25}
.alarm{border-left:4px solid var(--failed);background:var(--tint);border-radius:0 8px 8px 0;padding:.5rem .9rem;
margin:.6rem 0}
.stage{margin:1.3rem 0 0}
.stage p{display:flex;justify-content:space-between;gap:1rem;margin:0 0 .25rem}
.bar{display:flex;height:1.1rem;border-radius:4px;overflow:hidden;background:var(--line);gap:1px}
.bar i{display:block;min-width:2px}
.kept{background:var(--kept)}.dropped{background:var(--dropped)}.failed{background:var(--failed)}
.model{background:var(--model)}.table{background:var(--pale)}
ul.reasons{display:flex;flex-wrap:wrap;gap:.1rem 1.6rem;list-style:none;margin:.35rem 0 0;padding:0}
ul.reasons i,.key i{display:inline-block;width:.62rem;height:.62rem;border-radius:2px;margin-right:.4rem}
.key{color:var(--soft);font-size:.86rem}.key span{margin-right:1.2rem}
figcaption.key span{margin:0 0 0 1rem}
figure{margin:1rem 0}
figcaption{color:var(--soft);font-size:.86rem}
.wide{overflow-x:auto}
svg{display:block;width:100%;height:auto;overflow:visible}
.chart svg{min-width:34rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(18rem,1fr));gap:0 1.5rem}
.pair>div{min-width:0}
mark{background:none;color:var(--failed);text-decoration:underline}
details{border-bottom:1px solid var(--line);padding:.45rem 0}
summary{cursor:pointer}
summary .n{color:var(--soft);margin-left:.6rem}
article{margin:.8rem 0 1rem;padding:0 0 0 .9rem;border-left:2px solid var(--line)}
article p{font-size:.9rem}
pre{font:.84rem/1.5 ui-monospace,"SF Mono",Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere;
background:var(--tint);border-radius:6px;padding:.6rem .8rem;margin:.3rem 0}
.meter{width:45%}.meter i{display:block;height:.8rem;border-radius:3px;margin-top:.35rem}
@media print{figure,.stage,article{break-inside:avoid}h2,h3{break-after:avoid}body{max-width:none}
.chart svg{min-width:0}*{print-color-adjust:exact}}
"""
