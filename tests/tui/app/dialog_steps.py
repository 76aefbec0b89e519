"""Steps of an operator in the parameter dialog."""

from __future__ import annotations

from tests.support.screens import Rig


async def opened(rig: Rig) -> None:
    await rig.press("p")
    await rig.sees("synchronous_commit")


async def at(rig: Rig, name: str) -> None:
    """Narrows the list to one parameter."""
    await rig.press("slash", "ctrl+u")
    rig.paste(name)
    await rig.sees(f"/{name}")
    await rig.press("enter")
    await rig.sees("Enter edit")


async def applied(rig: Rig, value: str) -> None:
    """Types a value for the selected parameter, applies and keeps it."""
    await rig.press("enter")
    await rig.type(value)
    await rig.press("enter")
    await rig.sees(f"= '{value}'")
    await rig.press("a")
    await rig.sees(f"is now {value}")
    await rig.press("Y")
    await rig.sees("confirmed: ")
