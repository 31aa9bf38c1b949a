"""Manifests that load, by the thousand: the same seed gives the same text.

Each uses variables, defaults, templates, sweeps, references, anchors and merge keys, sugar and list forms,
comments, text over several lines and oddly spelled numbers, in a layout that nobody would choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

#: Scalars as they stand in a file, where any kind of value may stand.
ODD = (
    *("1.10", "1e-5", "0123", "0x1F", "0o17", "+1", "-0.0", ".5", "1_000", "true", "False"),
    *("12345678901234567890", "yes", "2026-11-21", "a b", "'q # q'", '"d\\n\\t\\u00e9"', "é漢", "a:b"),
    *("a#b", "-x", "'it''s'", "''", '" "', "obs://b/c/", "'${var.text}'", '"$${x} ${job.key}"'),
    *("'${var.number}'", "~x", "'*'", '"&"', "=", "NULL x"),
)
#: Texts, which must not read as anything else.
TEXTS = ("plain", "'single: quoted'", '"double # quoted"', "two words", "é", "'0123'", '"true"', "a#b")
LINES = (
    "one\ntwo",
    "one\n\n  two # no comment\nthree\n",
    "- a\n- b",
    "k: v\n\n\n",
    "  first is deeper\nthen not",
)
COMMENTS = ("# one", "#two: {", "#", "# - three", "# é")
Node = Any


@dataclass(frozen=True)
class Raw:
    """A scalar as it stands in the file."""

    text: str


@dataclass(frozen=True)
class Lines:
    """A text over several lines."""

    text: str


@dataclass(frozen=True)
class Anchored:
    """A node that others repeat by its name."""

    name: str
    node: Node


def manifest(seed: int) -> str:
    """One manifest."""
    rng = Random(seed)
    tree = _Manifest(rng).tree()
    return "\n".join(_Layout(rng).document(tree)) + "\n"


class _Manifest:
    """What one manifest says, as a tree whose mappings have their keys in any order."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def some(self, share: float) -> bool:
        return self.rng.random() < share

    def tree(self) -> dict[str, Node]:
        jobs = self.jobs()
        tree: dict[str, Node] = {
            "stack": Raw("vision"),
            "targets": {"local": {"kind": Raw("local")}},
            "variables": {
                "text": {"default": Raw(self.rng.choice(("plain", '"a b"')))},
                "number": {"default": Raw(self.rng.choice(("1.10", "1e-5", "7", "0123")))},
            },
            "defaults": self.defaults(),
            "jobs": jobs,
        }
        if "sweep" in jobs:
            tree["variables"]["rates"] = {"default": [Raw("0.1"), Raw("1e-2")], "description": Raw("'a # b'")}
        if "train" in jobs:
            tree["templates"] = {"base": self.part(), "gpu": {"extends": Raw("base"), **self.part()}}
        if self.some(0.3):
            tree["limits"] = {"lost_time": Raw("2h"), "reruns": Raw("7")}
        return self.shuffled(tree)

    def defaults(self) -> dict[str, Node]:
        return self.shuffled(
            {
                "spec": {"resource": {"flavor_id": Raw("gpu"), "node_count": Raw("1")}},
                "algorithm": self.shuffled(
                    {
                        "command": self.text(),
                        "engine": {"image_url": Raw("'swr/image:1'")},
                        **({"parameters": self.parameters()} if self.some(0.4) else {}),
                    }
                ),
            }
        )

    def jobs(self) -> dict[str, Node]:
        """The job whose output and anchor others repeat, then another one or two."""
        shared = Anchored("res", {"flavor_id": Raw("big"), "node_count": Raw(self.rng.choice("123"))})
        path = {"out": Raw(self.rng.choice(("obs://b/out/", "'obs://b/${var.number}/'")))}
        others = {"train": self.train, "sweep": self.sweep, "late": self.late, "gone": self.gone}
        chosen = self.rng.sample(tuple(others), self.rng.choice((1, 1, 1, 2)))
        return {
            "prepare": {"algorithm": {"outputs": self.named(path, "remote")}, "spec": {"resource": shared}},
            **{key: others[key]() for key in chosen},
        }

    def train(self) -> dict[str, Node]:
        return {
            "extends": self.rng.choice((Raw("gpu"), [Raw("base"), Raw("gpu")])),
            "algorithm": {"inputs": {"data": Raw("'${jobs.prepare.outputs.out}'")}, **self.algorithm()},
            "spec": {"resource": {"<<": Raw("*res"), "node_count": Raw("4")}},
            "description": self.text(),
        }

    def late(self) -> dict[str, Node]:
        return {"needs": [Raw("prepare")], "spec": {"resource": Raw("*res")}, **self.part()}

    def gone(self) -> dict[str, Node]:
        return {"state": Raw("absent"), "formerly": self.rng.choice((Raw("old"), [Raw("o1"), Raw("o2")]))}

    def sweep(self) -> dict[str, Node]:
        rates = self.rng.choice((Raw("'${var.rates}'"), [Raw("0.10"), Raw("1e-2")]))
        matrix: dict[str, Node] = {"lr": rates, "size": [Raw("8"), Raw("'big'")]}
        if self.some(0.5):
            matrix["include"] = [{"lr": Raw("5"), "size": Raw("1"), "note": Raw("x")}]
            matrix["exclude"] = [{"lr": Raw("0.1"), "size": Raw("big")}]
        return {
            "matrix": self.shuffled(matrix),
            "algorithm": {"parameters": self.named({"lr": Raw("'${matrix.lr}'")}, "value")},
            "lifecycle": {"on_failure": Raw("retry"), "rerun": Raw(self.rng.choice(("1.10", "'x'", "true")))},
        }

    def part(self) -> dict[str, Node]:
        part: dict[str, Node] = {}
        if self.some(0.6):
            part["algorithm"] = self.algorithm()
        if self.some(0.4):
            part["description"] = self.text()
        if self.some(0.3):
            part["raw"] = {"spec": {"extra": [Raw(self.rng.choice(("1.5", "true", "x"))), Raw("'a: b'")]}}
        return self.shuffled(part)

    def algorithm(self) -> dict[str, Node]:
        part: dict[str, Node] = {}
        if self.some(0.7):
            part["parameters"] = self.parameters()
        if self.some(0.5):
            part["environments"] = self.environments()
        return self.shuffled(part)

    def parameters(self) -> Node:
        names = self.rng.sample(("lr", "epochs", "a-b", "x_1", "Z"), self.rng.randint(1, 3))
        return self.named({name: self.value() for name in names}, "value")

    def environments(self) -> Node:
        found: dict[str, Node] = {name: self.value() for name in self.rng.sample("ABC", 1)}
        if self.some(0.3):
            found["SECRET"] = {"value": Raw("hunter2-hunter2"), "sensitive": Raw("true")}
        if self.some(0.5):
            return found
        return [
            self.shuffled({"name": Raw(name), **(one if isinstance(one, dict) else {"value": one})})
            for name, one in found.items()
        ]

    def named(self, members: Mapping[str, Node], value: str) -> Node:
        """Named values in the mapping form, or in one of the list forms."""
        if self.some(0.5):
            return dict(members)
        wrap = (lambda path: {"obs": {"obs_url": path}}) if value == "remote" else (lambda one: one)
        return [self.shuffled({"name": Raw(name), value: wrap(one)}) for name, one in members.items()]

    def value(self) -> Node:
        return Lines(self.rng.choice(LINES)) if self.some(0.2) else Raw(self.rng.choice(ODD))

    def text(self) -> Node:
        return Lines(self.rng.choice(LINES)) if self.some(0.4) else Raw(self.rng.choice(TEXTS))

    def shuffled(self, tree: dict[str, Node]) -> dict[str, Node]:
        keys = list(tree)
        self.rng.shuffle(keys)
        return {key: tree[key] for key in keys}


class _Layout:
    """How one manifest is written down."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def document(self, tree: Mapping[str, Node]) -> Iterator[str]:
        if self.rng.random() < 0.2:
            yield from ("# a comment at the top", "---")
        # The anchor has to stand before what repeats it.
        yield from self.mapping(tree, 0)
        if self.rng.random() < 0.2:
            yield "# and one at the end"

    def mapping(self, tree: Mapping[str, Node], indent: int) -> Iterator[str]:
        for key, node in tree.items():
            yield from self.between(indent)
            yield from self.entry(f"{' ' * indent}{self.key(key)}:", node, indent)

    def entry(self, head: str, node: Node, indent: int) -> Iterator[str]:
        """The lines of one key or dash, and of what stands behind it."""
        if isinstance(node, Anchored):
            head, node = f"{head} &{node.name}", node.node
        step = self.rng.randint(1, 4)
        if isinstance(node, Raw):
            yield f"{head}{' ' * self.rng.randint(1, 3)}{node.text}{self.comment()}"
        elif isinstance(node, Lines):
            yield from self.text(head, node.text, indent + step)
        elif not node or (self.rng.random() < 0.35 and not _holds_lines(node)):
            yield f"{head} {self.flow(node)}{self.comment()}"
        elif isinstance(node, Mapping):
            yield f"{head}{self.comment()}"
            yield from self.mapping(node, indent + step)
        else:
            yield f"{head}{self.comment()}"
            yield from self.items(node, indent + self.rng.randint(0, 3))

    def items(self, nodes: list[Node], indent: int) -> Iterator[str]:
        for node in nodes:
            yield from self.between(indent)
            if isinstance(node, Mapping) and not isinstance(node, Raw):
                first, *more = self.mapping_lines(node, indent + 2)
                yield f"{' ' * indent}- {first}"
                yield from more
            else:
                yield from self.entry(f"{' ' * indent}-", node, indent)

    def mapping_lines(self, tree: Mapping[str, Node], indent: int) -> list[str]:
        """A mapping whose first key stands behind a dash."""
        (key, node), *rest = tree.items()
        lines = list(self.entry(f"{' ' * indent}{key}:", node, indent))
        return [lines[0].lstrip(), *lines[1:], *self.mapping(dict(rest), indent)]

    def text(self, head: str, text: str, indent: int) -> Iterator[str]:
        is_deep = text.startswith(" ")
        style = self.rng.choice("|>") + (str(indent - (len(head) - len(head.lstrip()))) if is_deep else "")
        yield f"{head} {style}{self.rng.choice(('', '-', '+'))}"
        for line in text.split("\n"):
            yield f"{' ' * indent}{line}" if line else ""

    def flow(self, node: Node) -> str:
        space = " " * self.rng.randint(0, 2)
        if isinstance(node, Anchored):
            return f"&{node.name} {self.flow(node.node)}"
        if isinstance(node, Raw):
            return (
                node.text if not any(char in node.text for char in ",[]{}") or node.text[0] in "'\"" else "x"
            )
        if isinstance(node, Mapping):
            return "{" + f",{space}".join(f"{key}: {self.flow(one)}" for key, one in node.items()) + "}"
        return f"[{space}" + f", {space}".join(map(self.flow, node)) + "]"

    def key(self, key: str) -> str:
        return key if key == "<<" or self.rng.random() < 0.9 else self.rng.choice((f'"{key}"', f"'{key}'"))

    def comment(self) -> str:
        return f"{' ' * self.rng.randint(1, 4)}{self.rng.choice(COMMENTS)}" if self.rng.random() < 0.1 else ""

    def between(self, indent: int) -> Iterator[str]:
        while self.rng.random() < 0.1:
            yield self.rng.choice(
                ("", "", "  ", " " * self.rng.randint(0, indent) + self.rng.choice(COMMENTS))
            )


def _holds_lines(node: Node) -> bool:
    if isinstance(node, Anchored):
        return _holds_lines(node.node)
    if isinstance(node, Mapping):
        return any(map(_holds_lines, node.values()))
    return any(map(_holds_lines, node)) if isinstance(node, list) else isinstance(node, Lines)
