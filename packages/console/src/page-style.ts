/** The style of the page, for light and dark, wide and narrow. Colours of epochs are told apart by their labels too. */
export const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --paper: light-dark(#f6f7f9, #14171c);
  --sheet: light-dark(#ffffff, #1c2028);
  --sunk: light-dark(#eceff3, #12151a);
  --line: light-dark(#d5dae1, #343b47);
  --ink: light-dark(#16191d, #e8ebef);
  --soft: light-dark(#525b67, #a3adba);
  --accent: light-dark(#0b5cad, #6cb2ff);
  --bad: light-dark(#b3121d, #ff7a7a);
  --bad-sheet: light-dark(#fdecec, #3a1a1d);
  --good: light-dark(#13693a, #6fd39b);
  --good-sheet: light-dark(#e8f6ee, #15301f);
  --warm: light-dark(#a34a00, #ffb066);
  --hw: light-dark(#0b5cad, #6cb2ff);
  --leo: light-dark(#16191d, #e8ebef);
  --hatch: light-dark(rgb(255 255 255 / 62%), rgb(16 18 22 / 55%));
  --epoch-0: light-dark(#a9cdf5, #23527f);
  --epoch-1: light-dark(#f8c88d, #84510f);
  --epoch-2: light-dark(#a8deb9, #1f6a3d);
  --epoch-3: light-dark(#e3bdf0, #6a3a7d);
  --epoch-4: light-dark(#f3e08a, #6e6110);
  --epoch-5: light-dark(#f5b5bd, #84323f);
  --epoch-6: light-dark(#9fdfe0, #14666a);
  --epoch-7: light-dark(#cfc6b8, #5b5142);
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
#page { max-width: 1280px; margin: 0 auto; padding: 20px 24px 32px; }
h1 { font-size: 26px; line-height: 1.2; margin: 2px 0 6px; letter-spacing: -0.01em; text-wrap: balance; }
h2 { font-size: 16px; margin: 0; }
h3 { font-size: 15px; margin: 0; }
p { margin: 0; }
button, select { font: inherit; color: inherit; background: var(--sheet); border: 1px solid var(--line); border-radius: 6px; padding: 4px 10px; cursor: pointer; }
button:hover, select:hover { border-color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
[data-color="0"] { background: var(--epoch-0); } [data-color="1"] { background: var(--epoch-1); }
[data-color="2"] { background: var(--epoch-2); } [data-color="3"] { background: var(--epoch-3); }
[data-color="4"] { background: var(--epoch-4); } [data-color="5"] { background: var(--epoch-5); }
[data-color="6"] { background: var(--epoch-6); } [data-color="7"] { background: var(--epoch-7); }

.mark-line { color: var(--soft); font-size: 13px; }
.summary { max-width: 88ch; color: var(--ink); }
.verdict { margin: 14px 0 0; padding: 12px 16px; border-radius: 10px; border: 1px solid var(--good); border-left-width: 6px; background: var(--good-sheet); }
.verdict h2 { color: var(--good); font-size: 18px; }
.verdict p { margin-top: 4px; max-width: 100ch; }
.verdict[data-verdict="broken"] { border-color: var(--bad); background: var(--bad-sheet); }
.verdict[data-verdict="broken"] h2 { color: var(--bad); }
.verdict .wrong-text { font-size: 16px; font-weight: 600; }
.verdict .actions { display: flex; flex-wrap: wrap; gap: 8px; margin-top: 10px; }
.aftermath { margin: 2px 0 0; padding-left: 22px; }
.link { border: 0; padding: 0; background: none; color: var(--accent); text-decoration: underline; border-radius: 3px; }
.terms { display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 8px 20px; margin: 14px 0 0; font-size: 13px; }
.terms dt { font-weight: 600; display: flex; align-items: center; gap: 7px; }
.terms dd { margin: 2px 0 0; color: var(--soft); }
.glyph { display: inline-flex; flex: none; align-items: center; justify-content: center; min-width: 14px; height: 16px; }
.glyph.lane-glyph::before { content: ""; width: 18px; height: 9px; border-radius: 2px; border: 1px solid var(--soft); background: var(--epoch-0); }
.glyph.leo-glyph::before { content: ""; width: 3px; height: 16px; background: var(--leo); }
.glyph.hw-glyph::before { content: ""; width: 0; height: 16px; border-left: 3px dashed var(--hw); }
.glyph.epoch-glyph i { width: 9px; height: 14px; }
.run { margin: 12px 0 0; font-size: 13px; color: var(--soft); }
.run summary { cursor: pointer; width: fit-content; }
.run pre { margin: 8px 0 0; padding: 8px 10px; border-radius: 6px; background: var(--sunk); color: var(--ink); overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
.run p { margin-top: 6px; }
.facts { display: flex; flex-wrap: wrap; gap: 2px 20px; margin: 8px 0 0; }
.facts div { display: flex; gap: 6px; }
.facts dd { margin: 0; color: var(--ink); }

main { scroll-margin-top: 8px; display: grid; grid-template-columns: minmax(0, 1fr) 380px; gap: 14px; margin-top: 14px; }
.player { grid-column: 1 / -1; background: var(--sheet); border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px 12px; }
.strip { position: relative; height: 44px; }
.marks { position: absolute; inset: 0 8px 20px; border-bottom: 1px solid var(--line); }
.mark { position: absolute; bottom: 0; width: 3px; height: 10px; margin-left: -1.5px; border-radius: 1px; background: var(--soft); }
.mark[data-kind="network"] { height: 6px; background: var(--soft); }
.mark[data-kind="note"] { height: 8px; width: 8px; margin-left: -4px; bottom: 14px; border-radius: 50%; background: var(--good); }
.mark[data-kind="decision"] { height: 13px; background: var(--accent); }
.mark[data-kind="truncation"] { height: 18px; background: light-dark(#7a3fa0, #c99bea); }
.mark[data-kind="fault"] { height: 13px; background: var(--warm); }
.mark[data-kind="violation"] { height: 24px; width: 5px; margin-left: -2.5px; background: var(--bad); }
#scrubber { position: absolute; left: 0; right: 0; bottom: 0; width: 100%; height: 20px; margin: 0; appearance: none; background: none; cursor: pointer; }
#scrubber::-webkit-slider-runnable-track { height: 4px; border-radius: 2px; background: var(--line); }
#scrubber::-webkit-slider-thumb { appearance: none; width: 16px; height: 16px; margin-top: -6px; border-radius: 50%; background: var(--accent); border: 2px solid var(--sheet); }
#scrubber::-moz-range-track { height: 4px; border-radius: 2px; background: var(--line); }
#scrubber::-moz-range-thumb { width: 12px; height: 12px; border-radius: 50%; background: var(--accent); border: 2px solid var(--sheet); }
.mark-legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 0; padding: 0; list-style: none; font-size: 12px; color: var(--soft); }
.mark-legend li { display: flex; align-items: center; gap: 6px; }
.mark-legend .mark { position: static; margin: 0; }
.controls { display: flex; flex-wrap: wrap; align-items: center; gap: 6px; margin-top: 10px; }
.controls button { display: grid; place-items: center; min-width: 38px; height: 34px; padding: 0 8px; }
.controls svg { width: 18px; height: 18px; fill: currentColor; }
#toggle { min-width: 56px; background: var(--accent); border-color: var(--accent); color: light-dark(#fff, #0c1420); }
.speed { color: var(--soft); font-size: 13px; margin-left: 8px; }
#position { margin-left: auto; font-variant-numeric: tabular-nums; color: var(--soft); font-size: 13px; }
#caption { margin-top: 10px; padding: 8px 12px; min-height: 62px; border-left: 4px solid var(--line); background: var(--sunk); border-radius: 4px; font-size: 16px; white-space: pre-line; overflow-wrap: anywhere; }
#caption[data-kind="violation"] { border-color: var(--bad); background: var(--bad-sheet); font-weight: 600; }
#caption[data-kind="fault"] { border-color: var(--warm); }
#caption[data-kind="decision"] { border-color: var(--accent); }
#caption[data-kind="note"] { border-color: var(--good); }
#caption[data-kind="truncation"] { border-color: light-dark(#7a3fa0, #c99bea); }

.lanes { position: relative; padding-left: 46px; display: grid; gap: 8px; min-width: 0; }
.arrows { position: absolute; left: 0; top: 0; width: 46px; height: 100%; overflow: visible; pointer-events: none; }
.arrows path { fill: none; stroke: var(--accent); stroke-width: 1.6; }
.arrows path[data-fate="lost"] { stroke: var(--bad); stroke-dasharray: 4 3; }
.lane { background: var(--sheet); border: 1px solid var(--line); border-radius: 10px; padding: 8px 14px; min-width: 0; }
.lane-head { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 10px; }
.badge { font-size: 13px; padding: 1px 9px; border-radius: 999px; background: var(--sunk); border: 1px solid var(--line); }
.lane-facts { font-size: 12.5px; color: var(--soft); font-variant-numeric: tabular-nums; }
.replica[data-role="leader"][data-process="up"] .badge { background: var(--accent); border-color: var(--accent); color: light-dark(#fff, #0c1420); font-weight: 600; }
.replica[data-process="down"] { background: repeating-linear-gradient(135deg, transparent 0 9px, var(--sunk) 9px 18px), var(--sheet); }
.replica[data-process="down"] .badge, .replica[data-process="paused"] .badge, .replica[data-role="failed"] .badge { color: var(--warm); border-color: var(--warm); background: var(--sheet); font-weight: 600; }
.replica[data-process="down"] .ranges { opacity: 0.55; }
.replica[data-concerned] { border-color: var(--bad); }
.isr { display: inline-flex; align-items: center; gap: 4px; font-size: 13px; color: var(--soft); }
.member { display: inline-grid; place-items: center; width: 20px; height: 20px; border-radius: 50%; font-size: 12px; border: 1px dashed var(--line); color: var(--soft); }
.member[data-in] { border: 1px solid var(--good); background: var(--good-sheet); color: var(--good); font-weight: 700; }
.cuts { font-size: 12.5px; color: var(--bad); }
.axis-row { padding: 0 15px; height: 14px; }
.axis { position: relative; height: 14px; font-size: 11px; color: var(--soft); font-variant-numeric: tabular-nums; }
.axis span { position: absolute; transform: translateX(-50%); }
.bar { position: relative; padding: 18px 0 18px; }
.track { position: relative; height: 34px; border-radius: 4px; background: var(--sunk); overflow: clip; overflow-clip-margin: 4px; }
.ranges, .cells, .wrongs { position: absolute; inset: 0; }
.range, .cell, .uncommitted, .wrong { position: absolute; top: 0; bottom: 0; }
.range { overflow: hidden; border-right: 1px solid var(--sheet); container-type: inline-size; }
.range b { position: absolute; left: 6px; bottom: 1px; font-size: 10.5px; font-weight: 500; white-space: nowrap; opacity: 0.85; }
@container (max-width: 48px) { .range b, .wrong b { visibility: hidden; } }

.cell { display: grid; place-items: start center; padding-top: 2px; border-right: 1px solid var(--sheet); font-size: 13.5px; overflow: hidden; white-space: nowrap; container-type: inline-size; }
.cell b { font-weight: 600; }
@container (max-width: 30px) { .cell b { visibility: hidden; } }
.uncommitted { background: repeating-linear-gradient(-45deg, var(--hatch) 0 4px, transparent 4px 8px); }
.wrong { border: 3px solid var(--bad); border-radius: 4px; min-width: 6px; margin: -3px 0; }
.wrong { container-type: inline-size; }
.wrong b { position: absolute; inset: 0; display: grid; place-items: center; overflow: hidden; white-space: nowrap; font-size: 12px; color: var(--bad); }
.wrong[data-now] { background: color-mix(in srgb, var(--bad) 22%, transparent); animation: pulse 1.1s ease-in-out 3; }
@keyframes pulse { 50% { box-shadow: 0 0 0 6px color-mix(in srgb, var(--bad) 45%, transparent); } }
.flag { position: absolute; top: 14px; bottom: 14px; width: 0; }
.flag b { position: absolute; white-space: nowrap; font-size: 12px; font-weight: 650; line-height: 14px; transform: translateX(-50%); font-variant-numeric: tabular-nums; }
.flag[data-side="start"] b { transform: none; left: -2px; }
.flag[data-side="end"] b { transform: translateX(-100%); left: 2px; }
.flag.leo { border-left: 3px solid var(--leo); margin-left: -1.5px; color: var(--leo); bottom: 18px; }
.flag.leo b { top: -14px; }
.flag.hw { border-left: 3px dashed var(--hw); margin-left: -1.5px; color: var(--hw); top: 18px; }
.flag.hw b { bottom: -15px; }
.flag[data-beyond] { border-left-color: transparent; }
.overview { position: relative; height: 6px; margin-top: 4px; border-radius: 3px; background: var(--sunk); overflow: hidden; }
.overview i { position: absolute; top: 0; bottom: 0; }
.overview .window { border: 1px solid var(--ink); border-radius: 2px; }
.acknowledged, .messages { display: flex; flex-wrap: wrap; gap: 4px 6px; margin: 0; padding: 0; list-style: none; font-size: 12.5px; }
.acknowledged li { padding: 1px 8px; border-radius: 5px; border: 1px solid var(--good); background: var(--good-sheet); color: var(--good); }
.acknowledged li[data-gone] { border-color: var(--bad); background: var(--bad-sheet); color: var(--bad); font-weight: 700; }
.messages { min-height: 22px; color: var(--soft); }
.messages li { padding: 0 7px; border: 1px solid var(--line); border-radius: 5px; background: var(--sheet); }
.messages li[data-fate="lost"] { color: var(--bad); border-color: var(--bad); }

.lanes { align-content: start; }
.happened { display: flex; flex-direction: column; height: 0; min-height: max(100%, 430px); background: var(--sheet); border: 1px solid var(--line); border-radius: 10px; overflow: hidden; min-width: 0; }
.happened-head { display: flex; justify-content: space-between; align-items: center; gap: 8px; padding: 8px 12px; border-bottom: 1px solid var(--line); }
.happened-head select { font-size: 13px; padding: 2px 6px; }
.events { position: relative; margin: 0; padding: 4px; list-style: none; flex: 1; min-height: 0; overflow-y: auto; overscroll-behavior: contain; }
.events button { display: grid; grid-template-columns: 68px minmax(0, 1fr); gap: 0 8px; width: 100%; text-align: left; border: 0; border-left: 3px solid transparent; border-radius: 4px; padding: 4px 8px; background: none; font-size: 13px; }
.events button:hover { background: var(--sunk); }
.events .when { color: var(--soft); font-variant-numeric: tabular-nums; font-size: 12px; }
.events .kind { color: var(--soft); font-size: 12px; }
.events .what { grid-column: 2; white-space: pre-line; overflow-wrap: anywhere; }
.events [data-kind="note"] .what { font-weight: 650; }
.events [data-kind="note"] .kind { color: var(--good); }
.events [data-kind="fault"] .kind { color: var(--warm); }
.events [data-kind="decision"] .kind { color: var(--accent); }
.events [data-kind="truncation"] .kind { color: light-dark(#7a3fa0, #c99bea); }
.events [data-kind="violation"] { background: var(--bad-sheet); color: var(--bad); }
.events [data-kind="violation"] .kind { color: var(--bad); font-weight: 700; }
.events [aria-current] { background: var(--sunk); border-left-color: var(--accent); }
.events [data-kind="violation"][aria-current] { background: var(--bad-sheet); border-left-color: var(--bad); }
.keys { grid-column: 1 / -1; color: var(--soft); font-size: 13px; }
kbd { font: inherit; font-size: 12px; padding: 1px 6px; border: 1px solid var(--line); border-bottom-width: 2px; border-radius: 4px; background: var(--sheet); color: var(--ink); }

@media (max-width: 900px) {
  main { grid-template-columns: minmax(0, 1fr); }
  .terms { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .happened { height: 380px; min-height: 0; }
}
@media (max-width: 560px) {
  #page { padding: 14px 12px 24px; }
  h1 { font-size: 21px; }
  .terms { grid-template-columns: minmax(0, 1fr); }
  .lanes { padding-left: 0; }
  .arrows { display: none; }
  .lane { padding: 8px 10px; }
  .axis-row { padding: 0 11px; }
  .player { padding: 8px 10px; }
  .controls button { min-width: 34px; padding: 0 6px; }
  #position { margin-left: 0; width: 100%; }
  .speed { margin-left: 0; }
}
@media (prefers-reduced-motion: no-preference) {
  .range, .uncommitted, .flag { transition: left 0.16s ease-out, width 0.16s ease-out; }
}
@media (prefers-reduced-motion: reduce) {
  .wrong[data-now] { animation: none; }
}
`;
