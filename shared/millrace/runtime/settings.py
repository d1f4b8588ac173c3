"""The settings of a service: from a file, the environment and flags, the later wins; mistakes are reported by name.

A service says what it needs by subclassing, and nothing else:

    class DispatcherSettings(ServiceSettings):
        '''Takes submissions, stores accepted jobs, starts them on a shard.'''

        service: ClassVar[str] = "dispatcher"
        blob_port: int = Field(0, ge=0, le=65535, description="Port of the BlobServer; 0 takes a free one.")
        blob_token: SecretStr = Field(description="Token that clients of the BlobServer present.")

    settings = DispatcherSettings.load_or_exit()
    log.info("starts", settings=settings.describe())

gives `--blob-port 0`, `MILLRACE_BLOB_PORT=0` and `blob_port: 0` in the file. A field of a nested model is
`--limits.jobs 9`, `MILLRACE_LIMITS__JOBS=9`. A list is `--shards 0,1`, `MILLRACE_SHARDS=0,1`. A SecretStr is never
taken from a flag, because every user of the machine can read a command line.

One file can serve all services: its top level holds what all share, a section named after a service (`dispatcher:`,
`task_manager:`) what that one alone is told. Flink's names may stand at its top level (`flink_settings.py`).
Constructing a class directly (`DispatcherSettings(blob_token="...")`)
reads neither file nor environment.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, get_origin

from pydantic import BaseModel, Field, PrivateAttr, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from millrace.core.messages.processes import BY_DEFAULT, SETTING_CHARACTERS_MOST, Setting
from millrace.io.addresses import SHORTEST_TOKEN, is_loopback

from . import flink_settings
from .logs import Redaction
from .metrics_scope import LogInterval, MetricsScope, filled

PREFIX = "MILLRACE_"
SERVICES = ("dispatcher", "resource_manager", "job_master", "task_manager", "web", "history")
S = TypeVar("S", bound="ServiceSettings")
Origins = tuple[tuple[str, Mapping[str, Any]], ...]
"""What was given where, the later wins."""


class BadSettings(Exception):
    """Settings that cannot be used; `problems` has one sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class ServiceSettings(BaseSettings):
    """What every service is told."""

    # What comes from outside is gathered by `load` alone, so that a settings object made in code depends on its
    # arguments only.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        validate_default=True,
    )

    service: ClassVar[str] = "service"
    _ignored: list[str] = PrivateAttr(default_factory=list)
    _origins: Origins = PrivateAttr(default=())

    config: Path | None = Field(None, description="YAML file with settings.")
    cluster: str = Field(
        "default",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Name of the cluster; prefix of its keys in etcd.",
    )
    instance: str = Field(
        "", max_length=200, description="Name of this process; empty: the service's name and a random suffix."
    )
    kafka_bootstrap: str = Field("127.0.0.1:9092", min_length=1, description="Kafka brokers, host:port[,host:port].")
    etcd_endpoint: str = Field("127.0.0.1:2379", min_length=1, description="etcd, host:port; a name may have several addresses.")
    storage_url: str = Field(
        "data/storage",
        min_length=1,
        description="Shared storage: a folder, or an fsspec URL such as s3://bucket/millrace.",
    )
    health_port: int = Field(0, ge=0, le=65535, description="Port for /health, /ready and /metrics; 0 takes a free one.")
    published_on_loopback: bool = Field(
        False, description="It is in a container whose ports are published on loopback alone. Then it may listen on another address."
    )
    metrics_token: SecretStr = Field(
        SecretStr(""), description="What who asks for /health, /ready and /metrics must carry (`Authorization: Bearer`); empty: nothing."
    )
    health_host: str = Field(
        "127.0.0.1", min_length=1, description="Address for these. Another than loopback needs metrics_token, or a container."
    )
    metrics_log_interval_ms: LogInterval = Field(
        0, ge=0, le=86_400_000, description="How often a process logs its metrics in one line, at least 1000 apart; 0: never."
    )
    metrics_scope: MetricsScope = Field(
        "<host>.<service>.<instance>",
        max_length=300,
        description="What such a line names its process by: `<host>`, `<service>`, `<instance>`, `<cluster>`; `<tm_id>` of a TaskManager.",
    )
    ready_file: Path | None = Field(
        None, description="File written once the service is up: its process id and ports, as JSON."
    )
    log_format: Literal["auto", "json", "human"] = Field("auto", description="auto: human on a terminal, else json.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level that is logged."
    )

    @field_validator("storage_url")
    @classmethod
    def _absolute(cls, url: str) -> str:
        """A folder is taken from the working directory once, here, so that what is said about it later is
        unambiguous."""
        return url if "://" in url else str(Path(url).expanduser().absolute())

    @field_validator("kafka_bootstrap", "etcd_endpoint")
    @classmethod
    def _in_clear(cls, where: str) -> str:
        """An address that asks for more would never answer, and the libraries' words for that do not tell why."""
        if re.search(r"(^|,)\s*(https|ssl|sasl_plaintext|sasl_ssl)://", where, re.IGNORECASE):
            raise ValueError("Kafka and etcd are spoken to without TLS and passwords; give host:port, in a network of the cluster's own")
        return where

    @field_validator("health_host")
    @classmethod
    def _not_open(cls, host: str, others: ValidationInfo) -> str:
        token: SecretStr = others.data.get("metrics_token", SecretStr(""))
        if not is_loopback(host) and not others.data.get("published_on_loopback") and len(token.get_secret_value()) < SHORTEST_TOKEN:
            raise ValueError(
                f"whoever reaches it may read: give metrics_token, of at least {SHORTEST_TOKEN} characters, or listen on loopback; "
                "in a container that is published on loopback alone, set published_on_loopback"
            )
        return host

    @field_validator("instance")
    @classmethod
    def _named(cls, name: str) -> str:
        return name or f"{_program(cls)}-{secrets.token_hex(3)}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @classmethod
    def load(cls: type[S], argv: Sequence[str] | None = None) -> S:
        """The settings from file, environment and flags (`argv` without the program's name; default: this process's).

        Raises BadSettings with every mistake found; SystemExit(0) after `--help`."""
        flags = _flags(cls, list(sys.argv[1:] if argv is None else argv))
        environment, ignored = _environment(cls)
        path = flags.get("config") or environment.get("config")
        file = _file(cls, Path(path)) if path else {}
        origins: Origins = ((f"in {path}", file), ("from the environment", environment), ("from a flag", flags))
        given: dict[str, Any] = {}
        for _, values in origins:
            given = merged(given, values)
        try:
            settings = cls(**given)
        except ValidationError as error:
            raise BadSettings([_sentence(cls, each, origins) for each in error.errors(include_input=False)]) from None
        settings._ignored, settings._origins = ignored, origins
        return settings

    @classmethod
    def load_or_exit(cls: type[S], argv: Sequence[str] | None = None) -> S:
        """As `load`; mistakes are printed, one a line, and end the process with exit code 2."""
        try:
            return cls.load(argv)
        except BadSettings as bad:
            _refuse(_program(cls), bad.problems)

    def describe(self) -> dict[str, Any]:
        """All settings as plain JSON values, for the line that is logged at start: secrets and passwords in URLs are
        masked. `ignored_environment` names the variables MILLRACE_... that are no settings of this service."""
        shown = {name: _shown(getattr(self, name)) for name in type(self).model_fields}
        return {**shown, "ignored_environment": self._ignored} if self._ignored else shown

    def effective(self) -> list[Setting]:
        """Each setting by name, without secrets, and from where it is: a file, a variable, a flag, or by default."""
        redaction = Redaction(self.secret_values())  # settings for Spark may hold keys of a storage

        def shown(name: str, value: Any) -> Any:
            plain = _shown(value)
            return _bounded(plain if isinstance(value, SecretStr | Path) else redaction.masked(name, plain))

        return [
            Setting(name=".".join(path), value=shown(path[-1], value), origin=_origin(self._origins, path)) for path, value in _leaves(self)
        ]

    def scope(self) -> str:
        """`metrics_scope` with its variables put in."""
        tm_id = str(getattr(self, "id", ""))  # a TaskManager's name
        return filled(self.metrics_scope, _program(type(self)), self.instance, self.cluster, tm_id or self.instance)

    def secret_values(self) -> list[str]:
        """The secrets in clear, for the log's redaction."""
        return _secrets_of(self)

    def write_ready(self, **facts: Any) -> None:
        """Tells whoever started the process that it is up: writes `ready_file`, if one was asked for, in one step."""
        if self.ready_file is None:
            return
        ready = {"service": self.service, "instance": self.instance, "pid": os.getpid(), **facts}
        self.ready_file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.ready_file.with_name(f".{self.ready_file.name}.{os.getpid()}")
        temporary.write_text(json.dumps(ready) + "\n")
        temporary.replace(self.ready_file)


# ---- the three sources


def _flags(cls: type[ServiceSettings], argv: list[str]) -> dict[str, Any]:
    parser = _Parser(
        prog=_program(cls),
        description=cls.__doc__,
        epilog=f"Settings may also stand in the file of --config. A flag wins over {PREFIX}..., that over the file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def add_argument(target: Any, *names: str, **options: Any) -> Any:
        field = _field(cls, options["dest"].split("."))
        if field is not None:
            if _model_of(field):
                return None  # its fields have flags of their own; as one JSON text it could carry a secret
            options["help"] = _help(options["dest"], field).replace("%", "%%")
            if _is_secret(field):
                options.update(action=_RefusedFlag, nargs="?", metavar="refused")
                options.pop("type", None)
        return argparse.ArgumentParser.add_argument(target, *names, **options)

    source: CliSettingsSource[_Parser] = CliSettingsSource(
        cls,
        root_parser=parser,
        parse_args_method=_Parser.parse_all,
        add_argument_method=add_argument,
        cli_parse_args=argv,
    )
    try:
        return source()
    except SettingsError as error:
        raise BadSettings([f"a flag cannot be read: {error}"]) from None


class _Parser(argparse.ArgumentParser):
    """Refuses unknown flags with a suggestion, and repeats no value: it might be a secret."""

    def parse_all(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:
        parsed: argparse.Namespace
        parsed, extra = self.parse_known_args(args, namespace)
        known = [name for action in self._actions for name in action.option_strings]
        unknown = [word.split("=")[0] for word in extra if word.startswith("-")]
        if extra:
            problems = [f"unknown flag {name}{did_you_mean(name, known)}" for name in unknown]
            raise BadSettings(problems or ["a value without a flag was given; every setting is given as --name VALUE"])
        return parsed

    def error(self, message: str) -> NoReturn:
        raise BadSettings([message])


class _RefusedFlag(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        instead = f"give {_variable(self.dest)} or the file of --config"
        raise BadSettings([f"{option_string} is a secret and not taken from the command line; {instead}"])


class _Environment(EnvSettingsSource):
    """Lists may be written `0,1` as well as in JSON."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value.split(",")


def _environment(cls: type[ServiceSettings]) -> tuple[dict[str, Any], list[str]]:
    """What the environment says, and the names that begin with MILLRACE_ and mean nothing here. Those may belong to
    another program, for services share an environment; one that looks like a slip of a setting's name is refused."""
    names = sorted(name.upper() for name in cls.model_fields)
    unknown, problems = [], []
    for variable in sorted(name for name in os.environ if name.startswith(PREFIX)):
        stem = variable.removeprefix(PREFIX).split("__")[0]
        if stem not in names:
            unknown.append(variable)
            close = difflib.get_close_matches(stem, names, n=1, cutoff=0.8)
            problems += [f"unknown variable {variable}; did you mean {PREFIX}{close[0]}?"] if close else []
    if problems:
        raise BadSettings(problems)
    try:
        return _Environment(cls)(), unknown
    except SettingsError as error:
        raise BadSettings([f"a variable in the environment cannot be read: {error}"]) from None


def _file(cls: type[ServiceSettings], path: Path) -> dict[str, Any]:
    """The file's top level, overlaid with the section of this service."""
    section = cls.service.replace("-", "_")
    content, problems = flink_settings.taken(read_file(path), section)
    if problems:
        raise BadSettings([f"in {path}: {each}" for each in problems])
    own = content.get(section) or {}
    common = {name: value for name, value in content.items() if name not in SERVICES}
    if not isinstance(own, dict):
        raise BadSettings([f"section {section} in {path} must be a mapping of names to values"])
    if "config" in common or "config" in own:
        raise BadSettings([f"config cannot stand in {path} itself; give --config or {PREFIX}CONFIG"])
    return {str(name): value for name, value in merged(common, own).items()}


def read_file(path: Path) -> dict[Any, Any]:
    """A settings file as it stands. Raises BadSettings."""
    from ruamel.yaml import YAML  # 2 MB that a service without a file need not load
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings([f"the settings file {path} cannot be read: {error.strerror}"]) from None
    except (YAMLError, UnicodeDecodeError) as error:
        place = "not UTF-8 text"
        if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
            place = f"line {error.problem_mark.line + 1}: {error.problem}"
        raise BadSettings([f"the settings file {path} is not YAML: {place}"]) from None
    if content is not None and not isinstance(content, dict):
        raise BadSettings([f"the settings file {path} must be a mapping of names to values"])
    return dict(content or {})


# ---- small helpers


def _program(cls: type[ServiceSettings]) -> str:
    return cls.service.replace("_", "-")


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` wins, mapping by mapping."""
    found = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _field(model: type[BaseModel] | None, path: Sequence[Any]) -> FieldInfo | None:
    """The field that a path of names means; None if there is none. A key of a mapping of models means the mapping."""
    field, keyed = None, False
    for name in path:
        if not keyed:
            field = model.model_fields.get(str(name)) if model is not None else None
            if field is None:
                return None
            model = _model_of(field)
        keyed = not keyed and field is not None and get_origin(field.annotation) is dict
    return field


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *getattr(field.annotation, "__args__", ()))


def _help(dest: str, field: FieldInfo) -> str:
    notes = ["not as a flag"] if _is_secret(field) else []
    if field.is_required():
        notes.append("required")
    elif field.default not in (None, "") and not _is_secret(field) and field.default_factory is None:
        notes.append(f"default: {field.default}")
    return f"{field.description or ''} [{'; '.join([*notes, _variable(dest)])}]".strip()


def _variable(dest: str) -> str:
    return PREFIX + dest.upper().replace(".", "__")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else flink_settings.misplaced(name) or f"; known are {', '.join(sorted(known))}"


def _sentence(cls: type[ServiceSettings], error: Any, origins: Origins) -> str:
    """One validation error in words: which setting, from where, what is wrong. Never its value: it may be a secret."""
    path = list(error["loc"])
    name = ".".join(str(part) for part in path)
    if error["type"] == "missing":
        field = _field(cls, path)
        flag = "" if field is None or _is_secret(field) else f"--{name.replace('_', '-')}, "
        return f"{name} is required; give {flag}{_variable(name)} or {name} in the file of --config"
    origin = _origin(origins, path)
    if error["type"] == "extra_forbidden":
        above = _field(cls, path[:-1])
        model = cls if len(path) == 1 else _model_of(above) if above else None
        known = [*(model.model_fields if model else ()), *(SERVICES if len(path) == 1 else ())]
        return f"unknown setting {name} {origin}{did_you_mean(str(path[-1]), known)}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{name} {origin}: {message}"


def _origin(origins: Origins, path: Sequence[Any]) -> str:
    return next((where for where, values in reversed(origins) if _holds(values, path)), BY_DEFAULT)


def _leaves(model: BaseModel, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path of names of each field, and its value; a model within it is its fields."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, *above, name)
        else:
            yield (*above, name), value


def _holds(values: Any, path: Sequence[Any]) -> bool:
    """Whether a source gave the setting at `path` (or, for an index into a list, the list)."""
    for part in path:
        if not isinstance(values, Mapping):
            return True
        if part not in values:
            return False
        values = values[part]
    return True


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return "***" if value.get_secret_value() else ""
    if isinstance(value, BaseModel):
        return {name: _shown(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): _shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"(?<=://)[^/@\s]*@", "***@", value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _bounded(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= SETTING_CHARACTERS_MOST else text[:SETTING_CHARACTERS_MOST]


def _secrets_of(value: Any) -> list[str]:
    if isinstance(value, SecretStr):
        return [value.get_secret_value()] if value.get_secret_value() else []
    if isinstance(value, BaseModel):
        return [secret for name in type(value).model_fields for secret in _secrets_of(getattr(value, name))]
    if isinstance(value, Mapping):
        return [secret for each in value.values() for secret in _secrets_of(each)]
    if isinstance(value, list | tuple):
        return [secret for each in value for secret in _secrets_of(each)]
    return []


def _refuse(program: str, problems: Sequence[str]) -> NoReturn:
    """Its last line is a problem: an agent shows that one."""
    head = "a setting is wrong" if len(problems) == 1 else f"{len(problems)} settings are wrong"
    print(f"{program}: {head} ({program} --help lists all):", *(f"  {each}" for each in problems), sep="\n", file=sys.stderr)
    raise SystemExit(2)
