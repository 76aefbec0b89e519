"""A Textual program that does nothing but repaint a full screen of plain lines once a second: the yardstick."""

from __future__ import annotations

import time

from textual.app import App, ComposeResult
from textual.strip import Segment, Strip
from textual.widget import Widget


class Page(Widget):
    DEFAULT_CSS = "Page { width: 100%; height: 100%; }"

    def on_mount(self) -> None:
        self.set_interval(1.0, self.refresh)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        text = f"ready {y:3} {time.monotonic_ns()} " * (width // 24 + 1)
        return Strip([Segment(text[:width])], width)


class Bare(App[None]):
    def compose(self) -> ComposeResult:
        yield Page()


if __name__ == "__main__":
    Bare().run(mouse=False)
