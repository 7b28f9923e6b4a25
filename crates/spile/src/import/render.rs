//! Writes the manifest: a source, and a tool for each operation.

use contract::manifest;
use contract::names;
use contract::source::RestUrl;
use contract::toml_key;
use serde_json::Value;

use super::convert::{ArgumentEntry, Body, Refusal, ToolEntry};
use super::document::Document;

/// The source that all tools use.
pub(super) struct Api {
    name: String,
    lines: Vec<String>,
}

impl Api {
    pub(super) fn new(document: &Document, name: Option<&str>) -> Self {
        let title = document.root["info"]["title"].as_str().unwrap_or("api");
        let short: Vec<&str> = title
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .take(3)
            .collect();
        let name = name
            .map_or_else(|| names::collection_name(&short.join("_").to_lowercase()), names::collection_name);
        let variable = name.to_ascii_uppercase();
        let mut lines = vec![format!("[sources.{name}]"), "kind = \"rest\"".to_owned()];
        match server_url(document) {
            Some(url) => {
                lines.push(format!("url = {}", text(url.as_str())));
                if is_this_machine(url.host()) {
                    lines.push("allow_private_addresses = true".to_owned());
                }
            }
            None => {
                lines.push("# The document does not say where the API is.".to_owned());
                lines.push("url = \"https://api.example.com\"".to_owned());
            }
        }
        lines.extend(auth_lines(document, &variable));
        Self { name, lines }
    }
}

fn is_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The first server, with the defaults of its variables.
fn server_url(document: &Document) -> Option<RestUrl> {
    let server = document.root.get("servers")?.get(0)?;
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        url = url.replace(&format!("{{{name}}}"), variable["default"].as_str().unwrap_or_default());
    }
    let absolute = match &document.url {
        Some(base) => base.join(&url).ok()?.to_string(),
        None => url,
    };
    RestUrl::parse(&absolute).ok()
}

/// How callers of the API identify themselves, with variables for what is secret.
fn auth_lines(document: &Document, variable: &str) -> Vec<String> {
    let schemes = document.root["components"]["securitySchemes"].as_object();
    let lines = |scheme: &Value| -> Option<String> {
        let scheme = document.resolve(scheme).ok()?;
        let name = scheme["name"].as_str().unwrap_or_default();
        Some(match (scheme["type"].as_str()?, scheme["in"].as_str(), scheme["scheme"].as_str()) {
            ("http", _, Some(kind)) if kind.eq_ignore_ascii_case("basic") => {
                format!(
                    "auth = {{ basic = {{ user = \"${{{variable}_USER}}\", password = \"${{{variable}_PASSWORD}}\" }} }}"
                )
            }
            ("apiKey", Some("header"), _) if !name.eq_ignore_ascii_case("authorization") => {
                format!("auth = {{ header = {{ name = {}, value = \"${{{variable}_KEY}}\" }} }}", text(name))
            }
            ("apiKey", Some("query"), _) => {
                format!("query = {{ {} = \"${{{variable}_KEY}}\" }}", toml_key(name))
            }
            ("oauth2", ..) => match scheme["flows"]["clientCredentials"]["tokenUrl"]
                .as_str()
                .filter(|url| RestUrl::parse(url).is_ok())
            {
                Some(url) => format!(
                    "auth = {{ client_credentials = {{ token_url = {}, client_id = \"${{{variable}_CLIENT_ID}}\", client_secret = \"${{{variable}_CLIENT_SECRET}}\" }} }}",
                    text(url)
                ),
                None => format!("auth = {{ bearer = \"${{{variable}_TOKEN}}\" }}"),
            },
            ("http" | "openIdConnect", ..) | ("apiKey", Some("header"), _) => {
                format!("auth = {{ bearer = \"${{{variable}_TOKEN}}\" }}")
            }
            _ => return None,
        })
    };
    schemes.into_iter().flatten().find_map(|(_, scheme)| lines(scheme)).into_iter().collect()
}

/// Checks that the manifest with this tool alone has no errors, which no import may write.
pub(super) fn check(api: &Api, entry: &ToolEntry) -> Result<(), Refusal> {
    let written = manifest(api, std::slice::from_ref(entry));
    let parsed = manifest::parse("spile.toml", &written, &|_| Some("x".to_owned()));
    let (parsed, _) = parsed.map_err(|found| {
        let first = found.into_iter().next();
        first.map_or_else(|| "it is not valid".to_owned(), |error| error.message)
    })?;
    let facts = contract::source::SourceFacts::default();
    let known = [contract::compile::IntrospectedSource::new(&api.name, &facts)];
    let (contract, found) = contract::compile::compile(&parsed, &known, "import");
    match contract {
        Some(_) => Ok(()),
        None => {
            Err(found.into_iter().next().map_or_else(|| "it is not valid".to_owned(), |error| error.message))
        }
    }
}

pub(super) fn manifest(api: &Api, tools: &[ToolEntry]) -> String {
    let mut out = String::from(
        "#:schema .spile/schema.json\n# Written by `spile import openapi`. Edit it: keep the tools that help, and say what they are for.\n\n",
    );
    out += &api.lines.join("\n");
    out.push('\n');
    tools.iter().for_each(|tool| write_tool(&mut out, api, tool));
    out
}

fn write_tool(out: &mut String, api: &Api, tool: &ToolEntry) {
    *out += &format!("\n[tools.{}]\n", toml_key(&tool.name));
    for note in &tool.notes {
        *out += &format!("# {}\n", note.replace(|c: char| c.is_control(), " "));
    }
    *out += &format!("source = {}\n", text(&api.name));
    *out += &format!("description = {}\n", text(&tool.description));
    let mut request =
        vec![format!("method = {}", text(&tool.method)), format!("path = {}", text(&tool.path))];
    let pairs = |pairs: &[(String, String)]| {
        let pairs: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{} = {}", toml_key(name), text(value))).collect();
        format!("{{ {} }}", pairs.join(", "))
    };
    // A parameter of the query that has the name of its argument needs no place of its own.
    let is_implied = |(name, pattern): &(String, String)| *pattern == format!("{{{name}}}");
    let has_body = !matches!(tool.method.as_str(), "GET" | "DELETE");
    if !tool.query.is_empty() && (has_body || !tool.query.iter().all(is_implied)) {
        request.push(format!("query = {}", pairs(&tool.query)));
    }
    if !tool.headers.is_empty() {
        request.push(format!("headers = {}", pairs(&tool.headers)));
    }
    match &tool.body {
        Body::None => {}
        Body::Whole(argument) => request.push(format!("body = {}", text(&format!("{{{argument}}}")))),
        Body::Members { members, is_form } => {
            if members.iter().any(|(name, argument)| name != argument) {
                let members: Vec<(String, String)> = members
                    .iter()
                    .map(|(name, argument)| (name.clone(), format!("{{{argument}}}")))
                    .collect();
                request.push(format!("body = {}", pairs(&members)));
            }
            if *is_form {
                request.push("body_format = \"form\"".to_owned());
            }
        }
    }
    *out += &format!("request = {{ {} }}\n", request.join(", "));
    if tool.confirms {
        *out += "confirm = \"ask\"\n";
    }
    if !tool.arguments.is_empty() {
        *out += &format!("[tools.{}.arguments]\n", toml_key(&tool.name));
        tool.arguments.iter().for_each(|argument| write_argument(out, argument));
    }
}

fn write_argument(out: &mut String, argument: &ArgumentEntry) {
    let mut settings = vec![format!("type = {}", text(argument.data_type))];
    settings.extend(argument.format.map(|format| format!("format = {}", text(format))));
    if !argument.allowed.is_empty() {
        let values: Vec<String> = argument
            .allowed
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), text))
            .collect();
        settings.push(format!("enum = [{}]", values.join(", ")));
    }
    if !argument.is_required {
        settings.push("required = false".to_owned());
    }
    if argument.is_nullable {
        settings.push("nullable = true".to_owned());
    }
    if !argument.description.is_empty() {
        settings.push(format!("description = {}", text(&argument.description)));
    }
    *out += &format!("{} = {{ {} }}\n", argument.name, settings.join(", "));
}

/// A TOML string in which no variable is replaced.
fn text(value: &str) -> String {
    let quoted = Value::String(value.replace("${", "$${")).to_string();
    // TOML knows the escapes of JSON, except for `\/`, which JSON never writes here, and U+007F.
    quoted.replace('\u{7f}', "\\u007f")
}
