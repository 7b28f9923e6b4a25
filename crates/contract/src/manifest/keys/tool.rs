//! The keys of tools and of their arguments.

use super::{
    AppliesTo, BYTES, CHANGES_MAX_LIMIT, COLUMN, COLUMN_CHARS_MAX, DESCRIPTION, DataType, FIELD, FORMATS,
    ITEM_ACCESS, Key, NameRule, REQUEST, ROWS, Section, TIMEOUT, TITLE, TextLength, ValueType,
    confirm_values,
};

pub static TOOL: Section = Section {
    header: "[tools.NAME]",
    description: "A tool with `uses`, `sql` or `request`.",
    keys: &[
        Key::new("uses", COLUMN, "A collection and an operation. The generated tool gets this name.")
            .example("\"customers.get\"")
            .aliases(&["use", "operation", "collection"]),
        Key::new(
            "sql",
            ValueType::Sql,
            "An SQL statement, with `:name` for arguments. It is prepared and typed at compile time.",
        )
        .example("\"select plan, count(*) as customers from customers where signup_date >= :since group by plan\"")
        .aliases(&["query", "statement"]),
        Key::new("request", ValueType::Table(&REQUEST), "A request to a REST API.")
            .example("{ method = \"POST\", path = \"/orders/{order_id}/refund\" }")
            .aliases(&["http", "endpoint", "rest"]),
        Key::new("source", COLUMN, "The source that runs the statement, or that the request goes to.")
            .default_text("the only source")
            .example("\"crm\"")
            .applies_to(AppliesTo::StatementsAndRequests),
        Key::new(
            "arguments",
            ValueType::NamedTables(&ARGUMENT, NameRule::Argument),
            "The arguments, one for each `:name` or `{name}`, in the order in which clients see them.",
        )
        .example("{ since = { type = \"date\" } }")
        .aliases(&["args", "parameters", "params", "inputs", "input"])
        .applies_to(AppliesTo::StatementsAndRequests),
        Key::new("writes", ValueType::Boolean, "Whether the statement or the request may change data.")
            .default_text("`false`: a statement that writes is an error; for a request, by its method")
            .example("true")
            .aliases(&["write", "writable", "readonly", "read_only"])
            .applies_to(AppliesTo::StatementsAndRequests),
        Key::new(
            "changes_max",
            ValueType::Integer { min: 1, max: CHANGES_MAX_LIMIT as u64 },
            "The maximum number of changed rows; a statement that would change more is rolled back. Only with \
             `writes = true`.",
        )
        .default_text("1")
        .example("10")
        .applies_to(AppliesTo::Statements),
        Key::new(
            "returns",
            ValueType::OneOf(|| vec!["many", "one"]),
            "Rows as `items`, or exactly one row, with `not_found` if there is none.",
        )
        .default_text("`many`")
        .example("\"one\"")
        .aliases(&["return"])
        .applies_to(AppliesTo::StatementsAndRequests),
        Key::new(
            "result",
            ValueType::Text(TextLength::Any(COLUMN_CHARS_MAX)),
            "The JSON pointer to what callers get of the response. Without `fields` they get it as it is, as `result`.",
        )
        .default_text("the whole response")
        .example("\"/data\"")
        .applies_to(AppliesTo::Requests),
        Key::new(
            "fields",
            ValueType::NamedTables(&FIELD, NameRule::Any),
            "Settings of the result's columns, as in a collection. For a request: the members to return, with their types.",
        )
        .example("{ customers = { description = \"How many.\" } }")
        .aliases(&["columns"])
        .applies_to(AppliesTo::StatementsAndRequests),
        Key::new("rows_max", ROWS, "The maximum number of rows. The result says if there are more.")
            .default_text("100")
            .example("20")
            .aliases(&["limit", "max_rows"])
            .applies_to(AppliesTo::StatementsAndRequests),
        Key::new("bytes_max", BYTES, "The maximum size of one page, in bytes.")
            .default_text("65536")
            .example("32768")
            .applies_to(AppliesTo::StatementsAndRequests),
        Key::new("description", DESCRIPTION, "What the tool does and when to use it. Models choose by it.")
            .default_text("generated from the operation")
            .example("\"Return the customer record for a given email address.\"")
            .aliases(&["about"]),
        Key::new("title", TITLE, "A short name for people.").default_text("generated").example("\"Find a customer\""),
        Key::new(
            "text",
            ValueType::Text(TextLength::NonBlank(4000)),
            "A template for the text of a row, with `{field}` for values. One line.",
        )
        .default_text("all fields")
        .example("\"Found customer {email} on the {plan} plan.\"")
        .aliases(&["template", "message"]),
        Key::new("hidden", ValueType::Boolean, "Removes the tool.")
            .default_text("`false`")
            .example("true")
            .aliases(&["hide", "disabled", "enabled"]),
        Key::new("rate_limit", ValueType::Rate, "The maximum rate of calls for each caller.")
            .default_text("no limit")
            .example("\"60/min\"")
            .aliases(&["rate", "throttle"]),
        Key::new("call_timeout_ms", TIMEOUT, "The timeout of one call, in milliseconds.")
            .default_text("the server's; 600000 with `long_running`")
            .example("120000")
            .aliases(&["timeout", "timeout_ms"]),
        Key::new(
            "long_running",
            ValueType::Boolean,
            "Whether calls may take long. The timeout is then 10 minutes, unless `call_timeout_ms` is set, and even a short \
             call reports its start and its end to callers that want progress. Every call that runs longer than half a \
             second reports progress.",
        )
            .default_text("`false`")
            .example("true")
            .aliases(&["progress", "slow"]),
        Key::new("confirm", ValueType::OneOf(confirm_values), "Whether the user must approve each call. Only for tools that write.")
            .default_text("the collection's")
            .example("\"ask\"")
            .aliases(&["confirmation", "ask"]),
        Key::new("access", ValueType::Table(&ITEM_ACCESS), "Which roles may call it. Also for the tools of `tools/`.")
            .example("{ roles = [\"staff\"] }"),
    ],
};

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
        .aliases(&["optional"]),
        Key::new(
            "nullable",
            ValueType::Boolean,
            "Whether callers may pass `null`, which the JSON body of a `request` then has. Only for an argument that is required: many \
             clients send `null` for one that they omit.",
        )
        .default_text("`false`")
        .example("false"),
    ],
};

/// `string` is JSON Schema's name for text; its other types have the same names.
fn argument_types() -> Vec<&'static str> {
    let scalars = DataType::ALL.into_iter().filter(|kind| kind.is_scalar());
    std::iter::once("string").chain(scalars.map(DataType::as_str)).chain(["json"]).collect()
}
