"""The command palette: actions and tables that exist in this session, parameters, sessions and statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.binding import Binding, BindingType
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.actions import Action, Need, key_name
from pgtop_tune.tui.pages.registry import all_pages
from pgtop_tune.tui.scene.scene import SceneScreen

if TYPE_CHECKING:
    from pgtop_tune.tui.app import PgtopApp

Offered = Iterator[tuple[str, Callable[[], object]]]
"""What it is called and what runs."""
_CALLED: Final = 90
"""Characters of a query."""
_MOST: Final = 300
"""Sessions and statements that are searched."""


class Palette(CommandPalette):
    """Textual's palette; Ctrl+C closes it like every dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "escape", show=False, priority=True)]


class ActionCommands(Provider):
    """Finds things by their words; what is chosen runs on the screen the palette was opened from."""

    @property
    def _app(self) -> PgtopApp:
        return cast("PgtopApp", self.app)

    def _doing(self, screen: SceneScreen) -> Offered:
        """Actions and tables."""
        for action in screen.offered():
            if action.action != "app.command_palette":
                yield _shown(action), partial(self.app.run_action, action.action, screen)
        there = {key for key, _ in screen.page_names("").names}
        for page in all_pages():
            for table in page.tables if len(page.tables) > 1 and page.key in there else ():
                words = f"table of {table.title}  ({page.key} {page.title})"
                yield words, partial(self.app.run_action, f"app.look_at('{page.id}', '{table.id}')", screen)

    def _named(self, screen: SceneScreen) -> Offered:
        """What is looked for by its name, once a letter is typed: parameters, sessions, statements."""
        if any(Need.PARAMETERS in action.needs for action in screen.offered()):
            for knob in self._app.context.controls.knobs():
                yield f"parameter {knob.name}: {knob.why}", partial(self._app.show_parameter, knob.name)
        frame = screen.session.now
        activity = None if frame is None else sections.activity(frame)
        if activity is not None and not isinstance(activity, Unavailable):
            for backend in activity.backends[:_MOST]:
                who = one_line(f"{backend.usename or backend.backend_type}@{backend.datname or ''}".rstrip("@"), 60)
                words = f"session {backend.pid} {who} {backend.state or ''}: {one_line(backend.query or '', _CALLED)}"
                yield words, partial(self._app.show_row, "sessions", (backend.pid, backend.backend_start_ms))
        counters = None if frame is None else sections.statement_counters(frame)
        texts = None if frame is None else sections.statement_texts(frame)
        if counters is None or texts is None or isinstance(counters, Unavailable) or isinstance(texts, Unavailable):
            return
        query_of = {text.queryid: text.query for text in texts.texts}
        for entry in counters.statements[:_MOST]:
            if query := query_of.get(entry.queryid):
                yield f"statement {one_line(query, _CALLED)}", partial(self._app.show_row, "statements", entry.id)

    async def discover(self) -> Hits:
        """What can be done here, before a letter is typed."""
        if isinstance(self.screen, SceneScreen):
            for shown, act in self._doing(self.screen):
                yield DiscoveryHit(shown, act)

    async def search(self, query: str) -> Hits:
        """What resembles the letters typed."""
        if not isinstance(self.screen, SceneScreen):
            return
        matcher = self.matcher(query)
        for offered in (self._doing(self.screen), self._named(self.screen)):
            for shown, act in offered:
                score = matcher.match(shown)
                if score > 0:
                    # Not the matcher's own highlight, which reads foreign text as markup.
                    yield Hit(score, Content(shown), act, text=shown)


def _shown(action: Action) -> str:
    return f"{action.description}  ({', '.join(key_name(key) for key in action.keys)})"
