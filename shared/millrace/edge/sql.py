"""Checks the SQL of a graph with sqlglot's Spark dialect, before Spark sees it."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.problems import HINTED_MOST, MOST_PROBLEMS, Problem, did_you_mean

# Settings that bring tables of their own, so that a name may be more than an input.
_CATALOGS = ("spark.sql.catalog.", "spark.sql.defaultCatalog", "spark.sql.catalogImplementation")

STEPS_A_TOKEN, STEPS_LEAST = 20, 5000  # what a parser may take; SQL as people write it needs two a token
STEPS_A_GRAPH = 150_000  # of all SQL of a graph: enough for 256 KB as people write it, and about a second

# Where a value must come, and what can only come behind one: a keyword between the two is a name. Signs can begin a value as well.
_SIGNS = {"DASH", "PLUS", "STAR", "TILDA"}
_COMPARISONS = {"EQ", "GT", "GTE", "ILIKE", "LIKE", "LT", "LTE", "NEQ", "NULLSAFE_EQ", "RLIKE"}
_OPERATORS = _COMPARISONS | {"AND", "BETWEEN", "DIV", "DPIPE", "MOD", "OR", "SLASH"}
_CLAUSES = {"GROUP_BY", "HAVING", "ORDER_BY"}
_BEFORE_A_VALUE = _SIGNS | _OPERATORS | _CLAUSES | {"COMMA", "DISTINCT", "ELSE", "L_PAREN", "NOT", "ON", "PARTITION_BY", "SELECT"}
_BEFORE_A_VALUE |= {"THEN", "WHEN", "WHERE"}
_AFTER_A_VALUE = _OPERATORS | _CLAUSES | {"ALIAS", "ASC", "COMMA", "DESC", "ELSE", "END", "FROM", "IN", "IS", "LIMIT", "R_PAREN"}
_AFTER_A_VALUE |= {"SEMICOLON", "THEN"}
_NO_NAMES = {"DISTINCT", "NOT"}  # they stand before a value, which can be such a name
_BEFORE_A_SIGN = _NO_NAMES | {"ALL", "INTERVAL", "SELECT"}
_CASE_MOST = 100  # tokens in which the WHEN of a CASE is looked for


@dataclass(frozen=True)
class Looked:
    """What sqlglot says of one text: a message (an error, or a warning) with its place, or the tables that it reads."""

    message: str | None = None
    warning: bool = False
    line: int | None = None
    column: int | None = None
    tables: tuple[str, ...] | None = None  # unqualified names, once each; None if not known
    steps: int = 0  # that it took


def check_sql(graph: JobGraph) -> list[Problem]:  # [R30]
    """Errors for SQL that is no single query, does not parse, or reads what is no input; else warnings.

    sqlglot knows nearly all of Spark's SQL. What it understands as a command (SHOW, DESCRIBE, ...) or cannot follow to
    its depth is left to Spark with a warning. So is what comes when all before it have used up the steps of a graph. Steps count also for
    a text that was looked at before, so that the same graph always has the same problems.
    """
    problems = []
    left = STEPS_A_GRAPH
    qualified = any(key.startswith(_CATALOGS) for key in graph.conf)
    for name, vertex in graph.vertices.items():
        if vertex.sql is None:
            continue
        place = ("vertices", name, "sql")
        looked = look(vertex.sql, left)
        left -= looked.steps
        if looked.message is not None:
            problems.append(Problem(place, looked.message, None, looked.warning, looked.line, looked.column))
        if looked.tables is None or vertex.inputs is None:  # as `readable` has it of a graph that is not valid
            continue
        known = {alias.lower(): alias for alias in vertex.inputs}
        for table in looked.tables:
            if table.lower() not in known and not qualified and len(problems) <= MOST_PROBLEMS:
                others = f"its inputs are {', '.join(vertex.inputs)}" if vertex.inputs else "it has no inputs"
                hint = did_you_mean(table, vertex.inputs, others) if len(problems) < HINTED_MOST else others
                problems.append(Problem(place, f"reads {table}, which is no input", hint))
        for alias in vertex.inputs:
            if not re.search(rf"\b{re.escape(alias)}\b", vertex.sql, re.IGNORECASE):
                problems.append(Problem((*place[:2], "inputs", alias), "is not read by the query", None, True))
    return problems


@lru_cache(maxsize=1024)
def look(text: str, most: int = STEPS_A_GRAPH) -> Looked:
    """What sqlglot says of a text in at most so many steps; the same text is parsed once."""
    if most <= 0:
        return Looked("is behind so much SQL in this graph that only Spark can tell whether it is right", warning=True)
    steps = Steps(most)
    looked = _look(text, steps)
    return replace(looked, steps=most - max(0, steps.left))


class Steps:
    """How many a parser may still take."""

    def __init__(self, left: int) -> None:
        self.left = left


def _look(text: str, steps: Steps) -> Looked:
    import sqlglot  # takes a tenth of a second: only where there is SQL
    from sqlglot import exp

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what becomes a warning of ours
    try:
        # A Semicolon is a last comment behind one.
        statements = [each for each in _parsed(text, steps) if each is not None and not isinstance(each, exp.Semicolon)]
    except sqlglot.errors.ParseError as error:
        return _parse_error(error.errors[0] if error.errors else {}, str(error))
    except sqlglot.errors.TokenError as error:
        return _token_error(text, f"{error.__cause__ or error}")
    except RecursionError:
        how = "so long, with the SQL before it," if steps.left <= 0 else "nested so deeply"
        return Looked(f"is {how} that only Spark can tell whether it is right", warning=True)
    except Exception:  # a mistake of sqlglot itself: a stranger's text must not end who checks it
        return Looked("is such that only Spark can tell whether it is right", warning=True)
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "no statement"
        return Looked(f"must be one query, not {count}")
    statement = statements[0]
    word = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w*)", text, re.DOTALL)
    first = word.group(1).upper() if word else ""
    if isinstance(statement, exp.Query) or first in ("VALUES", "TABLE"):
        return Looked(tables=_tables(statement, exp))
    if isinstance(statement, (exp.Command, exp.Describe, exp.Show)):
        return Looked(f"only Spark can tell whether this {first} is right", warning=True)
    return Looked(f"must be a query (SELECT, WITH, FROM, VALUES, TABLE), not {first}")


def _parsed(text: str, steps: Steps) -> Any:
    """The statements of a text. Raises sqlglot's errors, RecursionError, and whatever a mistake of sqlglot raises."""
    from sqlglot.errors import ParseError

    dialect, parser = _dialect()
    tokens = dialect.tokenize(text)
    steps.left -= len(tokens)  # to tell them apart takes about as long

    def parse(read: list[Any]) -> Any:
        patient = parser(dialect=dialect)
        patient.steps = Steps(min(steps.left, STEPS_A_TOKEN * len(read) + STEPS_LEAST))
        began = patient.steps.left
        try:
            return patient.parse(read, text)
        finally:
            steps.left -= began - max(0, patient.steps.left)

    try:
        return parse(tokens)
    except ParseError:
        with suppress(ParseError):
            return parse(_as_spark_reads(tokens))
        raise


def _as_spark_reads(tokens: list[Any]) -> list[Any]:
    """With the tokens as Spark takes them where sqlglot takes them for something else. To Spark a keyword can be a name: `t.select`,
    `where.x`, `WHERE any > 1`, `GROUP BY from`, `x AS order`, a column called values, the function `window(`. And `>>>` is one operator."""
    from sqlglot import Token, TokenType

    read: list[Any] = []
    for number, (token, after) in enumerate(zip(tokens, [*tokens[1:], None], strict=True)):
        kind, follows = token.token_type.name, after.token_type.name if after is not None else "SEMICOLON"
        asked, earlier = ([None, None] + [each.token_type.name for each in read[-2:]])[:-3:-1]
        if asked == "STAR" and (earlier == "DOT" or earlier in _BEFORE_A_VALUE):
            asked = None  # all columns, which is a value
        if asked == "L_PAREN" and earlier in ("ALIAS", "OVER") and kind in ("RANGE", "ROWS"):
            asked = None  # a frame of a window
        behind = tokens[number + 1 : number + _CASE_MOST]
        negated = asked == "NOT" and earlier not in _BEFORE_A_VALUE  # a value is there to be negated
        name = token.text.isidentifier() and (
            asked == "DOT"
            or (after is not None and follows == "DOT" and after.start == token.end + 1)
            or (asked in _BEFORE_A_VALUE and kind not in _NO_NAMES and follows in _AFTER_A_VALUE)
            or (asked in _BEFORE_A_VALUE and follows in _SIGNS and not _takes_a_value(kind, negated, behind))
            or (asked == "ALIAS" and follows in ("COMMA", "FROM", "R_PAREN", "SEMICOLON"))
            or (kind == "WINDOW" and follows == "L_PAREN")
            or (kind == "VALUES" and follows not in ("L_PAREN", "NUMBER", "STRING"))
        )
        if [each.token_type for each in (*read[-2:], token)] == [TokenType.GT] * 3 and token.end - read[-2].start == 2:
            continue
        read.append(Token(TokenType.IDENTIFIER, token.text, token.line, token.col, token.start, token.end) if name else token)
    return read


def _takes_a_value(kind: str, negated: bool, after: list[Any]) -> bool:
    """Whether a keyword before a sign is none of a column: `NOT BETWEEN -5`, `CASE -x WHEN`."""
    if kind != "CASE":
        return kind in _BEFORE_A_SIGN or (kind == "BETWEEN" and negated)
    depth = 0
    names: list[str] = [each.token_type.name for each in after]
    for name in names:
        depth += (name == "L_PAREN") - (name == "R_PAREN")
        if depth < 0 or (depth == 0 and name in ("ALIAS", "COMMA", "FROM", "WHEN")):
            return name == "WHEN"
    return False


@lru_cache(maxsize=1)
def _dialect() -> tuple[Any, Any]:
    """Spark's with what Databricks gave to Spark 4 (`a:b::int`, VOID), by whose name a new one would be made for each text; and a parser
    of it that does not try for ever.

    sqlglot tries `date(`, `struct(` and their like as a type and as a function, so that n of them in one another take 2**n steps.
    """
    from sqlglot import Dialect

    dialect: Any = Dialect.get_or_raise("databricks")

    class Patient(dialect.parser_class):  # type: ignore[misc]  # a class that is made at runtime
        def _advance(self, times: int = 1) -> None:
            self.steps.left -= 1
            if self.steps.left < 0:
                raise RecursionError
            super()._advance(times)

    return dialect, Patient


def _tables(statement: Any, exp: Any) -> tuple[str, ...] | None:
    """The unqualified tables that a query reads, without its common table expressions."""
    if isinstance(statement, exp.Alias):  # TABLE name: an alias of a column called table, to sqlglot
        return (statement.alias,)
    defined = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    tables: dict[str, str] = {}
    for table in statement.find_all(exp.Table):
        if isinstance(table.parent, exp.JoinHint):
            continue  # a hint names tables by their aliases, and Spark passes over one that names none
        if not isinstance(table.this, exp.Identifier):
            if table.name.upper() == "IDENTIFIER":
                return None  # a name that is computed
            continue  # a function
        if not table.db and table.name.lower() not in defined:
            tables.setdefault(table.name.lower(), table.name)
    return tuple(tables.values())


def _parse_error(first: dict[str, Any], otherwise: str) -> Looked:
    near = str(first.get("highlight") or "")
    words = str(first.get("description") or otherwise)
    words = re.sub(r"<Token token_type: TokenType\.SENTINEL,.*?>", "the end", words)
    words = re.sub(r"<Token token_type: .*?, text: (.*?), line: .*?>", r"\1", words)
    words = re.sub(r"Required keyword: .*", "incomplete expression", words)
    if words.startswith("Invalid expression") and near:
        words, near = f"unexpected {near}", ""
    words = words[:1].lower() + words[1:].rstrip(".")
    line, end = first.get("line"), first.get("col")
    column = max(1, end - len(str(first.get("highlight") or "")) + 1) if isinstance(end, int) else None
    where = f" at line {line}, column {column}" if line else ""
    return Looked(f"does not parse: {words}{where}" + (f", near {near}" if near else ""), line=line, column=column)


def _token_error(text: str, cause: str) -> Looked:
    found = re.fullmatch(r"Missing (.+) from (\d+):(\d+)", cause)
    if found is None:
        return Looked("does not parse: a quote or comment does not end")
    return Looked(f"does not parse: a {found.group(1)} does not end", line=int(found.group(2)))
