"""Secrets that a word announces: passwords of roles and connection strings, options, keys, logins, headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from pgtop_tune.base.secret import HINTS, MASK

_HINT: Final = re.compile("|".join(map(re.escape, HINTS)))
_SUFFIX: Final = r"(?:s|[-_]?(?:access[-_]?)?(?:key|hash|string|text|value|plain|old|new|\d{1,4}))?(?!\w)"
_FOUND: Final = re.compile(
    rf"(?<=ssh)(?P<option>pass\s+-p\s*)|(?P<name>(?:pass(?:word|wd|phrase|code)?|pwd|secret|token){_SUFFIX}|(?<=[?&-])sig(?:nature)?(?==))"
    rf"|(?P<pem>key(?: block)?-----)|(?P<key>key{_SUFFIX})"
    r"|(?P<uri>://[^\s/:@'\"]{0,256}:|(?:(?<=http)|(?<=https))://(?=[^\s/:@'\"]{1,256}@))"
    r"|-u(?P<user>(?:ser(?:name)?)?(?:\s*=\s*|\s*)(?:\\?[\"']{1,2})?[^\s:\"'=\\]{1,128}:(?!//)|\s+[^\s:\"'=\\,]{1,128},(?=\S))"
    r"|(?:crypt(?:_bytea|_iv)?|hmac)\s*(?P<call>\()"
    r"|(?P<header>authorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:(?:basic|bearer|digest|token)\s+)?)",
    re.IGNORECASE,
)
"""Words that announce a secret, from a hint on: SECRET_ACCESS_KEY in AWS_SECRET_ACCESS_KEY, password in rolpassword."""
_KEY_BEFORE: Final = re.compile(
    r"(?:(?:api|access|account|private|client|server|encryption|master|signing|service|shared|storage"
    r"|application)[-_ ]?|--)\Z",
    re.IGNORECASE,
)
_ROLE_BEFORE: Final = re.compile(r"\b(?:alter|create)\s+(?:role|user)\s+(?!mapping\b)", re.IGNORECASE)
"""A password without quotes is a syntax error there, and the statement stands in pg_stat_activity all the same."""
_OPTION_BEFORE: Final = re.compile(r"(?:-|--[\w-]{0,30})\Z")
_WORD_BEFORE: Final = re.compile(r"(--?)?([\w-]{0,60})\Z")
_BLANKS: Final = re.compile(r"(?:\s+|/\*.{0,500}?\*/|--[^\n]{0,500}(?:\n|\Z))*", re.DOTALL)
_SPACES: Final = re.compile(r"[ \t]*")
_CLOSING: Final = re.compile(r"\\?\"|['`\]]")
"""End of a quoted name."""
_OPERATOR: Final = re.compile(
    r":=|=>(?=[\s'\"])|(?<=\s)=>(?=\$)|==(?=\s)|=|<>|!=|!?~~?\*?|:(?!:)"
    r"|(?:to|is(?:\s+not)?\s+distinct\s+from|(?:not\s+)?(?:i?like|in))\b",
    re.IGNORECASE,
)
_LITERAL: Final = re.compile(
    r"(?:[enbx]|u&)?'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)"
    r"|\\'(?!')(?:[^'\\]|\\[^'])*(?:\\'|\\?\Z|(?='))"
    r'|"(?:[^"\\]|\\.|"")*(?:"|\\?\Z)'
    r'|\\"(?:[^"\\]|\\[^"])*(?:\\"|\\?\Z|(?="))'
    r"|(?P<dollar>\$(?:[a-z_]\w{0,62})?\$).*?(?:(?P=dollar)|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""A literal in any quoting, also one that a limit of characters has cut off."""
_CAPITALS: Final = re.compile("[A-Z]+")
_QUOTES: Final = re.compile("'+")
_GOES_ON: Final = re.compile(r"\s*\|\|\s*|\s*\n\s*(?=')")
_GROUP: Final = re.compile(r"[\w.]*\s*[(\[{]")
_BRACKET: Final = re.compile(r"'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)|[(\[{]|[)\]}]", re.DOTALL)
_NO_SECRET: Final = re.compile(
    r"\$\d+(?![^\s,;:)\]}'\"])|[\w.]*\((?=[^()]*\$\d)[\w.\s,$]*\)"
    r"|(?:\?|%s|%\(\w+\)s|null|default|true|false)(?=[,;:)\]}'\"]*(?:\s|\Z))",
    re.IGNORECASE,
)
"""Placeholders, and calls with nothing else: pg_stat_statements has put them in the place of constants."""
_FAR: Final = re.compile(
    r"(?:\s*(?:::\s*[\w.]+|\)|collate\s+[\w.\"]+)){1,4}\s*(?:=|<>|!=|!?~~?\*?|(?:not\s+)?i?like\b)"
    r"|\s+(?:constant\s+)?[a-z][\w.]{0,62}(?:\s+varying)?(?:\s*\([\d,\s]{1,12}\))?(?:\s+not\s+null)?"
    r"\s*(?::=|=|\bdefault\b)",
    re.IGNORECASE,
)
"""Between a name and its literal: a cast, the end of a call, a variable's or a column's type."""
_LISTED: Final = re.compile(
    r"\"?(?:\s*,\s*[\w.\"]{1,130}){0,64}\s*\)\s*(?P<is>(?:overriding\s+\w+\s+value\s+)?values|=|(?:not\s+)?in)\s*\((?P<two>\s*\()?",
    re.IGNORECASE,
)
"""Text between a name in a list of columns and the first list of their values."""
_DETAIL_BEFORE: Final = re.compile(r"\bKey \([^()]*\Z")
_DETAIL: Final = re.compile(r"[^\n]*?(?=\) (?:already|is|conflicts)\b|\n|\Z)")
_PART: Final = re.compile(r"(?:[enbx]|u&)?'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)|[(\[{]|[)\]}]|,", re.IGNORECASE | re.DOTALL)
_NEXT_LIST: Final = re.compile(r"\s*,\s*\(")
_NEAR: Final = 1024
_DEEPEST: Final = 24
"""Brackets within brackets, and characters to the first literal of a call: so that the time stays linear."""
_FORMAT: Final = re.compile(r"%(?:\d+\$)?[-\d]*[LIs][^'\"]*'")
_TABLE_BEFORE: Final = re.compile(r"\b(?:table|exists|into|on|only)\s+[\w.\"]*\Z", re.IGNORECASE)
_SQL_CALL: Final = re.compile(r"(?:[\w.]+\s*)?\((?:[^()'\"$]|\$\d|\((?:[^()'\"$]|\$\d|\([^()'\"$]*\))*\))*\)")
_COLUMN: Final = re.compile(r'(?:"?\w+"?\.)+"?([\w-]+)"?')
_WORD: Final = re.compile(r"(?:\\.|&(?![\w.-]+=)|[,;|](?=[^\s,;|&])|[^\s&;,|\\])+|\\\Z", re.DOTALL)
_WORD_IN_LITERAL: Final = re.compile(
    r"(?:\\''|\\[^']|''|&(?![\w.-]+=)|[,;|](?=[^\s,;|&'])|[^\s&;,|\\'])+|\\\Z",
    re.DOTALL,
)
_LOGIN: Final = re.compile(
    r"[^\s/]{0,2048}(?=@)|(?!\d{1,5}[/?#,])[^\s'\"<>]{0,2048}(?=@)|(?!\d{0,5}\Z)[^\s/'\"]{0,2048}\Z"
)
_TOKEN: Final = re.compile(r"[^\s'\"\\,;)]+")
_HEADER: Final = re.compile(r"[^'\"\\\r\n]+")
_PEM: Final = re.compile(r".*?(?=-----END|\Z)", re.DOTALL)

_Span = tuple[int, int]
"""Begin and end of a secret; both are equal where there is none."""


def announced_spans(text: str) -> list[_Span]:
    """Return the spans of such secrets, in the order of the text, apart from each other."""
    small = text.lower()
    if len(small) != len(text):
        small = _CAPITALS.sub(lambda letters: letters[0].lower(), text)
    spans: list[_Span] = []
    offset = counted = 0
    in_literal = False
    while (hint := _HINT.search(small, offset)) is not None:
        offset = hint.end()
        if (match := _FOUND.match(text, hint.start())) is None:
            continue
        in_literal ^= text.count("'", counted, match.start()) % 2 == 1
        counted = match.start()
        begin, end = _SPANS[match.lastgroup or ""](text, match, in_literal)
        if begin < end:
            spans.append((begin, end))
        offset = max(end, offset)
    return spans


def _named(text: str, match: re.Match[str], in_literal: bool) -> _Span:
    after = match.end()
    closing = _CLOSING.match(text, after)
    if closing is not None and closing[0] == "'":
        # Without a literal it begins one, and a doubled one begins a literal within the literal.
        if not in_literal or text.startswith("''", after):
            closing = None
        else:
            in_literal = False
    quote = "" if closing is None else closing[0]
    if (begin := _far(text, match, after + len(quote), in_literal)) is not None:
        return begin
    at = _past(_BLANKS, text, after + len(quote))
    before = _WORD_BEFORE.search(text, max(match.start() - 64, 0), match.start())
    option, word = ("", "") if before is None else (before[1], before[2])
    if (operator := _OPERATOR.match(text, at)) is not None:
        at = _past(_SPACES, text, operator.end())
        after_comments = _past(_BLANKS, text, operator.end())
        if operator[0] != ":" and _LITERAL.match(text, after_comments):
            at = after_comments
        if operator[0][0].isalpha() and not text.startswith("(", at):
            return at, _end_of_literal(text, at, in_literal)
        return at, _end_of_value(text, at, in_literal, word + match[0])
    if quote == "'":
        at = _past(_BLANKS, text, at + 1) if text.startswith(",", at) else after
    elif at > after and (option or _ROLE_BEFORE.search(text, max(match.start() - 300, 0), match.start())):
        return at, _end_of_value(text, at, in_literal, "")
    if text.startswith('"', at) or (quote == "'" == text[at : at + 1] and at == after):
        return after, after
    return at, _end_of_literal(text, at, in_literal)


def _far(text: str, match: re.Match[str], at: int, in_literal: bool) -> _Span | None:
    """Return the span of a value that is not beside its name: in a list of columns, in a call, a declaration, or
    format()."""
    if (
        text.startswith("(", at)
        and "'" in text[at : at + _NEAR]
        and not _TABLE_BEFORE.search(text, max(match.start() - 130, 0), match.start())
    ):
        end = _end_of_group(text, at + 1)
        if "'" in text[at:end]:
            return at + 1, end - 1 if text[end - 1] == ")" else end
    if (listed := _LISTED.match(text, at)) is not None:
        return _of_list(text, match.start(), listed)
    if (far := _FAR.match(text, at)) is not None:
        begin = _past(_BLANKS, text, far.end())
        if (end := _end_of_literal(text, begin, in_literal)) > begin:
            return begin, end
    if in_literal and (format_call := _FORMAT.match(text, _past(_BLANKS, text, at))) is not None:
        end = _end_of_group(text, format_call.end())
        if "'" in text[format_call.end() : end] or text.startswith(MASK, format_call.end()):
            return format_call.end(), end - 1 if text[end - 1] == ")" else end
    return None


def _of_list(text: str, name: int, listed: re.Match[str]) -> _Span | None:
    """Return the value of the column of that place; with several lists from the first such value to the last."""
    begin, opening = listed.end(), text.rfind("(", max(name - 8192, 0), name)
    if opening < 0:
        return None
    if _DETAIL_BEFORE.search(text, max(name - 2048, 0), name):
        detail = _DETAIL.match(text, begin)
        return begin, begin if detail is None else detail.end()
    if not listed["two"] and listed["is"].lower().endswith("in"):
        return None
    column, depth, number, first, last = text.count(",", opening, name), 1, 0, -1, -1
    # Of two columns that announce a secret the second is not looked for again.
    columns = column + (listed[0].count(",") if _HINT.search(listed[0].lower()) else 0)
    start = begin
    for part in _PART.finditer(text, begin):
        depth += (part[0] in ("(", "[", "{")) - (part[0] in (")", "]", "}"))
        if not 0 <= depth < _DEEPEST:
            break
        if part[0] == "(" and depth == 1:
            number, start = 0, part.end()
        elif (part[0] == "," and depth == 1) or (part[0] == ")" and depth == 0):
            if column <= number <= columns and "'" in text[start : part.start()]:
                first, last = (start if first < 0 else first), part.start()
            number, start = number + 1, part.end()
            if depth == 0 and not _NEXT_LIST.match(text, part.end()):
                break
    else:
        if column <= number <= columns and "'" in text[start:]:
            first, last = (start if first < 0 else first), len(text)
    return None if first < 0 else (_past(_BLANKS, text, first), last)


def _key(text: str, match: re.Match[str], in_literal: bool) -> _Span:
    """Return a key of an API or of an option, or KEY=… in a shell or a URL. A column called key announces no secret."""
    at, after = match.start(), match.end()
    is_assigned = text.startswith("=", after) and not text[after + 1 : after + 2].isspace()
    before = text[at - 1 : at]
    if _KEY_BEFORE.search(text, max(at - 16, 0), at) or (is_assigned and before != "." and not _is_of_a_word(before)):
        return _named(text, match, in_literal)
    return after, after


def _is_of_a_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _end_of_value(text: str, begin: int, in_literal: bool, name: str) -> int:
    """Return the end of a literal, a call, a list or a word; `begin` where it is no secret."""
    if _NO_SECRET.match(text, begin):
        return begin
    column = _COLUMN.match(text, begin)
    if column is not None and (
        name.lower() in column[1].lower() if text[begin - 1].isspace() else column[1].lower() == name.lower()
    ):
        return begin
    if (end := _end_of_literal(text, begin, in_literal)) > begin:
        return end
    if not in_literal and (call := _SQL_CALL.match(text, begin)) and (text[begin - 1].isspace() or "$" in call[0]):
        return begin
    if (group := _GROUP.match(text, begin)) is not None:
        begin = _end_of_group(text, group.end())
    return _past(_WORD_IN_LITERAL if in_literal else _WORD, text, begin)


def _end_of_literal(text: str, begin: int, in_literal: bool) -> int:
    """Return the end of a literal and of the literals concatenated to it."""
    end = begin
    while True:
        after = _nested_end(text, end) if in_literal and text.startswith("'", end) else None
        if after is None:
            literal = _LITERAL.match(text, end)
            # Outside of a literal a backslash before a quote is a connection string's.
            if literal is None or literal[0].startswith("'" if in_literal else "\\'"):
                return begin if end == begin else end
            after = literal.end()
        end = after
        if (more := _GOES_ON.match(text, end)) is None:
            return end
        if _LITERAL.match(text, more.end()) is None:
            return end
        end = more.end()


def _nested_end(text: str, begin: int) -> int | None:
    """Return the end of a literal in a literal, with quotes doubled once or more; None where the outer one ends."""
    runs = _QUOTES.finditer(text, begin)
    width = len(next(runs)[0])
    if width % 2:
        return None
    for run in runs:
        # A backslash before a quote belongs to a connection string; where it escapes nothing, it is masked, too.
        escaped = width if text.startswith("\\", run.start() - 1) else 0
        if (len(run[0]) - escaped) % (2 * width):
            return run.start() + escaped + width
    return len(text)


def _end_of_group(text: str, begin: int) -> int:
    """Return the end of the bracket that closes the one before `begin`; the end of the text without one."""
    depth = 1
    for bracket in _BRACKET.finditer(text, begin):
        depth += (bracket[0] in "([{") - (bracket[0] in ")]}")
        if not depth:
            return bracket.end()
    return len(text)


def _arguments(text: str, match: re.Match[str], in_literal: bool) -> _Span:
    begin = match.end()
    end = _end_of_group(text, begin)
    if "'" not in text[begin:end] and "$$" not in text[begin:end]:
        return end, end
    return begin, end - 1 if text[end - 1 : end] == ")" else end


def _login(text: str, match: re.Match[str], in_literal: bool) -> _Span:
    return match.end(), _past(_LOGIN, text, match.end())


def _user(text: str, match: re.Match[str], in_literal: bool) -> _Span:
    at, before = match.start(), text[match.start() - 1 : match.start()]
    is_long = match["user"][:3].lower() == "ser"
    if not (
        _OPTION_BEFORE.search(text, max(at - 32, 0), at) if is_long else before != "-" and not _is_of_a_word(before)
    ):
        return match.end(), match.end()
    begin = match.end()
    quote = next((mark for mark in ("''", '"', "'") if mark in match["user"]), "")
    end = text.find(quote, begin) if quote else -1
    if quote:
        return begin, len(text) if end < 0 else end
    return begin, _past(_TOKEN, text, begin)


def _up_to(pattern: re.Pattern[str]) -> Callable[[str, re.Match[str], bool], _Span]:
    def span(text: str, match: re.Match[str], in_literal: bool) -> _Span:
        return match.end(), _past(pattern, text, match.end())

    return span


def _option(text: str, match: re.Match[str], in_literal: bool) -> _Span:
    return match.end(), _end_of_value(text, match.end(), in_literal, "")


_SPANS: Final[Mapping[str, Callable[[str, re.Match[str], bool], _Span]]] = {
    "name": _named,
    "option": _option,
    "key": _key,
    "uri": _login,
    "user": _user,
    "call": _arguments,
    "header": _up_to(_HEADER),
    "pem": _up_to(_PEM),
}
