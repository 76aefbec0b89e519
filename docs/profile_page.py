"""The page of load profiles, from the files that come with the program."""

from __future__ import annotations

from typing import Final

from docs.markdown import plain, table
from pgtop_tune.bench.datasets.bus import table_sizes
from pgtop_tune.bench.profiles import KEYS, SHIPPED, Profile, load_profiles, read_script

_SHOWN_TICKETS: Final = 6_000_000


def profiles() -> str:
    """Every profile with its scripts, what a profile file may say, and the numbers a data set gives."""
    known = load_profiles((SHIPPED,)).by_name
    parts = [
        "# Load profiles\n",
        "The loads that come with the program, and the keys of your own profile files. `pgtop-tune bench list`\n"
        "shows these and your own; `pgtop-tune bench show ticket-read` shows scripts with their hashes and the exact\n"
        "pgbench line.\n",
        table(
            ("profile", "data set", "clients per core", "protocol", "description"),
            [
                (f"`{each.name}`", each.dataset, str(each.clients_per_core), each.protocol, plain(each.description))
                for each in known.values()
            ],
        ),
    ]
    parts += [_scripts(each) for each in known.values() if each.scripts]
    parts += [
        "## Keys of a profile file\n",
        table(
            ("key", "value", "required"),
            [(f"`{name}`", plain(key.expected), "yes" if key.required else "") for name, key in KEYS.items()],
        ),
        "A profile has either `builtin` or at least one `[[script]]` table. A `[[script]]` table has `file`,\n"
        "relative to the profile, and `weight`. `[variables]` become `-D`; `from_dataset` names the variables\n"
        "whose values come from the data set. Variables given with the load override both.\n",
        "## Numbers of the data sets\n",
        "pgbench's tables: `scale`, `accounts`. The bus company's, here for six million tickets:\n",
        table(
            ("variable", "value"),
            [(f"`{name}`", f"{number}") for name, number in table_sizes(_SHOWN_TICKETS).items()],
        ),
    ]
    return "\n".join(parts)


def _scripts(profile: Profile) -> str:
    parts = [f"## {profile.title}\n", f"Profile `{profile.name}`. {plain(profile.description)}\n"]
    weights = sum(script.weight for script in profile.scripts)
    for script in profile.scripts:
        share = f", {100 * script.weight / weights:.0f} % of the transactions" if len(profile.scripts) > 1 else ""
        parts.append(f"`{script.file.name}`{share}:\n\n```sql\n{read_script(script.file).text.rstrip()}\n```\n")
    return "\n".join(parts)
