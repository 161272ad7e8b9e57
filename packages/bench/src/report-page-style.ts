/** The style of the page, for light and dark. */
export const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --paper: light-dark(#f6f7f9, #14171c);
  --sheet: light-dark(#ffffff, #1c2028);
  --line: light-dark(#d5dae1, #343b47);
  --ink: light-dark(#16191d, #e8ebef);
  --soft: light-dark(#525b67, #a3adba);
  --accent: light-dark(#0b5cad, #6cb2ff);
  --ours: light-dark(#0b5cad, #6cb2ff);
  --peer: light-dark(#b9790b, #d9a441);
  --raw: light-dark(#9aa3ae, #5d6672);
  --good: light-dark(#13693a, #6fd39b);
  --bad: light-dark(#b3121d, #ff7a7a);
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
#page, footer { max-width: 1080px; margin: 0 auto; padding: 20px 24px; }
h1 { font-size: 26px; margin: 0 0 6px; }
h2 { font-size: 18px; margin: 0; }
p { margin: 4px 0; max-width: 110ch; }
.heading { color: var(--soft); font-size: 13px; }
nav { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 12px 0; font-size: 13px; }
a { color: var(--accent); }
section { background: var(--sheet); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; margin: 14px 0; scroll-margin-top: 8px; }
section > p { color: var(--soft); font-size: 13px; }
figure { margin: 10px 0; overflow-x: auto; }
figure svg { background: none; color: var(--ink); font-size: 12px; max-width: none; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { padding: 2px 10px; text-align: right; border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child { text-align: left; font-weight: 400; }
thead th { border-top: 0; color: var(--soft); }
tr[data-kind="ours"] th { font-weight: 600; }
tr.skipped td { text-align: left; color: var(--soft); white-space: normal; }
[data-ratio="faster"] { color: var(--good); }
[data-ratio="slower"] { color: var(--bad); }
.controls { font-size: 13px; }
.key { margin-right: 14px; }
.key::before { content: ""; display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 5px; vertical-align: -1px; }
.key[data-kind="ours"]::before { background: var(--ours); }
.key[data-kind="peer"]::before { background: var(--peer); }
.key[data-kind="raw"]::before { background: var(--raw); }
footer { color: var(--soft); font-size: 12px; }
footer pre { white-space: pre-wrap; }
`;
