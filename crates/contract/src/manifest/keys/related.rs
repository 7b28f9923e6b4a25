//! The keys of `[collections.NAME.related.NAME]`.

use super::{COLUMN, Key, LINK_ROWS_MAX_LIMIT, Section, ValueType};

pub static RELATED: Section = Section {
    header: "[collections.NAME.related.NAME]",
    description: "A link to the rows of another collection of this server, which may be in another file. Callers of \
                  `get` and `list` add those rows with `include`. If `by` names the other collection's key, the link is \
                  to one row, and its fields can be filters and groups: `customer.country`.",
    keys: &[
        Key::new("collection", COLUMN, "The other collection.")
            .default_text("the target of a foreign key")
            .example("\"customers\"")
            .aliases(&["to", "target", "table"]),
        Key::new(
            "by",
            ValueType::ColumnPairs,
            "The columns whose values are equal: of this collection on the left, of the other on the right. Both must \
             have the same type: texts, integers or dates.",
        )
        .default_text("the foreign key between the two tables")
        .example("{ customer_id = \"id\" }")
        .aliases(&["on", "columns", "foreign_key"]),
        Key::new("sort", ValueType::Columns, "The order of the rows of a link to many: columns, with `-` for descending.")
            .default_text("the order of the key")
            .example("\"-ordered_on\"")
            .aliases(&["order_by", "orderby"]),
        Key::new(
            "rows_max",
            ValueType::Integer { min: 1, max: LINK_ROWS_MAX_LIMIT as u64 },
            "The maximum number of linked rows for each row.",
        )
        .default_text("20")
        .example("50")
        .aliases(&["limit", "max_rows"]),
        Key::new("hidden", ValueType::Boolean, "Removes a link that a foreign key makes.")
            .default_text("`false`")
            .example("true")
            .aliases(&["hide", "exclude", "ignore"]),
    ],
};
