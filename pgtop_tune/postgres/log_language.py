"""Languages of the server's log: the server's own message catalogue, and error codes. Pure.

Source: chapter "Localization"; elog.c (send_message_to_server_log) for the parts of a line; manual of GNU gettext, "The
Format of GNU MO Files".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import Final

from msgspec import Struct

from pgtop_tune.postgres.server.encodings import decoder

SEVERITIES: Final = ("DEBUG", "INFO", "NOTICE", "LOG", "WARNING", "ERROR", "FATAL", "PANIC")
"""Severities, the most severe last: Georgian has one word for NOTICE and WARNING."""
_ADDENDA: Final = ("DETAIL", "HINT", "STATEMENT", "QUERY", "CONTEXT", "LOCATION", "BACKTRACE")
_ABOUT_THE_SERVER: Final = re.compile(
    r"checkpoint|restartpoint|automatic |autovacuum|database system|starting|listening|received|shutting down|aborting"
    r"|redo |recovery|consistent|entering standby|started streaming|streaming|replication|logical |standby|selected"
    r"|archiv|restored|parameter |configuration|temporary file|process \d+ |server process|terminating|all server"
    r"|background worker|invalid|unexpected|out of|could not|oldest|multixact|transaction ID|skipping|invalidating"
)
"""Beginnings of LOG entries that are about the server and not about one client's statement or connection."""
_ABOUT_A_CLIENT: Final = re.compile(r"statement: |duration: |execute |parse |bind |fastpath |connection |disconnection")
"""Beginnings of LOG entries that quote a statement or are about a client."""
_NO_LANGUAGE: Final = frozenset({"", "C", "POSIX"})
_LETTERS: Final = (
    *("а=a", "б=b", "в=v", "г=g", "д=d", "е=e", "ё=yo", "ж=zh", "з=z", "и=i", "й=j", "к=k", "л=l", "м=m", "н=n", "о=o"),
    *("п=p", "р=r", "с=s", "т=t", "у=u", "ф=f", "х=x", "ц=cz", "ч=ch", "ш=sh", "щ=shh", "ъ=``", "ы=y`", "ь=`", "э=e`"),
    *("ю=yu", "я=ya", "і=i", "ї=yi", "є=ye", "ґ=g`"),
)
_CYRILLIC: Final = str.maketrans(
    {letter: latin for pair in _LETTERS for letter, latin in (pair.split("="), pair.upper().split("="))}
    | {"«": "<<", "»": ">>"}
)
"""Transliteration by the C library of letters that ASCII lacks (GOST 7.79); others become "?"."""
_LITTLE, _BIG = b"\xde\x12\x04\x95", b"\x95\x04\x12\xde"
_HEADER: Final = 20
_SHORTEST_HEAD: Final = 4
_PREFIX_ESCAPES: Final[Mapping[str, str]] = {
    "e": r"(?P<code>[0-9A-Z]{5})",
    "l": r"(?P<number>\d+)",
    "p": r"\d+",
    "P": r"\d*",
    "c": r"[0-9a-f]+\.[0-9a-f]+",
    "i": r"\S.{0,80}?",
    "n": r"\d+\.\d+",
    "Q": r"-?\d+",
    "x": r"\d+",
    "v": r"[\d/]*",
    "%": "%",
}
"""Patterns of those escapes of log_line_prefix that have a known form; the others are foreign text."""
_ESCAPE: Final = re.compile(r"%(?P<width>-?\d+)?(?P<kind>[A-Za-z%])|(?P<literal>[^%]+)|%")
_CONVERSION: Final = re.compile(r"%(?:(?P<number>\d+)\$)?[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z)?[a-zA-Z%]")
_PER_CENT: Final = "\x01"
_SHORTEST_FORM: Final = 4
_FOREIGN_WORD: Final = r"(?P<word>[^\s:][^:]{0,40}?)\s?:  "


class LogLanguage:
    """Language of a log, which tells the kind of each line.

    Attributes:
        severities: PostgreSQL's English words by the words of the log, in the form of csvlog.
        marked: Pattern of a line of stderr with known words: groups prefix, mark and message.
        kinds: PostgreSQL's English words by the text before the message, including colon and blanks.
        prefixed: Pattern of a line of stderr by its prefix, in any language: groups prefix, word and message, and code
            and number where log_line_prefix has them; None without log_line_prefix.
    """

    def __init__(
        self,
        *catalogues: Mapping[str, str],
        encodings: Sequence[str] = (),
        line_prefix: str | None = None,
    ) -> None:
        """Know English and the languages of some catalogues.

        Args:
            catalogues: Results of `read_catalogue`.
            encodings: Encodings of the server's databases, in which sessions write their lines.
            line_prefix: log_line_prefix.
        """
        self.kinds: Final = {f"DEBUG{level}:  ": "DEBUG" for level in range(1, 6)}
        self.severities: Final = {name: name for name in SEVERITIES}
        for catalogue in catalogues:
            severities = {text: name for name in SEVERITIES if (text := catalogue.get(name, ""))}
            marks = {
                text.partition("%")[0]: name for name in _ADDENDA for text in _marks(catalogue, name) if text.strip()
            }
            self.severities.update({_in_ascii(text): name for text, name in severities.items()} | severities)
            self.kinds.update({_in_ascii(text): name for text, name in marks.items()} | marks)
        self.severities.pop("", None)
        self.kinds.pop("", None)
        self.kinds.update({f"{name}:  ": name for name in _ADDENDA})
        self.kinds.update({f"{word}:  ": name for word, name in self.severities.items()})
        marks_by_length = sorted(self.kinds, key=len, reverse=True)
        self.marked: Final = re.compile(
            rf"(?P<prefix>.{{0,400}}?)(?<!\w)(?P<mark>{'|'.join(map(re.escape, marks_by_length))})(?P<message>.*)"
        )
        self.prefixed: Final = None if line_prefix is None else _prefixed(line_prefix)
        heads = dict.fromkeys(chain.from_iterable(map(_heads, catalogues)))
        self._heads: Final = (*heads, *filter(None, dict.fromkeys(map(_in_ascii, heads))))
        self._catalogues: Final = catalogues
        self._decoders: Final = tuple(decoder(name) for name in dict.fromkeys(encodings) if name != "UTF8")

    def is_about_the_server(self, message: str) -> bool:
        """Return whether a LOG entry is about the server itself and not about one client's statement or connection."""
        return _ABOUT_THE_SERVER.match(message) is not None or message.startswith(self._heads)

    def saying(self, english: re.Pattern[str]) -> re.Pattern[str]:
        """Return the pattern of messages in any of the languages, without groups.

        Args:
            english: Pattern of the messages in English, and of their formats ("configuration file \"%s\" contains
                errors").
        """
        texts = [text for catalogue in self._catalogues for msgid, text in catalogue.items() if english.search(msgid)]
        forms = dict.fromkeys(form for text in texts for form in (text, _in_ascii(text)) if form)
        masked = (rf"(?<!\?){_form(_masked(text))}(?!\?)" for text in texts if not text.isascii())
        return re.compile("|".join((english.pattern, *map(_form, forms), *masked)))

    def in_english(self, message: str) -> str:
        """Translate a message whose letters beyond ASCII are "?"; "" where several messages fit, or none.

        A process without a database and with locale C writes "?" for each such letter.
        """
        if "?" not in message or not message.isascii():
            return ""
        fitting = [form for form in self._forms if form.fits(message)]
        longest = max((form.letters for form in fitting), default=0)
        texts = {form.english(message) for form in fitting if form.letters == longest}
        return texts.pop() if len(texts) == 1 and longest >= _SHORTEST_FORM else ""

    @cached_property
    def _forms(self) -> tuple[MessageForm, ...]:
        texts = chain.from_iterable(catalogue.items() for catalogue in self._catalogues)
        return tuple(MessageForm.of(msgid, text) for msgid, text in texts if not text.isascii())

    def severity_of(self, word: str, english: str) -> str:
        """Return the severity that such a process writes as some "?"; "" where several fit.

        Args:
            word: The word before the message.
            english: Result of `in_english`.
        """
        marks = ((mark.rstrip(" :"), name) for mark, name in self.kinds.items() if not mark.isascii())
        names = {name for mark, name in marks if "?" * len(mark) == word}
        if english and not english.endswith("."):
            # Details and hints are sentences (chapter "Error Message Style Guide").
            names.difference_update(_ADDENDA)
        if "LOG" in names and _ABOUT_THE_SERVER.match(english):
            return "LOG"
        return names.pop() if len(names) == 1 else ""

    def text(self, line: bytes) -> str:
        """Decode a line in the encoding in which it was written; unreadable bytes become U+FFFD."""
        try:
            return line.decode()
        except UnicodeDecodeError:
            texts = {text for decode in self._decoders if self._is_readable(text := decode(line))}
            return texts.pop() if len(texts) == 1 else line.decode("utf-8", "replace")

    def _is_readable(self, text: str) -> bool:
        return "\ufffd" not in text and any(word.rstrip(" :") in text for word in self.kinds)


class MessageForm(Struct, frozen=True):
    """Form of a translated message as a process with locale C writes it.

    Attributes:
        msgid: The format in English.
        parts: Texts between the arguments.
        places: Index of each argument in the English format.
        letters: Number of letters in all parts.
    """

    msgid: str
    parts: tuple[str, ...]
    places: tuple[int, ...]
    letters: int

    @classmethod
    def of(cls, msgid: str, text: str) -> MessageForm:
        """Return the form of a translation."""
        text = _masked(text.replace("%%", _PER_CENT))
        parts = tuple(part.replace(_PER_CENT, "%") for part in _parts(text))
        numbers = [conversion["number"] for conversion in _CONVERSION.finditer(text)]
        places = tuple(int(number) - 1 if number else index for index, number in enumerate(numbers))
        return cls(msgid=msgid, parts=parts, places=places, letters=sum(map(len, parts)))

    def fits(self, message: str) -> bool:
        """Return whether a message may be of this form."""
        first, *inner = self.parts
        if not inner:
            return message == first
        last, at = inner.pop(), len(first)
        if not message.startswith(first) or not message[at:].endswith(last):
            return False
        for part in inner:
            begin = message.find(part, at, len(message) - len(last))
            if begin < 0:
                return False
            at = begin + len(part)
        return True

    def english(self, message: str) -> str:
        """Return a message of this form in English."""
        match = re.fullmatch("(.*?)".join(map(re.escape, self.parts)), message, re.DOTALL)
        values = {} if match is None else dict(zip(self.places, match.groups(), strict=True))
        numbers = count()
        text = _CONVERSION.sub(lambda _: values.get(next(numbers), "?"), self.msgid.replace("%%", _PER_CENT))
        return text.replace(_PER_CENT, "%")


def _in_ascii(text: str) -> str:
    """Return the text that a process without a database and with locale C writes; "" where too little of it is left."""
    plain = text.translate(_CYRILLIC).encode("ascii", "replace").decode()
    return plain if re.search(r"[A-Za-z]{3}", plain) else ""


def _marks(catalogue: Mapping[str, str], addendum: str) -> Iterator[str]:
    """Yield translations of "DETAIL:  ", "LOCATION:  %s, %s:%d" and the like; some end without the blanks."""
    for msgid, text in catalogue.items():
        if msgid.startswith(f"{addendum}:  "):
            yield text


def _prefixed(line_prefix: str) -> re.Pattern[str]:
    parts: list[str] = []
    open_groups = 0
    for escape in _ESCAPE.finditer(line_prefix):
        if escape["kind"] == "q":
            parts.append("(?:")
            open_groups += 1
        elif escape["kind"]:
            repeated = f"(?P<{'code' if escape['kind'] == 'e' else 'number'}>"
            pattern = _PREFIX_ESCAPES.get(escape["kind"], ".{0,200}?")
            if any(repeated in part for part in parts):
                pattern = pattern.replace(repeated, "(?:")
            parts.append(rf" *{pattern} *" if escape["width"] else pattern)
        else:
            parts.append(re.escape(escape["literal"] or ""))
    return re.compile(rf"(?P<prefix>{''.join(parts)}{')?' * open_groups}){_FOREIGN_WORD}(?P<message>.*)")


def _masked(text: str) -> str:
    return "".join(letter if letter.isascii() else "?" for letter in text)


def _parts(text: str) -> list[str]:
    """Return the texts between the arguments of a format."""
    return _CONVERSION.sub("\0", text).split("\0")


def _form(text: str) -> str:
    """Return the pattern of messages with a format (printf(3))."""
    return ".*?".join(map(re.escape, _parts(text)))


def _heads(catalogue: Mapping[str, str]) -> Iterator[str]:
    """Yield beginnings of messages about the server with which no message about a client begins."""
    heads = {msgid: head for msgid, text in catalogue.items() if len(head := text.partition("%")[0]) >= _SHORTEST_HEAD}
    of_clients = tuple(head for msgid, head in heads.items() if _ABOUT_A_CLIENT.match(msgid))
    for msgid, head in heads.items():
        is_shared = head.startswith(of_clients) or any(client_head.startswith(head) for client_head in of_clients)
        if _ABOUT_THE_SERVER.match(msgid) and not is_shared:
            yield head


def is_english(language: str) -> bool:
    """Return whether lc_messages names no translation; one without a catalogue is English, too."""
    return language.partition(".")[0] in _NO_LANGUAGE


def catalogue_paths(locale_directory: str, language: str, major: int) -> tuple[str, ...]:
    """Return paths at which the server's message catalogue may be, the most specific first.

    Args:
        locale_directory: LOCALEDIR of pg_config.
        language: lc_messages: "ru_RU.UTF-8", "de_DE@euro".
        major: Major version of the server.
    """
    name, _, modifier = language.partition("@")
    territory = name.partition(".")[0]
    if is_english(language) or not re.fullmatch(r"[\w-]{1,40}", territory) or not locale_directory:
        return ()
    plain = (territory, territory.partition("_")[0])
    special = tuple(f"{name}@{modifier}" for name in plain) if re.fullmatch(r"[\w-]{1,40}", modifier) else ()
    names = dict.fromkeys((*special, *plain))
    return tuple(f"{locale_directory}/{name}/LC_MESSAGES/postgres-{major}.mo" for name in names)


def read_catalogue(content: bytes) -> dict[str, str]:
    """Return translations by their English text; of plurals the first form.

    Raises:
        ValueError: The content is no catalogue.
    """
    order = {_LITTLE: "<", _BIG: ">"}.get(content[:4])
    if order is None or len(content) < _HEADER:
        raise ValueError("its message catalogue has an unknown format")
    _, number, originals, translations = struct.unpack_from(f"{order}4I", content, 4)
    try:
        places = struct.iter_unpack(f"{order}2I", content[originals : originals + 8 * number])
        translation_places = struct.iter_unpack(f"{order}2I", content[translations : translations + 8 * number])
        pairs = list(zip(places, translation_places, strict=True))
    except struct.error:
        raise ValueError("its message catalogue is truncated") from None

    def text(length: int, begin: int) -> str:
        return content[begin : begin + length].partition(b"\0")[0].decode("utf-8", "replace")

    if len(pairs) != number:
        raise ValueError("its message catalogue is truncated")
    return {
        msgid: translated for one, translation in pairs if (msgid := text(*one)) and (translated := text(*translation))
    }


ENGLISH: Final = LogLanguage()
