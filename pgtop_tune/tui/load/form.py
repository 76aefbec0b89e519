"""The load as a small form: what keys do to it, the spec it stands for, and how it is drawn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.model.bench import LoadSpec, ProfileSummary
from pgtop_tune.runtime.load_control import DatasetFound
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.dialogs.form import ChoiceField, Form, NumberField
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line

PROTOCOLS: Final = ("prepared", "extended", "simple")
_MEANS: Final = "mean latency of each statement (-r)"
_ERRORS: Final = (("end", "an error ends its client"), ("continue", "an error counts as failed (pgbench 19)"))
_STATEMENTS: Final = (("no", _MEANS), ("yes", _MEANS))


class LoadForm:
    """Fields of a load, and the data set its profile needs.

    Args:
        profiles: What can be run; may be empty while they are being asked for.
        spec: What the form starts with; what it has no field for stays as it is.

    Attributes:
        datasets: As the database has them; empty until that is known.
    """

    def __init__(self, profiles: Sequence[ProfileSummary], spec: LoadSpec) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._base = spec
        self.datasets: tuple[DatasetFound, ...] = ()
        self.profile = ChoiceField("profile", tuple((each.name, each.title) for each in profiles))
        self.clients = NumberField("clients", "+ doubles, - halves")
        self.threads = NumberField("threads", "of pgbench", empty="as many as cores")
        self.duration = NumberField("time s", "", empty="until stopped")
        self.rate = NumberField("rate /s", "transactions per second", empty="unlimited", fractions=True)
        self.limit = NumberField("limit ms", "slower are counted; late are skipped", empty="none", fractions=True)
        self.protocol = ChoiceField("protocol", tuple((each, "") for each in PROTOCOLS))
        self.tries = NumberField("tries", "if serialization fails; 0 no limit", empty="once")
        self.errors = ChoiceField("errors", _ERRORS)
        self.statements = ChoiceField("statements", _STATEMENTS)
        self._form = Form(
            (
                self.profile, self.clients, self.threads, self.duration, self.rate, self.limit, self.protocol,
                self.tries, self.errors, self.statements,
            )
        )  # fmt: skip
        self.fill(spec)

    def fill(self, spec: LoadSpec) -> None:
        """Shows this spec."""
        self._base = spec
        self.profile.choose(spec.profile)
        self.clients.fill(spec.clients)
        self.threads.fill(spec.threads or None)
        self.duration.fill(spec.duration_s)
        self.rate.fill(spec.rate_per_s)
        self.limit.fill(spec.latency_limit_ms)
        self.protocol.choose(spec.protocol)
        self.tries.fill(spec.max_tries)
        self.errors.index = int(spec.continue_on_error)
        self.statements.index = int(spec.per_statement)

    def spec(self) -> LoadSpec:
        """What the form says.

        Raises:
            UsageProblem: A field does not hold what it should.
        """
        duration, tries = self.duration.number(1), self.tries.number()
        return replace(
            self._base,
            profile=self.profile.value,
            clients=int(self.clients.number(1) or 1),
            threads=int(self.threads.number() or 0),
            duration_s=None if duration is None else int(duration),
            rate_per_s=self.rate.number(),
            latency_limit_ms=self.limit.number(),
            protocol=self.protocol.value,
            max_tries=None if tries is None else int(tries),
            continue_on_error=bool(self.errors.index),
            per_statement=bool(self.statements.index),
            transactions=self._base.transactions if duration is None else None,
        )

    @property
    def dataset(self) -> str:
        """The data set that the chosen profile needs; "" for none."""
        profile = self._profiles.get(self.profile.value)
        return "" if profile is None else profile.dataset

    def press(self, key: str, character: str | None) -> bool:
        """Moves between fields, or types into the one in focus.

        Returns:
            Whether the key meant something here.
        """
        before = self.profile.value
        taken = self._form.press(key, character)
        if taken and self.profile.value != before:
            self._suggest(self._profiles[self.profile.value])
        return taken

    def discard(self) -> bool:
        """Takes back what is being typed; see `Form.discard`."""
        return self._form.discard()

    @property
    def typing(self) -> bool:
        """Whether a value is being typed."""
        return self._form.typing

    def paste(self, text: str) -> None:
        """A number from the clipboard."""
        self._form.focused.paste(text)

    def _suggest(self, profile: ProfileSummary) -> None:
        """Another profile brings its own idea of clients and protocol."""
        self.clients.fill(profile.clients)
        if profile.protocol in PROTOCOLS:
            self.protocol.choose(profile.protocol)

    def lines(self, glyphs: Glyphs) -> list[Line]:
        """One line per field, and below the profile what it runs on."""
        profile, *others = self._form.lines(glyphs)
        return [profile, *self._dataset_line(), *others]

    def _dataset_line(self) -> list[Line]:
        found = next((each for each in self.datasets if each.name == self.dataset), None)
        if found is None:
            return []
        return [(("  data set    ", "label"), ("  ", PLAIN), _dataset_words(found))]


def _dataset_words(found: DatasetFound) -> tuple[str, str]:
    what = one_line(found.found, 40)
    if not found.problem:
        return (f"{what} (found)", "good") if what else (f"needs the {found.name} data set: i creates it", "warning")
    problem = one_line(found.problem, 60)
    return f"{what}: {problem}: i creates it" if what else problem, "warning"
