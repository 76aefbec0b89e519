"""Secrets: a password on its way to a driver, and the masking of those that stand in foreign text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from msgspec import Struct

# Tokens that their own form gives away: keys of services, verifiers of passwords. No word has to announce them.

MASK: Final = "********"
"""Text in place of a secret."""
HINTS: Final = (
    *("pass", "key", "token", "secret", "://", "-u", "crypt", "hmac", "pwd", "authorization", "sig=", "signature="),
)
"""In small letters: a text without any of them has no word that announces a secret (`secret_words`)."""
_ALNUM: Final = "A-Za-z0-9"
_URL_SAFE: Final = "A-Za-z0-9_-"
_DOTTED: Final = "A-Za-z0-9_.-"
_BASE64: Final = "A-Za-z0-9+/="
_HEX: Final = "0-9a-f"


class TokenKind(Struct, frozen=True):
    """A kind of token.

    Attributes:
        name: Name of the service or program, for the guide.
        begins: Possible beginnings of such tokens, case-sensitive.
        characters: Characters of the rest: the inside of a regular expression's brackets.
        least: Least number of these characters. Where a limit has cut the text off, half as many make a token.
        companion: Length of the secret that stands beside the token; 0 where none does.
    """

    name: str
    begins: tuple[str, ...]
    characters: str
    least: int
    companion: int = 0

    @property
    def example(self) -> str:
        """A token that no service has issued, as short as one can be."""
        letters = "0A1B2C3D4E5F" if re.fullmatch(f"[{self.characters}]", "A") else "0a1b2c3d4e5f"
        return self.begins[0] + (letters * self.least)[: self.least]


TOKEN_KINDS: Final = (
    TokenKind("1Password service account", ("ops_eyJ",), _BASE64, 80),
    TokenKind("age identity", ("AGE-SECRET-KEY-1",), "0-9A-Z", 58),
    TokenKind("Anthropic", ("sk-ant-",), _URL_SAFE, 32),
    TokenKind("Atlassian", ("ATATT3",), "A-Za-z0-9_=-", 60),
    TokenKind("AWS access key, and the secret key behind it", ("AKIA", "ASIA"), "A-Z0-9", 16, 40),
    TokenKind("bcrypt", ("$2a$", "$2b$", "$2y$"), "A-Za-z0-9./$", 56),
    TokenKind("Brevo", ("xkeysib-",), _HEX, 64),
    TokenKind("Databricks", ("dapi",), _HEX, 32),
    TokenKind("DigitalOcean", ("dop_v1_", "doo_v1_", "dor_v1_"), _HEX, 64),
    TokenKind("Docker Hub", ("dckr_pat_",), _URL_SAFE, 27),
    TokenKind("Figma", ("figd_",), _URL_SAFE, 40),
    TokenKind("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _ALNUM, 36),
    TokenKind("GitHub, fine-grained", ("github_pat_",), "A-Za-z0-9_", 50),
    TokenKind(
        "GitLab",
        ("glpat-", "glrt-", "gldt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "glimt-"),
        _DOTTED,
        20,
    ),
    TokenKind("Google API key", ("AIza",), _URL_SAFE, 35),
    TokenKind("Google OAuth", ("GOCSPX-", "ya29."), _URL_SAFE, 28),
    TokenKind("Grafana", ("glsa_", "glc_"), "A-Za-z0-9_+/=", 40),
    TokenKind("HashiCorp Vault", ("hvs.", "hvb.", "hvr."), _URL_SAFE, 24),
    TokenKind("Hugging Face", ("hf_",), _ALNUM, 30),
    TokenKind("JSON Web Token", ("eyJ",), _DOTTED, 30),
    TokenKind("Linear", ("lin_api_",), _ALNUM, 40),
    TokenKind("New Relic", ("NRAK-",), "A-Z0-9", 27),
    TokenKind("npm", ("npm_",), _ALNUM, 36),
    TokenKind("NVIDIA", ("nvapi-",), _URL_SAFE, 60),
    TokenKind("OpenAI", ("sk-proj-", "sk-svcacct-", "sk-admin-"), _URL_SAFE, 32),
    TokenKind("OpenAI and its like, older", ("sk-",), _ALNUM, 40),
    TokenKind("OpenRouter", ("sk-or-v1-",), _HEX, 64),
    TokenKind("PostgreSQL password verifier, MD5", ("md5",), _HEX, 32),
    TokenKind("PostgreSQL password verifier, SCRAM", ("SCRAM-SHA-256$",), "A-Za-z0-9+/=$:", 60),
    TokenKind("Postman", ("PMAK-",), "0-9a-f-", 59),
    TokenKind("PyPI", ("pypi-",), _URL_SAFE, 60),
    TokenKind("RubyGems", ("rubygems_",), _HEX, 48),
    TokenKind("SendGrid", ("SG.",), _DOTTED, 60),
    TokenKind("Sentry", ("sntrys_", "sntryu_"), "A-Za-z0-9_+/=", 60),
    TokenKind("Shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), "0-9a-fA-F", 32),
    TokenKind("Slack", ("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xapp-"), _DOTTED, 20),
    TokenKind("Slack webhook", ("hooks.slack.com/services/",), "A-Za-z0-9/", 30),
    TokenKind("Stripe", ("sk_live_", "sk_test_", "rk_live_", "rk_test_"), _ALNUM, 16),
    TokenKind("Stripe webhook", ("whsec_",), _BASE64, 32),
    TokenKind("Tailscale", ("tskey-",), _URL_SAFE, 24),
)


def _pattern(kind: TokenKind) -> str:
    """Return the pattern of a kind, with an empty group where the secret part begins."""
    some = f"[{kind.characters}]"
    return f"(?:{'|'.join(map(re.escape, kind.begins))})(){some}{{{kind.least // 2},}}"


_SHORTEST: Final = 16
_RUN: Final = "A-Za-z0-9_+/=.$:-"
"""Every character of every token."""
_QUIET: Final = "a-z_+/=.$:-"
"""Characters of identifiers in lower case: a run of these alone is no token."""
_LONG_RUN: Final = rf"(?=[{_RUN}]{{{_SHORTEST}}})(?=[{_QUIET}]*[A-Z0-9])([{_RUN}]+)"
"""No possessive repeats: `re` before Python 3.11.5 is wrong about them. A character is looked at thrice at most."""
_RUN_HERE: Final = re.compile(_LONG_RUN)
_RUN_BEYOND: Final = re.compile(rf"[^{_RUN}]{_LONG_RUN}")
_TELLING: Final = re.compile(r"[A-Z0-9]")
_COMPANION: Final = re.compile(rf"[^{_BASE64}]{{1,8}}([{_BASE64}]+)")


@cache
def _token() -> re.Pattern[str]:
    """Return the pattern of all tokens, made when it is needed: it takes longer than the first picture may wait."""
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(_pattern, TOKEN_KINDS))})")


def token_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of tokens without their known beginnings, in the order of the text; they do not overlap."""
    spans: list[tuple[int, int]] = []
    run = _long_run(text, 0)
    while run is not None:
        offset, end = run.span(1)
        while (token := _token().search(text, offset, end)) is not None:
            begin, offset = token.start(token.lastindex or 0), token.end()
            kind = TOKEN_KINDS[(token.lastindex or 1) - 1]
            is_long = offset - begin >= kind.least or offset == len(text)
            if is_long and _TELLING.search(text, begin, offset):
                spans.append((begin, offset))
                beside = _COMPANION.match(text, offset) if kind.companion else None
                if beside is not None and len(beside[1]) == kind.companion:
                    spans.append(beside.span(1))
                    offset = beside.end()
        run = _long_run(text, max(offset, end))
    return spans


def _long_run(text: str, begin: int) -> re.Match[str] | None:
    return _RUN_HERE.match(text, begin) or _RUN_BEYOND.search(text, begin)


class Secret:
    """A password on its way to a driver. Only `reveal()` gives it away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself, for the one call that hands it to a driver."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Secret is not pickled")


def without_secrets(text: str) -> str:
    """Return a text that others wrote (statement, log line, parameter, message) with what looks like a secret masked.

    Passwords of roles, user mappings and connection strings, user:password@ of URIs, -u user:password, keys and tokens
    of programs and of pgcrypto, Authorization headers; with every way of quoting, and where the text ends within one.
    What no word announces is known by its form (`TOKEN_KINDS`), or not at all: the values of an INSERT. Better one
    word too many than a password.

    Source: chapters "Connection Strings" of libpq and "Lexical Structure" of SQL.
    """
    if tokens := token_spans(text):
        text = _masked(text, tokens)
    small = text.lower()
    # Most texts have none, and the patterns take longer to make than the first picture may wait.
    if not any(hint in small for hint in HINTS):
        return text
    from pgtop_tune.base.secret_words import announced_spans

    spans = announced_spans(text)
    return _masked(text, spans) if spans else text


def _masked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    parts: list[str] = []
    kept = 0
    for begin, end in spans:
        parts += (text[kept:begin], MASK)
        kept = end
    return "".join((*parts, text[kept:]))
