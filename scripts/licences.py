#!/usr/bin/env python3
"""Checks the licences and sources of everything that is linked or runs in the build, by the rules of deny.toml.

It reads what each crate says of itself (`cargo metadata`) and needs nothing to be compiled. `make test-all` also runs
cargo-deny, which looks into licence files, too.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with the allowed licences.

    Source: SPDX specification 2.3, annex D: WITH binds first, then AND, then OR.
    """
    words = re.findall(r"[()]|[^\s()/]+", expression.replace("/", " OR "))

    def either() -> bool:
        found = both()
        while words and words[0] == "OR":
            words.pop(0)
            found = both() or found
        return found

    def both() -> bool:
        found = one()
        while words and words[0] == "AND":
            words.pop(0)
            found = one() and found
        return found

    def one() -> bool:
        word = words.pop(0)
        if word == "(":
            found = either()
            assert words.pop(0) == ")", expression
            return found
        if words and words[0] == "WITH":
            word = " ".join([word, words.pop(0), words.pop(0)])
        return word in allowed

    found = either()
    assert not words, expression
    return found


def main() -> int:
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed = set(rules["licenses"]["allow"])
    exceptions = {rule["crate"]: set(rule["allow"]) for rule in rules["licenses"]["exceptions"]}
    banned = {rule["crate"] for rule in rules["bans"]["deny"]}
    wrong: list[str] = []
    seen: set[str] = set()
    for target in rules["graph"]["targets"]:
        command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform", target]
        metadata = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
        used = {node["id"] for node in metadata["resolve"]["nodes"]}
        for package in metadata["packages"]:
            if package["id"] not in used or package["id"] in seen:
                continue
            seen.add(package["id"])
            name = f"{package['name']} {package['version']}"
            licence = package["license"]
            if not licence:
                wrong.append(f"{name} names no licence")
            elif not is_allowed(licence, allowed | exceptions.get(package["name"], set())):
                wrong.append(f"{name} has the licence {licence}")
            if package["source"] not in (None, REGISTRY):
                wrong.append(f"{name} is from {package['source']}")
            if package["name"] in banned:
                wrong.append(f"{name} is not to be used; deny.toml says why")
    print(f"{len(seen)} crates, {len(wrong)} of them not as deny.toml has it")
    for line in wrong:
        print(f"error: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
