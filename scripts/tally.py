"""Adds up what the phases of `scripts/test.sh` ran.

Reads the folder of results: `phases` (name, seconds, exit code), `NAME.log`, and `NAME.junit.xml` where the
phase's runner writes one. A phase without tests of its own (format, clippy) counts as one. Prints a table, the
tests that failed with the first line of their reasons, so that the end of a long log tells what is wrong, and,
last, `N passed, N failed`; ends with code 1 if anything failed.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

FAILURES_MAX = 20
REASON_MAX = 300
CARGO_FAILURE = re.compile(r"^test (.+) \.\.\. FAILED$", re.MULTILINE)
CARGO_LINE = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


def tests_of(*, folder: pathlib.Path, name: str, code: int) -> tuple[int, int, int, list[str]]:
    """Passed, failed and skipped tests of one phase; and of the failed a line each, with why where the report has it."""
    report = folder / f"{name}.junit.xml"
    passed = failed = skipped = 0
    failures = []
    if report.exists():
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            reasons = [*case.findall("failure"), *case.findall("error")]
            if reasons:
                failed += 1
                said = (reasons[0].get("message") or reasons[0].text or "").strip().partition("\n")[0]
                failures.append(f"{case.get('classname')}: {case.get('name')}: {said}"[:REASON_MAX])
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    else:
        log = (folder / f"{name}.log").read_text(errors="replace")
        failures = CARGO_FAILURE.findall(log)
        for result in CARGO_LINE.finditer(log):
            passed += int(result[1])
            failed += int(result[2])
            skipped += int(result[3])
        if not passed and not failed:
            passed = int(code == 0)
    if code != 0 and failed == 0:
        failed = 1
    return passed, failed, skipped, failures


def main(folder: pathlib.Path) -> int:
    """Prints the table of the results in `folder`; returns the exit code."""
    passed = failed = skipped = seconds = 0
    failures = []
    print(f"\n{'phase':<12} {'seconds':>8} {'passed':>7} {'failed':>7} {'skipped':>8}")
    for line in (folder / "phases").read_text().splitlines():
        name, took, code = line.split("\t")
        *counts, why = tests_of(folder=folder, name=name, code=int(code))
        print(f"{name:<12} {took:>8} {counts[0]:>7} {counts[1]:>7} {counts[2]:>8}")
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
        failures += [f"{name}: {failure}" for failure in why]
        seconds += int(took)
    print(f"{'all':<12} {seconds:>8} {passed:>7} {failed:>7} {skipped:>8}")
    for failure in failures[:FAILURES_MAX]:
        print(f"failed: {failure}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
