//! The table of keys, the parser and the JSON Schema agree with each other.

use contract::manifest::keys::{
    ARGUMENT, AUTH, AUTH_HEADER, AppliesTo, BASIC, CLIENT_CREDENTIALS, COLLECTION, COLLECTION_ACCESS,
    COMPLETION, FIELD, GET, ITEM_ACCESS, Key, LIST, PAGE, PERMISSIONS, PROMPT, RELATED, REQUEST, RESOURCE,
    ROLE, ROOT, SECTIONS, SERVER, SOURCE, Section, TOOL, ValueType, WRITE,
};
use contract::manifest::{self, EXAMPLE, SourceKind, parse};
use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use crate::manifest::{FULL_MANIFEST, env, parse_manifest};

/// A manifest in which a key has its example value.
fn manifest_with(section: &'static Section, key: &Key) -> String {
    let roles = "[roles.staff]\nwhen = { \"/team\" = 1 }\n[roles.support]\n[roles.editor]\n";
    let line = format!("{} = {}\n", key.name, key.example);
    let path = match key.applies_to {
        AppliesTo::SourceKinds(kinds) => {
            format!("crm.{}", if kinds[0].as_str() == "sqlite" { "db" } else { kinds[0].as_str() })
        }
        AppliesTo::Everywhere
        | AppliesTo::Statements
        | AppliesTo::StatementsAndRequests
        | AppliesTo::Requests => "crm.db".into(),
    };
    let source = format!("[sources.crm]\npath = \"{path}\"\n");
    let api = "[sources.crm]\nkind = \"rest\"\nurl = \"https://api.example.com\"\n";
    let is_rest = matches!(key.applies_to, AppliesTo::SourceKinds(kinds) if kinds[0] == SourceKind::Rest);
    let all = "operations = [\"list\", \"search\", \"aggregate\", \"update\"]\n";
    if std::ptr::eq(section, &SERVER) {
        format!("[server]\n{line}")
    } else if std::ptr::eq(section, &PERMISSIONS) {
        format!("[permissions]\n{line}")
    } else if std::ptr::eq(section, &RESOURCE) {
        let uri = if key.name == "uri" { "" } else { "uri = \"a://{id}\"\n" };
        let origin = match key.name {
            "file" | "collection" | "script" => "",
            _ => "script = \"a.ts\"\n",
        };
        format!("{roles}[resources.x]\n{uri}{origin}{line}")
    } else if std::ptr::eq(section, &ROLE) {
        format!("{roles}[roles.x]\n{line}")
    } else if std::ptr::eq(section, &COLLECTION_ACCESS) {
        format!("{source}[collections.customers]\n{roles}[collections.customers.access.staff]\n{line}")
    } else if std::ptr::eq(section, &ITEM_ACCESS) {
        format!("{roles}[tools.x.access]\n{line}")
    } else if std::ptr::eq(section, &PROMPT) {
        format!("{roles}[prompts.x]\n{line}")
    } else if std::ptr::eq(section, &COMPLETION) {
        let other = match key.name {
            "collection" => "field = \"id\"\n",
            "field" => "collection = \"orders\"\n",
            _ => "",
        };
        format!(
            "[resources.x]\nuri = \"a://{{id}}\"\nscript = \"a.ts\"\n[resources.x.complete.id]\n{other}{line}"
        )
    } else if std::ptr::eq(section, &SOURCE) {
        let is_database =
            matches!(key.applies_to, AppliesTo::SourceKinds(kinds) if kinds[0].engine().is_some());
        let location = match key.name {
            "path" | "url" => String::new(),
            _ if is_database => "url = \"postgres://localhost/crm\"\n".to_owned(),
            _ if is_rest => "url = \"https://api.example.com\"\n".to_owned(),
            _ => format!("path = \"{path}\"\n"),
        };
        format!("[sources.crm]\n{location}{line}")
    } else if std::ptr::eq(section, &COLLECTION) {
        if is_rest {
            let operations = match key.name {
                "create" | "update" | "delete" => format!("operations = [\"{}\"]\n", key.name),
                _ => String::new(),
            };
            return format!("{api}[collections.customers]\nkey = \"id\"\n{operations}{line}");
        }
        let all = if key.name == "operations" { "" } else { all };
        format!("{roles}{source}[collections.customers]\n{all}{line}")
    } else if std::ptr::eq(section, &AUTH) {
        format!("{api}[sources.crm.auth]\n{line}")
    } else if std::ptr::eq(section, &BASIC) {
        let user = if key.name == "user" { "" } else { "user = \"a\"\n" };
        format!("{api}[sources.crm.auth.basic]\n{user}{line}")
    } else if std::ptr::eq(section, &AUTH_HEADER) {
        let other = if key.name == "name" { "value = \"a\"\n" } else { "name = \"a\"\n" };
        format!("{api}[sources.crm.auth.header]\n{other}{line}")
    } else if std::ptr::eq(section, &CLIENT_CREDENTIALS) {
        let all = ["token_url = \"https://a.test\"\n", "client_id = \"a\"\n", "client_secret = \"a\"\n"];
        let others: String =
            all.into_iter().filter(|other| !other.starts_with(&format!("{} ", key.name))).collect();
        format!("{api}[sources.crm.auth.client_credentials]\n{others}{line}")
    } else if std::ptr::eq(section, &LIST) {
        format!("{api}[collections.orders.list]\n{line}")
    } else if std::ptr::eq(section, &PAGE) {
        let others = match key.name {
            "style" => "next = \"/next\"\n",
            "first" => "style = \"page\"\n",
            "next" | "last_item" => "style = \"cursor\"\n",
            "size" => "style = \"page\"\nsize_parameter = \"n\"\n",
            "size_parameter" => "style = \"page\"\nsize = 10\n",
            _ => "style = \"offset\"\n",
        };
        format!("{api}[collections.orders.list.page]\n{others}{line}")
    } else if std::ptr::eq(section, &GET) {
        let path = if key.name == "path" { "" } else { "path = \"/orders/{id}\"\n" };
        format!("{api}[collections.orders]\nkey = \"id\"\n[collections.orders.get]\n{path}{line}")
    } else if std::ptr::eq(section, &WRITE) {
        let path = if key.name == "path" { "" } else { "path = \"/orders/{id}\"\n" };
        let operations = "operations = [\"update\"]\n";
        format!(
            "{api}[collections.orders]\nkey = \"id\"\n{operations}[collections.orders.update]\n{path}{line}"
        )
    } else if std::ptr::eq(section, &REQUEST) {
        let method = if key.name == "method" { "" } else { "method = \"POST\"\n" };
        format!("{api}[tools.x.request]\n{method}{line}")
    } else if std::ptr::eq(section, &FIELD) {
        format!("{source}[collections.customers.fields.x]\n{line}")
    } else if std::ptr::eq(section, &RELATED) {
        format!("{source}[collections.orders.related.customer]\n{line}")
    } else if std::ptr::eq(section, &TOOL) {
        let body = match (key.name, key.applies_to) {
            ("uses" | "sql", _) => "",
            ("request", _) => return format!("{api}[tools.x]\n{line}"),
            (_, AppliesTo::Requests) => {
                return format!("{api}[tools.x]\nrequest = {{ path = \"/a\" }}\n{line}");
            }
            ("changes_max", _) => "sql = \"select 1\"\nwrites = true\n",
            (_, AppliesTo::Statements | AppliesTo::StatementsAndRequests) => "sql = \"select 1\"\n",
            _ => "uses = \"customers.update\"\n",
        };
        format!("{roles}{source}[collections.customers]\n{all}[tools.x]\n{body}{line}")
    } else if std::ptr::eq(section, &ARGUMENT) {
        format!("{source}[tools.x]\nsql = \"select 1\"\n[tools.x.arguments.y]\n{line}")
    } else if key.name == "collections" {
        format!("{line}{source}")
    } else if key.name == "prompts" {
        format!("{line}{roles}")
    } else {
        line
    }
}

#[test]
fn every_example_in_the_table_parses() {
    for section in SECTIONS.into_iter().chain([&ROOT]) {
        for key in section.keys {
            assert!(
                !key.example.is_empty() && !key.description.is_empty(),
                "{} {}",
                section.header,
                key.name
            );
            let text = manifest_with(section, key);
            // An example must not depend on the environment.
            assert!(!text.contains("${"), "{text}");
            parse_manifest(&text);
            assert_valid(&text);
        }
    }
}

#[test]
fn arguments_accept_exactly_the_listed_types() {
    for key in ARGUMENT.keys {
        let ValueType::OneOf(words) = key.value_type else { continue };
        if key.name == "format" {
            continue;
        }
        let with = |word: &str| {
            let name = key.name;
            format!(
                "[sources.crm]\nurl = \"https://api.example.com\"\n[tools.x]\nrequest = {{ path = \"/a\" }}\n[tools.x.arguments.y]\n{name} = \"{word}\"\n"
            )
        };
        for word in words() {
            parse_manifest(&with(word));
        }
        for kind in contract::DataType::ALL.map(contract::DataType::as_str) {
            let is_taken = parse("spile.toml", &with(kind), &env).is_ok();
            assert_eq!(is_taken, words().contains(&kind), "{} {kind}", key.name);
        }
    }
}

#[test]
fn no_alias_is_a_key() {
    for section in SECTIONS {
        for key in section.keys {
            for other in key.aliases {
                let ours = section.keys.iter().find(|key| key.name == *other);
                assert!(ours.is_none(), "{}: `{other}` for `{}` is a key itself", section.header, key.name);
                let times = section.keys.iter().filter(|key| key.aliases.contains(other)).count();
                assert_eq!(times, 1, "{}: `{other}`", section.header);
            }
        }
    }
}

#[test]
fn every_section_rejects_unknown_keys() {
    for section in SECTIONS.into_iter().chain([&ROOT]) {
        let key = section
            .keys
            .iter()
            .find(|key| !matches!(key.value_type, ValueType::Table(_) | ValueType::NamedTables(..)));
        let key = key.unwrap_or(&section.keys[0]);
        let text = format!("{}zebra = 1\n", manifest_with(section, key));
        let told = parse("spile.toml", &text, &env).expect_err(&text);
        assert_eq!(told.len(), 1, "{text}");
        assert_eq!(told[0].message, "unknown key `zebra`");
        assert_eq!(told[0].code, Some("manifest"));
        assert!(!is_valid(&text), "{text}");
    }
}

#[test]
fn the_schema_accepts_what_the_parser_accepts() {
    for text in [
        "",
        FULL_MANIFEST,
        EXAMPLE,
        include_str!("../../../../examples/customers/spile.toml"),
        "[sources.a]\nkind = '${KIND:-csv}'\npath = '${DATA}/x'\n[server]\nrate_limit = '${RATE:-1/s}'",
        "sources.a = { path = 'a.csv' }\ncollections.b = { filters = [], sort = false, key = ['x', 'y'] }",
        "[sources.a]\npath='a.db'\n[tools.t]\nsql='x'\narguments.a = { default = 0.5, type = 'number' }",
    ] {
        parse_manifest(text);
        assert_valid(text);
    }
}

#[test]
fn the_parser_rejects_what_the_schema_rejects() {
    for text in [
        "[server]\nname = 7",
        "[server]\nname = ' '",
        "[server]\ncall_timeout_ms = 0",
        "[server]\nrate_limit = '60'",
        "[server]\nrate_limit = '60/fortnight'",
        "[sources.a]\nkind = 'csv'",
        "[sources.a]\npath = 'a.csv'\nkind = 'cvs'",
        "[sources.'a b']\npath = 'a.csv'",
        "[sources.a]\npath = 'a.xlsx'\n[collections.b]\nheader_row = 0",
        "[sources.a]\npath = 'a.xlsx'\n[collections.b]\nsheet = 'x'\ntable = 'y'",
        "[sources.a]\npath = 'a.db'\n[collections.b]\noperations = ['drop']",
        "[sources.a]\npath = 'a.db'\n[collections.b]\noperations = []",
        "[sources.a]\npath = 'a.db'\n[collections.b]\nkey = ['x', 'x']",
        "[sources.a]\npath = 'a.db'\n[collections.b]\nfilters = 'x'",
        "[sources.a]\npath = 'a.db'\n[collections.b]\nrows_max = 5000",
        "[sources.a]\npath = 'a.db'\n[collections.b.fields]\nx = { as = 'varchar' }",
        "[sources.a]\npath = 'a.db'\n[collections.b.fields]\nx = { type = 'text' }",
        "[sources.a]\npath = 'a.db'\n[collections.b.fields]\nx = { enum = [0.5] }",
        "[tools.x]\ndescription = 'x'",
        "[tools.x]\nuses = 'a.get'\nsql = 'select 1'",
        "[tools.'x y']\nuses = 'a.get'",
        "[sources.a]\npath='a.db'\n[tools.x]\nsql = 'x'\narguments.':a' = {}",
        "[resources.'a b']\nfile = 'a.md'",
        "[resources.a]\nfile = 7",
        "[resources.a]\nfile = 'a.md'\nlisted = 'no'",
        "[resources.a]\nfile = 'a.md'\naudience = ['robot']",
    ] {
        assert!(!is_valid(text), "the schema lets through: {text}");
        assert!(parse("spile.toml", text, &env).is_err(), "the parser lets through: {text}");
    }
}

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&manifest::schema()).expect("it is JSON");
    jsonschema::draft4::meta::validate(&schema).expect("it is a schema");
    jsonschema::options().with_draft(jsonschema::Draft::Draft4).build(&schema).expect("it compiles")
}

fn assert_valid(text: &str) {
    let value = value_of(text);
    let wrong: Vec<String> = validator().iter_errors(&value).map(|error| error.to_string()).collect();
    assert_eq!(wrong, [] as [&str; 0], "{text}");
}

fn is_valid(text: &str) -> bool {
    validator().is_valid(&value_of(text))
}

/// The manifest as JSON, as editors validate it.
fn value_of(text: &str) -> Value {
    table(DeTable::parse(text).expect("TOML").get_ref())
}

fn table(table: &DeTable<'_>) -> Value {
    Value::Object(
        table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), value_in(value.get_ref())))
            .collect::<Map<_, _>>(),
    )
}

fn value_in(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Integer(digits) => {
            json!(i64::from_str_radix(digits.as_str(), digits.radix()).expect("small"))
        }
        DeValue::Float(digits) => json!(digits.as_str().parse::<f64>().expect("a number")),
        DeValue::Boolean(value) => json!(value),
        DeValue::Datetime(when) => json!(when.to_string()),
        DeValue::Array(items) => items.iter().map(|item| value_in(item.get_ref())).collect(),
        DeValue::Table(inner) => table(inner),
    }
}
