"""Prints the names of cases that failed, without those that are known to."""

import json
import pathlib
import sys

known = pathlib.Path(__file__).with_name("known-failures").read_text().split("\n")
known = {line.split("#")[0].strip() for line in known}
results = json.loads(pathlib.Path(sys.argv[1]).read_text())
print(" ".join(r["case"] for r in results if r["failures"] and r["case"] not in known))
