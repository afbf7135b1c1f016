"""A strict check of Serve config files against Ray's own schemas.

Serve accepts unknown keys at every level, so that a typo silently becomes a default. Which keys
exist is read from the schemas, never listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from ray.runtime_env import RuntimeEnv
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from ray.serve.schema import ServeDeploySchema

from dcoco_core.errors import ConfigError
from dcoco_core.registry import unknown_name
from deployments.config import AppArgs, unknown_keys

IMPORT_PATH = "deployments.app:build"

# Sections whose schema is applied only when Serve deploys.
_LATE: dict[str, type[BaseModel]] = {
    "args": AppArgs,
    "autoscaling_config": AutoscalingConfig,
    "request_router_config": RequestRouterConfig,
    "autoscaling_policy": AutoscalingPolicy,
    "policy": AutoscalingPolicy,
}


class _NoDuplicates(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping; plain YAML takes the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """See yaml.SafeLoader."""
        keys = [key.value for key, _ in node.value]
        for key_node, _ in node.value:
            if keys.count(key_node.value) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} stands twice", key_node.start_mark
                )
        return super().construct_mapping(node, deep)


def check_file(path: Path) -> dict[str, Any]:
    """What a Serve config file says. Raises ConfigError naming every problem of it."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _NoDuplicates)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    problems = check_config(data)
    if problems:
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in problems))
    return dict(data)


def check_config(data: Any) -> list[str]:
    """What is wrong with a parsed Serve config file; nothing if it is right."""
    if not isinstance(data, Mapping):
        return ["must be a mapping with the key 'applications'"]
    sections = list(_sections("", data, ServeDeploySchema))
    problems = [
        problem
        for place, section, schema in sections
        for problem in unknown_keys(place or "top level", section, _keys(schema))
    ]
    if problems:
        return problems  # a typo makes the checks below complain about its consequences
    problems = _type_problems("", data, ServeDeploySchema)
    for place, section, schema in sections:
        if schema in _LATE.values():
            problems.extend(_type_problems(place, section, schema))
    http = data.get("http_options") or {}
    if isinstance(http, Mapping):
        if "host" not in http:
            problems.append(
                "http_options.host must be set: without it a config file serves on 0.0.0.0, that "
                "is, to everybody who can reach this machine. 127.0.0.1 is this machine alone"
            )
        port = http.get("port", 8000)
        if type(port) is not int or not 1 <= port <= 65535:
            problems.append(f"http_options.port must be 1 to 65535, not {port!r}")
    for index, application in enumerate(data.get("applications") or []):
        if isinstance(application, Mapping):
            problems.extend(_check_application(f"applications[{index}]", application))
    return problems


def _check_application(place: str, application: Mapping[str, Any]) -> Iterator[str]:
    if application.get("import_path") != IMPORT_PATH:
        yield f"{place}.import_path must be {IMPORT_PATH!r}, not {application.get('import_path')!r}"
        return
    try:
        names = list(AppArgs.model_validate(application.get("args") or {}).deployments)
    except ValidationError:
        return  # reported as the section `args`
    for index, deployment in enumerate(application.get("deployments") or []):
        name = deployment.get("name") if isinstance(deployment, Mapping) else None
        if name is not None and name not in names:
            yield f"{place}.deployments[{index}].name: " + unknown_name("deployment", name, names)


def _sections(
    place: str, data: Mapping[str, Any], schema: type[BaseModel]
) -> Iterator[tuple[str, Mapping[str, Any], type]]:
    """`data` and every section below it, with its place and its schema."""
    yield place, data, schema
    for key, value in data.items():
        inner = f"{place}.{key}" if place else str(key)
        if key == "runtime_env" and isinstance(value, Mapping):
            yield inner, value, RuntimeEnv
        elif key in schema.model_fields:
            section = _LATE.get(key) or _section(schema.model_fields[key].annotation)
            items = value if isinstance(value, list) else [value]
            for index, item in enumerate(items):
                if section is not None and isinstance(item, Mapping):
                    where = f"{inner}[{index}]" if isinstance(value, list) else inner
                    yield from _sections(where, item, section)


def _keys(schema: type) -> list[str]:
    if issubclass(schema, BaseModel):
        return list(schema.model_fields)
    return sorted(RuntimeEnv.known_fields)


def _section(annotation: Any) -> type[BaseModel] | None:
    """The schema inside an annotation such as Optional[List[Schema]]."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_section(part) for part in get_args(annotation))
    return next((schema for schema in found if schema is not None), None)


def _type_problems(place: str, data: Any, schema: type[BaseModel]) -> list[str]:
    """What pydantic says, one line per value."""
    try:
        schema.model_validate(data)
    except ValidationError as error:
        return [_describe(place, problem["loc"], problem["msg"]) for problem in error.errors()]
    except ValueError as error:
        return [_describe(place, (), str(error))]
    return []


def _describe(place: str, location: tuple[int | str, ...], message: str) -> str:
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        else:
            place += f".{part}" if place else part
    message = message.removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
