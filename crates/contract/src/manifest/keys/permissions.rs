//! `[permissions]`.

use super::{Key, Section, ValueType};

pub static PERMISSIONS: Section = Section {
    header: "[permissions]",
    description: "What the code in `tools/` may reach. Nothing is permitted unless it is named here.",
    keys: &[
        Key::new(
            "network",
            ValueType::Names,
            "Hosts that `ctx.fetch` may reach, over https unless `http://` is written: `api.example.com`, \
             `*.example.com`, `http://localhost:3000`.",
        )
        .default_text("none")
        .example("[\"api.example.com\"]")
        .aliases(&["hosts", "net", "fetch"]),
        Key::new(
            "files",
            ValueType::Folders,
            "Folders, inside this one, that `ctx.files` may read. With `{ roots = \"client\" }` it reads the roots of the \
             client instead, if the client runs on this machine and speaks to Spile through stdio or a unix socket.",
        )
            .default_text("none")
            .example("[\"data\"]")
            .aliases(&["read"]),
        Key::new("writable_files", ValueType::Folders, "The same for folders that `ctx.files` may also write to.")
            .default_text("none")
            .example("[\"out\"]")
            .aliases(&["write"]),
        Key::new("env", ValueType::Names, "Environment variables that `ctx.env` has.")
            .default_text("none")
            .example("[\"REGION\"]"),
        Key::new(
            "secrets",
            ValueType::Names,
            "Environment variables that `ctx.secret` returns. They never appear in logs.",
        )
        .default_text("none")
        .example("[\"API_KEY\"]"),
        Key::new(
            "sql",
            ValueType::Names,
            "Databases among the sources that `ctx.sql` may read, hidden fields included.",
        )
        .default_text("none")
        .example("[\"crm\"]"),
        Key::new(
            "eval",
            ValueType::Names,
            "Tools that may make code from text with `eval` and `new Function`, because a package of theirs does so, \
             such as ajv. What such code can do is limited like all code of the tool, but it is no longer the code that \
             was checked and hashed.",
        )
        .default_text("none")
        .example("[\"validate\"]"),
    ],
};
