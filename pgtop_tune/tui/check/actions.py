"""The key of the check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.controls import Services
    from pgtop_tune.tui.parameters.actions import ParameterActions


class CheckActions:
    """Opens the check, which looks at once.

    Args:
        context: The application.
        parameters: What the check finds is changed there.
    """

    def __init__(self, context: AppContext, parameters: ParameterActions) -> None:
        self._context = context
        self._parameters = parameters

    def open(self, services: Services) -> None:
        """Opens the dialog."""
        from pgtop_tune.tui.check.dialog import CheckDialog

        if services.checks is not None:
            dialog = CheckDialog(
                control=services.checks,
                client=self._context.client,
                changes=self._parameters.changes,
                scope=self._parameters.panel,
                session=self._context.live,
                glyphs=self._context.glyphs,
            )
            self._context.app.push_screen(dialog)
