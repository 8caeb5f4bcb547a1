"""The package as text: its modules, and what each imports when it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "quorumlock"


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Everything but what only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from running(child)


def imports(parsed: ast.Module, module: str, *, is_package: bool = False) -> set[str]:
    """The full names of modules, or of names in them, that are imported anywhere in a module."""
    found: set[str] = set()
    for node in running(parsed):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, node.module] if node.module else parts)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def imported_modules(module: str) -> set[str]:
    """What a module of the package imports: modules of the package by their names, others by theirs."""
    is_package = MODULES[module].name == "__init__.py"
    result = set()
    for name in imports(tree(module), module, is_package=is_package):
        owner = name
        while owner.startswith("quorumlock") and owner not in MODULES:
            owner = owner.rpartition(".")[0]
        result.add(owner)
    return result
