"""The measures of the product's shape. Each has a limit, which may only fall: lower it when the figure falls."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("proto", "common", "device", "cloud")
SMALL = 60  # lines
MANY = 10  # attributes of a class

NAMES_FOR_TWO_THINGS = 1  # main
FUNCTIONS_THAT_PASS_ON = 159
SMALL_MODULES = 24
CLASSES_WITH_MANY_ATTRIBUTES = 31


@cache
def modules() -> Mapping[str, ast.Module]:
    """The syntax trees of the product's modules, by path."""
    paths = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 100, "the tree was not found"
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def lines_of(path: str) -> int:
    return (ROOT / path).read_text("utf-8").count("\n")


def names_for_two_things(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Top-level classes and public functions of one name that several modules define."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            match node:
                case ast.ClassDef(name=name):
                    homes[name].append(path)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_"):
                    homes[name].append(path)
    return {name: paths for name, paths in homes.items() if len(set(paths)) > 1}


def functions_that_pass_on(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Functions that only call another one, with parameters and attributes as they are."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _passes_on(node):
                yield f"{path}: {node.name}"


def _passes_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    match body:
        case [ast.Return(value=value) | ast.Expr(value=value)]:
            call = value.value if isinstance(value, ast.Await) else value
        case _:
            return False
    if not isinstance(call, ast.Call) or (function.name.startswith("__") and function.name.endswith("__")):
        return False
    return all(map(_is_plain, [call.func, *call.args, *(each.value for each in call.keywords)]))


def _is_plain(node: ast.expr) -> bool:
    """Whether an expression is a name, or an attribute of an attribute of a name."""
    while isinstance(node, (ast.Attribute, ast.Starred)):
        node = node.value
    return isinstance(node, ast.Name)


def small_modules(trees: Mapping[str, ast.Module]) -> list[str]:
    """Modules that are no package and no entry point, and have few lines."""
    return [path for path in trees if not path.endswith(("__init__.py", "__main__.py")) and lines_of(path) < SMALL]


def classes_with_many_attributes(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Classes whose methods set many attributes of `self`."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and len(_attributes(node)) > MANY:
                yield f"{path}: {node.name}"


def _attributes(node: ast.ClassDef) -> set[str]:
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def test_a_name_stands_for_one_thing() -> None:
    found = names_for_two_things(modules())
    assert len(found) <= NAMES_FOR_TWO_THINGS, found


def test_functions_do_work() -> None:
    found = list(functions_that_pass_on(modules()))
    assert len(found) <= FUNCTIONS_THAT_PASS_ON, found


def test_modules_have_a_size() -> None:
    found = small_modules(modules())
    assert len(found) <= SMALL_MODULES, found


def test_classes_have_few_attributes() -> None:
    found = list(classes_with_many_attributes(modules()))
    assert len(found) <= CLASSES_WITH_MANY_ATTRIBUTES, found


def test_what_is_counted() -> None:
    """Each measure sees what it is for, and not its neighbours."""
    source = '''
class Part:
    """Both modules have one."""
    def __init__(self, a): self.a = self.b = self.c = self.d = self.e = self.f = self.g = self.h = self.i = self.j = a
    def grown(self): self.k = 1
    def passed(self, a):
        """With a docstring."""
        return self.a.passed(a, kind=self.b)
    async def awaited(self, *many): await self.a(*many)
    def __enter__(self): return self.a.open(self.b)
    def works(self, a): return self.a.passed(a + 1)
    def also(self, a): return self.a.passed(a, 1)

def _own(a): return a

def shared(): pass
'''
    trees = {
        "a.py": ast.parse(source),
        "b.py": ast.parse("class Part: pass\ndef _own(): pass\nasync def shared(): pass"),
    }
    assert sorted(names_for_two_things(trees)) == ["Part", "shared"]
    assert list(functions_that_pass_on(trees)) == ["a.py: passed", "a.py: awaited"]
    assert list(classes_with_many_attributes(trees)) == ["a.py: Part"]
    fewer = {"a.py": ast.parse(source.replace("self.k = 1", "self.j = 1"))}
    assert list(classes_with_many_attributes(fewer)) == []
