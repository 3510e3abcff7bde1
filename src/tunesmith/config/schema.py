"""A JSON schema of configuration files, with which editors complete, explain and check keys while one types."""

from tunesmith.config.coercion import Boolean, Kind, ListOf, MappingOf, Number, Words
from tunesmith.config.constraints import Range
from tunesmith.config.descriptions import all_descriptions
from tunesmith.config.llamafactory import known_keys
from tunesmith.config.objective import STAGES
from tunesmith.config.settings import Setting, all_settings

Schema = dict[str, object]

_NUMBER_TEXT = r"^[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def build_schema() -> Schema:
    """Return the schema of a whole file: every setting, and the sections of the stages."""
    properties: Schema = {}
    for key, setting in all_settings().items():
        properties[key] = _build_property(setting) | {"description": all_descriptions()[key]}
    for key, known in known_keys().items():
        accepted = [value for value in known.accepted if value != ""]
        properties[key] = {"enum": accepted, "description": f"This key is {known.render_refusal()}."}
    sections: Schema = {
        f"{stage}_args": {
            "type": ["object", "null"],
            "description": f"Settings for `stage: {stage}` alone; they win over those at the top.",
            "properties": {key: {"$ref": f"#/properties/{key}"} for key in properties if key != "stage"},
            "additionalProperties": False,
        }
        for stage in STAGES
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tunesmith configuration",
        "type": "object",
        "properties": properties | sections,
        "additionalProperties": False,
    }


def _build_property(setting: Setting) -> Schema:
    options = [_build_kind(kind) for kind in setting.kinds]
    if setting.optional:
        options.append({"type": "null"})
    built: Schema = options[0] if len(options) == 1 else {"anyOf": options}
    if setting.default is not None:
        default = setting.default
        built = built | {"default": list(default) if isinstance(default, tuple) else default}
    return built


def _build_kind(kind: Kind) -> Schema:
    match kind:
        case Words(words):
            return {"enum": list(words)}
        case Boolean():
            return {"type": "boolean"}
        case Number(whole=whole, allowed=allowed):
            number = {"type": "integer" if whole else "number"} | _build_bounds(allowed)
            # 1e-4 is text to editors that follow YAML 1.1, as it has no dot.
            return number if whole else {"anyOf": [number, {"type": "string", "pattern": _NUMBER_TEXT}]}
        case ListOf(item, takes_entries=takes_entries):
            inner = _build_kind(item)
            items: Schema = {"anyOf": [inner, {"type": "object"}]} if takes_entries else inner
            return {"anyOf": [{"type": "array", "items": items}, {"type": "string"}]}
        case MappingOf():
            return {"type": "object"}
        case _:
            return {"type": ["string", "number"]}


def _build_bounds(allowed: Range) -> Schema:
    bounds: Schema = {}
    if allowed.low is not None:
        bounds["exclusiveMinimum" if allowed.low_open else "minimum"] = allowed.low
    if allowed.high is not None:
        bounds["exclusiveMaximum" if allowed.high_open else "maximum"] = allowed.high
    return bounds
