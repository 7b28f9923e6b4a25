//! The keys of `[resources.NAME]`.

use super::{COLUMN, DESCRIPTION, ITEM_ACCESS, Key, NameRule, PATH, Section, TITLE, TextLength, ValueType};

pub static RESOURCE: Section = Section {
    header: "[resources.NAME]",
    description: "A resource with one of `file`, `collection` and `script`. Files in `resources/` are served without it.",
    keys: &[
        Key::new("file", PATH, "A file in `resources/`, which gets the settings below.")
            .example("\"handbook.md\"")
            .aliases(&["path"]),
        Key::new(
            "collection",
            COLUMN,
            "A collection: the URI has its key as a variable, and the record is the content, as JSON.",
        )
        .example("\"customers\""),
        Key::new(
            "script",
            PATH,
            "A file of code, relative to the manifest. Its default export takes the variables of the URI and returns the \
             content.",
        )
        .example("\"resources/order.ts\"")
        .aliases(&["code", "handler"]),
        Key::new(
            "uri",
            ValueType::Text(TextLength::NonBlank(2000)),
            "The URI, with `{name}` for variables. A file has no variables.",
        )
        .default_text("`resource://NAME` for a file; required otherwise")
        .example("\"orders://{id}\"")
        .aliases(&["uri_template", "url"]),
        Key::new("title", TITLE, "A short name for people.").example("\"Order\""),
        Key::new("description", DESCRIPTION, "What it contains and when to read it.")
            .example("\"One order with its lines.\"")
            .aliases(&["about"]),
        Key::new("mime_type", ValueType::Text(TextLength::NonBlank(200)), "The type of the content.")
            .default_text("found from a file; `application/json` for a collection")
            .example("\"application/json\"")
            .aliases(&["type", "content_type", "mimetype"]),
        Key::new("listed", ValueType::Boolean, "Whether it is in the list. Any resource can be read and subscribed to.")
            .default_text("`true`")
            .example("false")
            .aliases(&["hidden"]),
        Key::new("audience", ValueType::SomeOf(|| vec!["user", "assistant"]), "Whom it is for.")
            .example("[\"assistant\"]"),
        Key::new("priority", ValueType::Literal, "How important it is: a number from 0 to 1.").example("0.5"),
        Key::new(
            "complete",
            ValueType::NamedTables(&COMPLETION, NameRule::Argument),
            "Suggestions for the variables of the URI.",
        )
        .example("{ id = { values = [\"1\", \"2\"] } }")
        .aliases(&["completions", "completion"]),
        Key::new(
            "access",
            ValueType::Table(&ITEM_ACCESS),
            "Which roles may read it. Without it, files are for every role, records for roles that may `get` them, and what code \
             returns for none.",
        )
        .example("{ roles = [\"staff\"] }"),
    ],
};

pub static COMPLETION: Section = Section {
    header: "[resources.NAME.complete]",
    description: "One line for each variable: `id = { collection = \"orders\", field = \"id\" }`.",
    keys: &[
        Key::new("values", ValueType::Names, "The suggested values.").example("[\"draft\", \"paid\"]"),
        Key::new("collection", COLUMN, "A collection whose values are suggested. Needs `field`.")
            .example("\"orders\""),
        Key::new("field", COLUMN, "The field with the values.").example("\"id\""),
        Key::new("files", PATH, "A folder of `resources/` whose paths are suggested, or `.` for all.")
            .example("\"guides\""),
    ],
};
