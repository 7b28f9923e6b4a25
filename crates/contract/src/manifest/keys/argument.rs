//! The keys of `[tools.NAME.arguments]`.

use super::{DESCRIPTION, FORMATS, Key, Section, ValueType, argument_types};

pub static ARGUMENT: Section = Section {
    header: "[tools.NAME.arguments]",
    description: "One line for each `:name` of the statement, or each value of the request: `since = { type = \"date\" }`.",
    keys: &[
        Key::new(
            "type",
            ValueType::OneOf(argument_types),
            "The type: one of JSON Schema, or one that `as` takes. `json`, for arrays and objects, only with `request`.",
        )
        .default_text("`string`; `integer` for an `enum` of integers")
        .example("\"string\""),
        Key::new("as", ValueType::OneOf(argument_types), "The same as `type`.").example("\"date\""),
        Key::new(
            "format",
            ValueType::OneOf(|| FORMATS.to_vec()),
            "The format of a text, as in JSON Schema.",
        )
        .example("\"date\""),
        Key::new("description", DESCRIPTION, "What it means.")
            .example("\"First signup date to count.\"")
            .aliases(&["about"]),
        Key::new("enum", ValueType::Literals, "The allowed values.")
            .example("[\"free\", \"emerald\", \"ruby\"]")
            .aliases(&["values", "allowed", "options", "choices"]),
        Key::new("default", ValueType::Literal, "The value for a caller that omits it.")
            .example("\"2026-01-01\""),
        Key::new(
            "required",
            ValueType::Boolean,
            "Whether callers must give it. An omitted or `null` argument has its default, or is NULL in the statement.",
        )
        .default_text("`true`, or `false` with a `default`")
        .example("false")
        .aliases(&["optional", "nullable"]),
    ],
};
