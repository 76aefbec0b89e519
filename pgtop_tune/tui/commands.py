"""The command palette: every action of the table that exists in this session, and every table of every page."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from pgtop_tune.tui.actions import Action, key_name
from pgtop_tune.tui.pages.registry import all_pages
from pgtop_tune.tui.scene.scene import SceneScreen


def _tables() -> list[tuple[str, str]]:
    return [
        (f"table of {table.title}  ({page.key} {page.title})", f"app.look_at('{page.id}', '{table.id}')")
        for page in all_pages()
        for table in page.tables
        if len(page.tables) > 1
    ]


class ActionCommands(Provider):
    """Finds actions by their description; what is chosen runs on the screen the palette was opened from."""

    def _offered(self) -> list[tuple[str, str]]:
        """What it is called and what runs."""
        if not isinstance(self.screen, SceneScreen):
            return []
        actions = [each for each in self.screen.offered() if each.action != "app.command_palette"]
        return [*((_shown(each), each.action) for each in actions), *_tables()]

    async def discover(self) -> Hits:
        """Everything, before a letter is typed."""
        for shown, action in self._offered():
            yield DiscoveryHit(shown, partial(self.app.run_action, action, self.screen))

    async def search(self, query: str) -> Hits:
        """What resembles the letters typed."""
        matcher = self.matcher(query)
        for shown, action in self._offered():
            score = matcher.match(shown)
            if score > 0:
                yield Hit(
                    score, matcher.highlight(shown), partial(self.app.run_action, action, self.screen), text=shown
                )


def _shown(action: Action) -> str:
    return f"{action.description}  ({', '.join(key_name(key) for key in action.keys)})"
