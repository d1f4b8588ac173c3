"""Sentences of documents, docstrings and comments, and how many words each has."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

WORDS_MOST = 35

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADS = re.compile(r"^(?:#|<!--|    ).*$", re.MULTILINE)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_NAMES = re.compile(r"NAME(?:(?:,| and| or| to|;)* NAME)+")
_END = re.compile(r"[.!?][)\"'*]*\s+(?=[\"'(*]*(?:[A-Z0-9\[`]|etcd|gRPC|[a-z_]+: ))|[.!?][)\"'*]*\n")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.")


def sentences(prose: str) -> Iterator[str]:
    """The sentences of a text without code blocks and headings. A blank line and a list's item end one, too; in a table a cell
    and a semicolon, for cells are lists of phrases."""
    text = _CODE.sub("NAME", _LINK.sub(_linked, _HEADS.sub("", _FENCED.sub("", prose))))
    text = _NAMES.sub("NAME", _ROW.sub(lambda row: re.sub(r"\||; ", "\n\n", row.group()), text))
    text = _ABBREVIATIONS.sub(lambda match: match.group(1).replace(".", ""), text)
    for block in re.split(r"\n\s*\n", _LIST_ITEM.sub("\n\n", text)):
        for sentence in _END.split(" ".join(block.split()) + "\n"):
            if sentence.strip():
                yield sentence.strip()


def _linked(match: re.Match[str]) -> str:
    """What a link shows; a file's name is a name."""
    return "NAME" if re.search(r"[./]", match.group(1)) else match.group(1)


def words(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"[A-Za-z0-9]", word))


def too_long(prose: str) -> list[str]:
    """The sentences of more words than allowed, each with its number of words."""
    return [f"{words(each)} words: {each}" for each in sentences(prose) if words(each) > WORDS_MOST]


def prose_of(file: Path) -> str:
    """What a module says in words: its docstrings, its fields' ones, and its comments, a blank line between them."""
    text = file.read_text()
    strings = [
        inspect.cleandoc(node.value.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n\n".join([*strings, *_comments(text)])


def _comments(text: str) -> Iterator[str]:
    """Comments; those on lines that follow one another are one text."""
    block: list[str] = []
    last = (-1, -1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            if block and (row, column) != (last[0] + 1, last[1]):
                yield "\n".join(block)
                block = []
            block.append(token.string.lstrip("#: "))
            last = (row, column)
    if block:
        yield "\n".join(block)
