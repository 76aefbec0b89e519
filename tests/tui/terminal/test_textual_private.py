"""Private names of Textual: each is still there, and only one module uses them."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual.app import App

import pgtop_tune
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.terminal.textual_private import DiscreetApp, JobControlDriver, OpensAtOnce
from pgtop_tune.tui.widgets.lines import UNICODE, Line

PACKAGE = Path(pgtop_tune.__file__).parent
HOME = PACKAGE / "tui/terminal/textual_private.py"


@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        ("textual.app", "App", "_driver"),
        ("textual.app", "App", "_begin_update"),
        ("textual.app", "App", "_end_update"),
        ("textual.app", "App", "_handle_exception"),
        ("textual.app", "App", "_fatal_error"),
        ("textual.app", "App", "_exit_renderables"),
        ("textual.app", "App", "_close_messages_no_wait"),
        ("textual.screen", "Screen", "_compositor"),
        ("textual.screen", "Screen", "_layout_required"),
        ("textual.screen", "Screen", "_repaint_required"),
        ("textual.screen", "Screen", "_dirty_widgets"),
        ("textual.screen", "Screen", "_on_timer_update"),
        ("textual.screen", "Screen", "_compositor_refresh"),
        ("textual._compositor", "Compositor", "render_strips"),
        ("textual._compositor", "Compositor", "visible_widgets"),
        ("textual.driver", "Driver", "_debug"),
        ("textual.driver", "Driver", "_auto_restart"),
        ("textual.drivers.linux_driver", "LinuxDriver", "_key_thread"),
        ("textual.drivers.linux_driver", "LinuxDriver", "_writer_thread"),
        ("textual.drivers.linux_driver", "LinuxDriver", "_must_signal_resume"),
        ("textual.drivers.linux_driver", "LinuxDriver", "_sigtstp_application"),
        ("textual.drivers.linux_driver", "LinuxDriver", "_sigcont_application"),
        ("textual.drivers._writer_thread", "WriterThread", "_queue"),
        ("textual._xterm_parser", "XTermParser", "feed"),
        ("textual._xterm_parser", "XTermParser", "tick"),
        ("textual._parser", "ParseError", "__init__"),
    ],
)
def test_textual_still_has_the_private_name(module: str, owner: str, name: str) -> None:
    missing = f"Textual {version('textual')} has no {module}.{owner}.{name} any more: mend tui/terminal/textual_private"
    try:
        found = getattr(importlib.import_module(module), owner)
    except (ImportError, AttributeError):
        pytest.fail(missing)
    assert hasattr(found, name) or name in _private_names(found), missing


def test_hooks_override_what_textual_calls() -> None:
    for ours in (DiscreetApp, JobControlDriver, OpensAtOnce):
        hooks = [
            name
            for name, value in vars(ours).items()
            if name.startswith("_") and name != "__init__" and inspect.isfunction(value)
        ]
        assert hooks
        calls = "".join(inspect.getsource(base) for base in ours.__mro__[1:] if base.__module__.startswith("textual"))
        assert [name for name in hooks if f"self.{name}" not in calls] == []


class Box(Dialog[None]):
    """Notes what each of its pictures shows."""

    def __init__(self) -> None:
        super().__init__("box", UNICODE)
        self.words = "what it is opened for"
        self.pictures: list[str] = []
        update = self._compositor.render_update

        def noted(**options: Any) -> Any:
            self.pictures.append("".join(strip.text for strip in self._compositor.render_strips()))
            return update(**options)

        self._compositor.render_update = noted  # type: ignore[method-assign, assignment]

    def content(self, cells: int) -> list[Line]:
        return [((self.words, ""),)]


async def test_the_first_picture_of_a_dialog_has_its_content() -> None:
    app = App[None]()
    async with app.run_test(size=(60, 10)) as pilot:
        box = Box()
        await app.push_screen(box)
        await pilot.pause()
        assert box.pictures
        assert all("what it is opened for" in picture for picture in box.pictures)
        box.words = "something else"
        box.repaint()
        await pilot.pause()
        assert "something else" in box.pictures[-1]


def test_no_other_module_uses_a_private_name_of_textual() -> None:
    assert [use for path in sorted(PACKAGE.glob("tui/**/*.py")) if path != HOME for use in _uses(path)] == []


def _uses(path: Path) -> Iterator[str]:
    """Imports of private modules, and attributes of subclasses of Textual's classes that Textual has as its own."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual._"):
            yield f"{path}:{node.lineno} {node.module}"
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        bases = [base for base in vars(module)[node.name].__mro__ if base.__module__.startswith("textual")]
        theirs = frozenset[str]().union(*map(_private_names, bases))
        for use in ast.walk(node):
            name = use.attr if isinstance(use, ast.Attribute) else use.name if isinstance(use, ast.FunctionDef) else ""
            if name in theirs:
                yield f"{path}:{use.lineno} {node.name}.{name}"


@cache
def _private_names(owner: type) -> frozenset[str]:
    """Methods and attributes of `self` with one underscore in front, as the class itself defines them."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner)))
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    found |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return frozenset(name for name in found if name.startswith("_") and not name.startswith("__"))
