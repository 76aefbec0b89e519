"""The password the server asks for: masked while it is typed, a Secret from the moment it is complete."""

from __future__ import annotations

from pgtop_tune.secret import Secret
from pgtop_tune.tui.dialogs.prompt import PromptDialog
from pgtop_tune.tui.widgets.glyphs import Glyphs


class PasswordDialog(PromptDialog[Secret]):
    """Returns the password, None on Escape.

    Args:
        who: Whom it is for, as the server says it: "bench@db1:5432". Foreign text.
    """

    def __init__(self, who: str, glyphs: Glyphs) -> None:
        hint = "It stays in memory for this session only, and is never written."
        super().__init__(f"password for {who}", hint, Secret, glyphs, masked=True)
