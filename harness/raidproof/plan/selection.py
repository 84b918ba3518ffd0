"""Choosing cells by an expression over their names: words, ``and``, ``or``, ``not``, parentheses."""

import re

from raidproof.core.errors import RequestError

_TOKEN = re.compile(r"\s*(?:([()])|([^\s()]+))")


class Selection:
    """An expression, read once.

    A word with ``=`` is a whole setting, so that ``level=1`` is not ``level=10``; any other is a part of the name.
    Words that follow each other must all match.

    Raises:
        RequestError: it is no expression.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._tokens = [parenthesis or word for parenthesis, word in _TOKEN.findall(expression)]
        self.matches("")

    def matches(self, name: str) -> bool:
        """Whether a cell of this name is meant."""
        tokens = [*self._tokens, ""]
        found = self._either(tokens, name)
        if tokens != [""]:
            raise self._wrong(f"{tokens[0]} is too much")
        return found

    def _either(self, tokens: list[str], name: str) -> bool:
        found = self._both(tokens, name)
        while tokens[0] == "or":
            tokens.pop(0)
            # Not `found or`: what stands there has to be read in any case.
            found = self._both(tokens, name) or found
        return found

    def _both(self, tokens: list[str], name: str) -> bool:
        found = self._one(tokens, name)
        while tokens[0] not in {"or", ")", ""}:
            if tokens[0] == "and":
                tokens.pop(0)
            found = self._one(tokens, name) and found
        return found

    def _one(self, tokens: list[str], name: str) -> bool:
        match tokens.pop(0):
            case "not":
                return not self._one(tokens, name)
            case "(":
                found = self._either(tokens, name)
                if tokens.pop(0) != ")":
                    raise self._wrong("a parenthesis is not closed")
                return found
            case ("and" | "or" | ")" | "") as token:
                raise self._wrong(f"a word is missing before {token or 'the end'}")
            case word:
                return word in name.split() if "=" in word else word.lower() in name.lower()

    def _wrong(self, why: str) -> RequestError:
        return RequestError(f"-k {self.expression!r}: {why}", remedy="write for example 'level=5 and not wsize=8KiB'")
