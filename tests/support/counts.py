#!/usr/bin/python3
"""Print `N passed, N failed, N skipped` of the JUnit files that are named, and the names of what failed before it."""

import sys
import xml.etree.ElementTree as xml

passed = failed = skipped = 0
for file in sys.argv[1:]:
    for case in xml.parse(file).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
            print("failed:", case.get("classname", ""), case.get("name"))
        elif "skipped" in kinds:
            skipped += 1
            print("skipped:", case.get("classname", ""), case.get("name"), case.find("skipped").get("message", ""))
        else:
            passed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
