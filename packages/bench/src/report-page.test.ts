import { expect, test } from "vitest";
import { pageSection, renderReportPage } from "./report-page.ts";
import { peer } from "./workload.ts";
import type { Result } from "./workload.ts";

function row(subject: string, median: number): Result {
  return { workload: "w", subject, median, min: median / 2, max: median * 2, unit: "MB/s" };
}

test("a section has the ratios of the peers that were measured, and none of a row with itself", () => {
  const workload = {
    name: "w",
    explanation: "e",
    unit: "MB/s",
    peers: [peer("vs raw", "raw"), peer("vs Kafka", "Kafka")],
  } as const;
  const skipped = [{ workload: "w", subject: "Kafka", reason: "Java is not on the PATH" }];
  const results = [row("ours", 1), row("raw", 4)];
  const section = pageSection(workload, { results, skipped, latencies: [] });
  expect(section).toMatchObject({ ratioHeadings: ["vs raw"], isLessBetter: false, skipped });
  expect(section.rows.map(({ ratios }) => ratios)).toEqual([[0.25], [null]]);
});

test("the page is one file: no address of anything else, and a policy that names its three scripts", () => {
  const page = renderReportPage({ title: "a <b> title", heading: ["</script>"], sections: [] });
  expect(page).toContain("<title>a &lt;b&gt; title</title>");
  expect(page.match(/<\/script>/gu)).toHaveLength(4);
  expect(page.match(/'sha256-[^']{44}'/gu)).toHaveLength(3);
  expect(page).not.toMatch(/<(?:script|img|iframe|link)[^>]*(?:src|href)="(?!data:)/u);
  for (const holder of ["Mike Bostock", "Observable, Inc."])
    expect(page).toMatch(new RegExp(`<pre>[^]*${holder}`, "u"));
});
