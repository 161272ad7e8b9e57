// Prints `PASSED FAILED` from vitest's JSON report: `node tools/count-tests.mjs REPORT`. A test that was skipped did not
// pass, and a file that broke before its first test is one failure. Without a report: exit code 1, nothing printed.
import { readFileSync } from "node:fs";

let report;
try {
  report = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8"));
} catch (error) {
  console.error(`no test report: ${error.message}`);
  process.exit(1);
}
const brokenFiles = report.testResults.filter(
  ({ status, assertionResults }) => status !== "passed" && assertionResults.length === 0,
);
console.log(report.numPassedTests, report.numTotalTests - report.numPassedTests + brokenFiles.length);
