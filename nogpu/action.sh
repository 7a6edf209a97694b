#!/usr/bin/env bash
# The second step of action.yml: runs a program, marks the lines of faults, and sets the output `verdict`.
set -u
# shellcheck disable=SC2086  # options and program are words
python -m nogpu "$COMMAND" --json "$JSON" $OPTIONS $PROGRAM
code=$?
[ -e "$JSON" ] || exit $code
python - "$JSON" "$GITHUB_OUTPUT" <<'PYTHON'
import json, os, sys

with open(sys.argv[1]) as file:
    found = json.load(file)
for fault in found["faults"]:
    place = ""
    if fault["file"]:
        place = f" file={os.path.relpath(fault['file'])},line={fault['line']}"
    text = fault["reason"].replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::error{place}::{fault['kernel']}: {text}")
with open(sys.argv[2], "a") as file:
    file.write(f"verdict={found['verdict']}\n")
PYTHON
exit $code
