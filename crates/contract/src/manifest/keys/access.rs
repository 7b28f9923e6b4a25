//! The keys of `[roles.NAME]` and of the tables named `access`.

use super::{Key, Section, ValueType, operations};

pub static ROLE: Section = Section {
    header: "[roles.NAME]",
    description: "A role of callers. With at least one role, nothing is permitted that no role grants.",
    keys: &[
        Key::new(
            "when",
            ValueType::ClaimConditions,
            "Who has the role: JSON pointers into the caller's claims, each with a value or several of which one must match; a \
             claim that is an array matches with any element. All pointers must match. `\"anyone\"`: every caller.",
        )
        .default_text("nobody: the role is only for `includes` of others")
        .example("{ \"/groups\" = [\"support\", \"sales\"] }")
        .aliases(&["if", "match", "claims"]),
        Key::new("scopes", ValueType::Names, "Scopes that the caller's token must have as well, all of them.")
            .default_text("none")
            .example("[\"data.read\"]")
            .aliases(&["scope"]),
        Key::new("includes", ValueType::Names, "Roles whose grants this one has, too.")
            .default_text("none")
            .example("[\"support\"]")
            .aliases(&["inherits", "extends", "include"]),
    ],
};

pub static COLLECTION_ACCESS: Section = Section {
    header: "[collections.NAME.access.ROLE]",
    description: "What callers with a role may do with the rows of a collection.",
    keys: &[
        Key::new(
            "operations",
            ValueType::SomeOf(operations),
            "The operations, in addition to those of roles that this one includes.",
        )
        .default_text("those of the included roles; without one, the reading operations of the collection")
        .example("[\"get\", \"list\"]")
        .aliases(&["allow", "actions", "can"]),
        Key::new(
            "hidden",
            ValueType::Names,
            "Fields that do not exist for the role: not in results, filters, orders, groups, measures or searches.",
        )
        .default_text("those of the included roles; without one, none")
        .example("[\"phone\", \"notes\"]")
        .aliases(&["hide", "exclude", "except"]),
        Key::new("fields", ValueType::Names, "The only fields that exist for the role, instead of `hidden`.")
            .example("[\"id\", \"name\"]")
            .aliases(&["columns", "only", "include"]),
        Key::new(
            "where",
            ValueType::RowConditions,
            "The rows that exist for the role: each field with a value, an array of values, `{ claim = \"/tenant\" }`, \
             `{ min = 1, max = 9 }`, `{ not = \"x\" }`, `{ is = \"null\" }` or `{ is = \"not null\" }`. A row must fulfil all of \
             them; of an array of such tables, one. Without a claim that it needs, a call is refused. `{}`: all rows.",
        )
        .default_text("those of the included roles; without one, all rows")
        .example("{ tenant_id = { claim = \"/tenant\" } }")
        .aliases(&["rows", "filter", "filters", "condition", "predicate"]),
        Key::new(
            "set",
            ValueType::Assignments,
            "Fields that the server sets in every row which the role creates or updates: a value, or \
             `{ claim = \"/sub\" }`. Callers cannot set them.",
        )
        .default_text("those of the included roles; without one, none")
        .example("{ edited_by = { claim = \"/sub\" } }")
        .aliases(&["presets", "defaults"]),
    ],
};

pub static ITEM_ACCESS: Section = Section {
    header: "[tools.NAME.access]",
    description: "Who may use a tool, a resource or a prompt. SQL and code are for no role without it.",
    keys: &[Key::new("roles", ValueType::Names, "The roles.")
        .example("[\"staff\"]")
        .aliases(&["role", "allow"])],
};

pub static PROMPT: Section = Section {
    header: "[prompts.NAME]",
    description: "A prompt of the folder. Without it, a prompt of text is for every role, and one of code for none.",
    keys: &[Key::new("access", ValueType::Table(&ITEM_ACCESS), "Which roles may use it.")
        .example("{ roles = [\"staff\"] }")],
};
