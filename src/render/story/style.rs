//! How the page looks, on light and dark screens, wide and narrow ones.

pub const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fff; --text: #1c1c1e; --faint: #5f6368;
  --edge: #d8dadd; --field: #f4f5f7; --alarm: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ground: #17181a; --text: #e6e6e8;
  --faint: #a2a6ab; --edge: #3a3d41; --field: #222427; --alarm: #ff8a80; } }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 75rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
p, ul, blockquote { max-width: 46rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: .2rem 0 1rem; }
h2 { margin: 3rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--edge); }
.name, .note, figcaption { color: var(--faint); font-size: .9rem; }
.name { margin: 0; font-family: ui-monospace, monospace; }
.facts { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; max-width: none; list-style: none; }
.facts li { flex: 1 1 14rem; padding: 1rem; border: 1px solid var(--edge); border-radius: .5rem; }
.facts strong { display: block; font-size: 1.7rem; }
blockquote { margin: 1rem 0; padding: .75rem 1rem; border-left: 4px solid var(--alarm);
  background: var(--field); overflow-wrap: anywhere; }
blockquote p { margin: .4rem 0 0; }
pre { padding: 1rem; overflow-x: auto; background: var(--field); border: 1px solid var(--edge);
  border-radius: .5rem; font: 13px/1.45 ui-monospace, 'DejaVu Sans Mono', monospace; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .9rem; border-bottom: 1px solid var(--edge); text-align: right; }
th { color: var(--faint); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #fff;
  border: 1px solid var(--edge); border-radius: .5rem; }
figcaption { margin-top: .4rem; max-width: 46rem; }
a { color: inherit; }
";
