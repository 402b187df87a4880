#!/usr/bin/env python3
"""Instructions of the inner loops of arm64 kernels, counted from an object file, and their cycles by llvm-mca's models.

What can be said without the machine: python bench/inner_loops.py OBJECT... --function REGEX --mcpu neoverse-n1,apple-m1
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
from typing import NamedTuple

# Multiply-adds of an int16 activation: a byte product is half of one, as an activation is two bytes.
MACS = {"smull": 4, "smull2": 4, "smlal": 4, "smlal2": 4, "sdot": 8, "smmla": 16}


class Instruction(NamedTuple):
    address: int
    name: str
    operands: str


class Loop(NamedTuple):
    body: list[Instruction]

    @property
    def macs(self) -> int:
        return sum(MACS.get(i.name, 0) for i in self.body)


def functions(path: str, objdump: str) -> dict[str, list[Instruction]]:
    out = subprocess.run(
        [objdump, "-dC", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, list[Instruction]] = {}
    body: list[Instruction] = []
    for line in out.splitlines():
        if name := re.match(r"[0-9a-f]+ <(.*)>:", line):
            body = found.setdefault(name[1], [])
        elif code := re.match(r"\s+([0-9a-f]+):\s+(\S+)\s*(.*)", line):
            body.append(Instruction(int(code[1], 16), code[2], code[3]))
    return found


def inner_loops(body: list[Instruction]) -> list[Loop]:
    """Between a backward branch and its target, with no other such pair inside."""
    place = {i.address: n for n, i in enumerate(body)}
    spans = []
    for n, i in enumerate(body):
        target = re.search(r"([0-9a-f]+) <", i.operands)
        if target and re.match(r"b\.|b$|cbn?z|tbn?z", i.name) and place.get(int(target[1], 16), n + 1) <= n:
            spans.append((place[int(target[1], 16)], n))
    return [
        Loop(body[a : b + 1])
        for a, b in spans
        if not any(other != (a, b) and a <= other[0] and other[1] <= b for other in spans)
    ]


def cycles(loop: Loop, mcpu: str, mca: str) -> float:
    """Cycles of a turn in a long run. Branches and addresses are left out: they have no target in a listing."""
    text = "\n".join(f"{i.name} {re.sub('//.*', '', i.operands)}" for i in loop.body if "<" not in i.operands)
    command = [mca, "-mtriple=aarch64-linux-gnu", f"-mcpu={mcpu}", "-mattr=+dotprod,+i8mm", "-iterations=200"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    total = re.search(r"Total Cycles:\s+(\d+)", out)
    assert total
    return int(total[1]) / 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("objects", nargs="+")
    parser.add_argument("--function", default=".", help="pattern of the functions' names")
    parser.add_argument("--mcpu", default="", help="llvm-mca's processors, with commas between")
    parser.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    parser.add_argument("--mca", default="llvm-mca-19")
    args = parser.parse_args()
    for path in args.objects:
        print(path)
        for name, body in functions(path, args.objdump).items():
            loops = [x for x in inner_loops(body) if x.macs]
            if not loops or not re.search(args.function, name):
                continue
            print(
                " ",
                re.sub(r"\(anonymous namespace\)::|strata::cpu::|\(.*", "", name.replace("(anonymous namespace)", "")),
            )
            for loop in loops:
                n, counts = len(loop.body), collections.Counter(i.name for i in loop.body)
                products = sum(counts[p] for p in MACS)
                line = f"    {n} instructions, {products} of them products, {loop.macs} multiply-adds:"
                line += f" {n / loop.macs:.3f} each"
                for mcpu in filter(None, args.mcpu.split(",")):
                    line += f"; {mcpu} {loop.macs / cycles(loop, mcpu, args.mca):.1f} a cycle"
                print(line)


if __name__ == "__main__":
    main()
