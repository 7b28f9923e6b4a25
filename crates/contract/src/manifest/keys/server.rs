//! The keys of `[server]`.

use super::{Key, Section, TIMEOUT, TITLE, TextLength, ValueType};
use crate::names;

pub static SERVER: Section = Section {
    header: "[server]",
    description: "The server itself. Optional.",
    keys: &[
        Key::new(
            "name",
            ValueType::Text(TextLength::NonBlank(names::SERVER_CHARS_MAX)),
            "The name that clients show. One line.",
        )
        .default_text("the name of the folder or file")
        .example("\"customers-lookup\""),
        Key::new("title", TITLE, "A longer name for people.").example("\"Customers of the shop\""),
        Key::new(
            "instructions",
            ValueType::Text(TextLength::NonBlank(16_000)),
            "What a model should know before it uses the tools: what the data is about, and its terms. \
             Some clients truncate it after 2 KB.",
        )
        .default_text("generated from the data: tables, about how many rows, tools")
        .example("\"Customer records by email. Plans: free, emerald, ruby.\"")
        .aliases(&["description", "prompt", "system"]),
        Key::new("call_timeout_ms", TIMEOUT, "The timeout of one call, in milliseconds.")
            .default_text("30000")
            .example("30000")
            .aliases(&["timeout", "timeout_ms", "timeout_seconds"]),
        Key::new(
            "rate_limit",
            ValueType::Rate,
            "The maximum rate of calls, for all callers and tools together. A call beyond it is refused with \
             the time to wait.",
        )
        .default_text("no limit")
        .example("\"600/min\"")
        .aliases(&["rate", "limit", "throttle"]),
        Key::new(
            "backups",
            ValueType::Boolean,
            "Whether Spile keeps a copy of a file before the first write of a day. `spile history` lists the copies, \
             `spile restore` brings one back.",
        )
        .default_text("true")
        .example("false")
        .aliases(&["backup", "history", "undo"]),
        Key::new(
            "memory_bytes_max",
            ValueType::Integer { min: 0, max: 1 << 50 },
            "A larger CSV or JSON Lines file is not held in memory: its rows are imported into the cache folder once, and served \
             from there. Such a file cannot be written.",
        )
        .default_text("a quarter of the machine's memory")
        .example("500000000")
        .aliases(&["memory", "memory_max", "memory_limit"]),
        Key::new(
            "time_zone",
            ValueType::Text(TextLength::NonBlank(64)),
            "The time zone in which days begin, where timestamps have a time zone: for groups by day, week, month, quarter and \
             year, and for filters by a date. A name of the IANA database.",
        )
        .default_text("`UTC`")
        .example("\"Europe/Berlin\"")
        .aliases(&["timezone", "tz", "zone"]),
        Key::new("tool_order", ValueType::Names, "Tools that clients see first, in this order. The others follow.")
            .default_text("tools of the data first, then code, by name")
            .example("[\"find_customer\"]")
            .aliases(&["order", "tools_order", "first"]),
        Key::new(
            "isolation",
            ValueType::OneOf(|| vec!["thread", "process"]),
            "Where the code of the folder runs: on threads of the server, or in processes of their own, under limits that \
             the system holds, for code that you do not trust.",
        )
        .default_text("`thread`")
        .example("\"process\"")
        .aliases(&["sandbox", "isolate"]),
    ],
};
