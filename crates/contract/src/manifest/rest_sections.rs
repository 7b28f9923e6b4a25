//! Parses what is for REST APIs: the settings of a source, the endpoints of a collection, the request of a tool.

use super::reader::{Entry, ManifestReader, TextValue, TomlTable, join_and, join_or};
use super::rest::{
    CollectionEndpoints, CursorPointer, GetEndpoint, ListEndpoint, ListFormat, PAGES_MAX_DEFAULT, PageStyle,
    Paging, READ_ROWS_MAX_DEFAULT, REQUEST_TIMEOUT_MS_DEFAULT, REQUESTS_MAX_DEFAULT,
    RESPONSE_BYTES_MAX_DEFAULT, RedirectPolicy, RestAuth, RestSettings, WriteEndpoint,
};
use super::sections::{report_missing_key, text_value};
use super::sources::{parse_pointer, reject_misplaced_keys};
use super::{Operation, Source, SourceKind, SourceSettings};
use crate::diagnostic::{Diagnostic, FileLocation, Located};
use crate::request::{BodyFormat, Method, PathError, PathTemplate, RequestTemplate, TextPattern};
use crate::source::{RestUrl, Secret, SourceLocation};

/// Names of headers that decide how a request is read, which no manifest may set.
const RESERVED_HEADERS: [&str; 10] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
];

/// Parses a source that is a REST API.
pub(super) fn parse_rest_source(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    name: Option<Located<String>>,
    url: Option<TextValue>,
) -> Option<Source> {
    let t = &mut table;
    let url = url.or_else(|| reader.text(t, "url"));
    reject_misplaced_keys(reader, t, SourceKind::Rest);
    let redirects_at = t.key_location("redirects");
    let auth = parse_auth(reader, t);
    let headers = parse_fixed_headers(reader, t);
    let query = reader.text_pairs(t, "query");
    let settings = RestSettings {
        auth,
        headers,
        query: query.into_iter().map(|(name, value)| (name.value, Secret::new(value.value))).collect(),
        allow_private_addresses: reader.boolean(t, "allow_private_addresses").unwrap_or(false),
        redirects: match reader.one_of(t, "redirects").map(|(_, word)| word) {
            Some("any") => RedirectPolicy::Any,
            Some("none") => RedirectPolicy::None,
            _ => RedirectPolicy::SameOrigin,
        },
        requests_max: reader.integer(t, "requests_max").unwrap_or(REQUESTS_MAX_DEFAULT),
        rate_limit: reader.rate_limit(t, "rate_limit"),
        timeout_ms: reader.integer(t, "timeout_ms").unwrap_or(REQUEST_TIMEOUT_MS_DEFAULT),
        response_bytes_max: reader.integer(t, "response_bytes_max").unwrap_or(RESPONSE_BYTES_MAX_DEFAULT),
        pages_max: reader.integer(t, "pages_max").unwrap_or(PAGES_MAX_DEFAULT),
        read_rows_max: reader.integer(t, "read_rows_max").unwrap_or(READ_ROWS_MAX_DEFAULT),
        ca_file: reader.text(t, "ca_file").map(|text| text.value.into()),
    };
    reader.finish(table);
    let Some(url) = url else {
        report_missing_key(reader, entry, "url", "url = \"https://api.example.com/v2\"");
        return None;
    };
    let location = match RestUrl::parse(&url.value) {
        Ok(location) => location,
        Err((message, help)) => {
            reader.error(&url.location, message, help);
            return None;
        }
    };
    let has_secrets = settings.auth.is_some() || !settings.headers.is_empty() || !settings.query.is_empty();
    if has_secrets && !location.is_encrypted() && !settings.allow_private_addresses {
        let message = "credentials would be sent to this URL without encryption";
        let help = "write `https://`; for a server in your own network, add `allow_private_addresses = true`";
        reader.error(&url.location, message, help);
    }
    if let (true, RedirectPolicy::Any, Some(at)) = (has_secrets, settings.redirects, &redirects_at) {
        let message = "`redirects = \"any\"` would let the API choose who gets the credentials";
        reader.error(at, message, "remove it, or `auth`, `headers` and `query`");
    }
    let location = Located::new(SourceLocation::Rest(location), url.location);
    Some(Source { name: name?, location, settings: SourceSettings::Rest(Box::new(settings)) })
}

fn parse_auth(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Option<RestAuth> {
    let (entry, mut table) = reader.table(t, "auth")?;
    let t = &mut table;
    let secret = |text: TextValue| Secret::new(text.value);
    let bearer = reader.text(t, "bearer").map(|text| RestAuth::Bearer(secret(text)));
    let basic = reader.table(t, "basic").and_then(|(entry, mut table)| {
        let (user, password) = (reader.text(&mut table, "user"), reader.text(&mut table, "password"));
        reader.finish(table);
        if user.is_none() {
            report_missing_key(reader, &entry, "user", "user = \"reports\"");
        }
        let password = password.map_or_else(|| Secret::new(""), secret);
        Some(RestAuth::Basic { user: secret(user?), password })
    });
    let header = reader.table(t, "header").and_then(|(entry, mut table)| {
        let (name, value) = (reader.text(&mut table, "name"), reader.text(&mut table, "value"));
        reader.finish(table);
        for (key, is_missing, example) in [
            ("name", name.is_none(), "name = \"X-Api-Key\""),
            ("value", value.is_none(), "value = \"${API_KEY}\""),
        ] {
            if is_missing {
                report_missing_key(reader, &entry, key, example);
            }
        }
        let name = check_header_name(reader, &name?)?;
        Some(RestAuth::Header { name, value: secret(value?) })
    });
    let oauth = reader.table(t, "client_credentials").and_then(|(entry, mut table)| {
        let t = &mut table;
        let token_url = reader.text(t, "token_url");
        let (client_id, client_secret) = (reader.text(t, "client_id"), reader.text(t, "client_secret"));
        let scope = text_value(reader.text(t, "scope"));
        reader.finish(table);
        for (key, is_missing) in [
            ("token_url", token_url.is_none()),
            ("client_id", client_id.is_none()),
            ("client_secret", client_secret.is_none()),
        ] {
            if is_missing {
                report_missing_key(reader, &entry, key, &format!("{key} = \"…\""));
            }
        }
        let token_url = token_url?;
        if let Err((message, help)) = RestUrl::parse(&token_url.value) {
            reader.error(&token_url.location, message, help);
            return None;
        }
        Some(RestAuth::ClientCredentials {
            token_url: token_url.value,
            client_id: secret(client_id?),
            client_secret: secret(client_secret?),
            scope,
        })
    });
    reader.finish(table);
    let mut given: Vec<RestAuth> = [bearer, basic, header, oauth].into_iter().flatten().collect();
    if given.len() > 1 {
        reader.error(&entry.key_location, "`auth` has several kinds of credentials", "keep one of them");
    }
    given.pop()
}

fn parse_fixed_headers(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    for (name, value) in reader.text_pairs(t, "headers") {
        let name = TextValue { raw: name.value.clone(), value: name.value, location: name.location };
        let Some(name) = check_header_name(reader, &name) else { continue };
        if !is_header_value(&value.value) {
            let message =
                format!("the value of the header `{name}` has characters that a header cannot have");
            reader.error(&value.location, message, "write visible ASCII characters and blanks on one line");
            continue;
        }
        headers.push((name, Secret::new(value.value)));
    }
    headers
}

fn check_header_name(reader: &mut ManifestReader<'_>, name: &TextValue) -> Option<String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.value.is_empty() || !name.value.bytes().all(is_token) {
        let message = format!("{} is not the name of a header", name.quoted());
        reader.error(&name.location, message, "write a name such as `X-Api-Key`");
        return None;
    }
    if RESERVED_HEADERS.contains(&name.value.to_ascii_lowercase().as_str()) {
        let message = format!("the header {} cannot be set", name.quoted());
        reader.error(&name.location, message, "remove it: Spile sets it where it is needed");
        return None;
    }
    Some(name.value.clone())
}

/// RFC 9110, 5.5, without obsolete characters.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'))
}

/// Parses the endpoints of a collection, and checks that its operations have them.
pub(super) fn parse_endpoints(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
    key: &[Located<String>],
) -> CollectionEndpoints {
    let list = reader.table(t, "list").map(|(_, table)| parse_list(reader, table));
    let get = reader.table(t, "get").and_then(|(entry, table)| parse_get(reader, &entry, table, key));
    let mut write = |name: &str, method| {
        let (entry, table) = reader.table(t, name)?;
        parse_write(reader, &entry, table, method, if name == "create" { &[] } else { key })
    };
    let create = write("create", Method::Post);
    let update = write("update", Method::Patch);
    let delete = write("delete", Method::Delete);
    CollectionEndpoints { list, get, create, update, delete }
}

/// The operations of a collection of a REST API: the declared ones, else the reading ones that have an endpoint.
pub(super) fn endpoint_operations(
    reader: &mut ManifestReader<'_>,
    declared: Option<Vec<Located<Operation>>>,
    endpoints: &CollectionEndpoints,
    at: &FileLocation,
) -> Option<Vec<Located<Operation>>> {
    let has = |operation: Operation| match operation {
        Operation::Get => endpoints.get.is_some() || endpoints.list.is_some(),
        Operation::List | Operation::Search | Operation::Aggregate => endpoints.list.is_some(),
        Operation::Create => endpoints.create.is_some(),
        Operation::Update => endpoints.update.is_some(),
        Operation::Delete => endpoints.delete.is_some(),
    };
    if Operation::ALL.into_iter().all(|operation| !has(operation)) {
        let help = "add a line such as `list = { path = \"/orders\", items = \"/data\" }`";
        reader.error(at, "a collection of a REST API needs an endpoint", help);
        return declared;
    }
    let Some(declared) = declared else {
        // A list is enough for all of them, and those that the fields do not allow are left out later.
        if endpoints.list.is_some() {
            return None;
        }
        let all = Operation::DEFAULT.into_iter().filter(|operation| has(*operation));
        return Some(all.map(|operation| Located::new(operation, at.clone())).collect());
    };
    for one in declared.iter().filter(|one| !has(one.value)) {
        let endpoint = match one.value {
            Operation::Get => "get` or `list",
            Operation::List | Operation::Search | Operation::Aggregate => "list",
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        };
        let message = format!("the operation `{}` needs the endpoint `{endpoint}`", one.value.as_str());
        reader.error(&one.location, message, "declare the endpoint, or remove the operation");
    }
    let is_listed = |operation| declared.iter().any(|one| one.value == operation);
    for operation in [Operation::Create, Operation::Update, Operation::Delete] {
        if has(operation) && !is_listed(operation) {
            let name = operation.as_str();
            let message = format!("the endpoint `{name}` has no effect: `operations` does not list `{name}`");
            reader
                .diagnostics
                .push(Diagnostic::warning(message).at(at).help("list it, or remove the endpoint"));
        }
    }
    Some(declared)
}

fn parse_list(reader: &mut ManifestReader<'_>, mut table: TomlTable<'_>) -> ListEndpoint {
    let t = &mut table;
    let path = parse_path(reader, t, &[]).map(|path| path.value).unwrap_or_default();
    let items_at = t.key_location("items");
    let items = parse_pointer_key(reader, t, "items").unwrap_or_default();
    let query = parse_fixed_query(reader, t);
    let format = match reader.one_of(t, "format").map(|(_, word)| word) {
        Some("csv") => ListFormat::Csv,
        Some("jsonl") => ListFormat::JsonLines,
        _ => ListFormat::Json,
    };
    let page_at = t.key_location("page");
    let paging = reader.table(t, "page").map(|(entry, table)| parse_paging(reader, &entry, table));
    if let (ListFormat::Csv | ListFormat::JsonLines, Some(at)) = (format, page_at) {
        reader.error(&at, "only a JSON response has pages", "remove `page` or `format`");
    }
    if let (ListFormat::Csv | ListFormat::JsonLines, Some(at)) = (format, items_at) {
        reader.error(&at, "`items` is only for JSON responses", "remove `items` or `format`");
    }
    let filters = reader.text_pairs(t, "filters");
    reader.finish(table);
    ListEndpoint {
        path,
        items,
        query,
        format,
        paging: paging.unwrap_or_default(),
        filters: filters.into_iter().map(|(name, value)| (name.value, value.value)).collect(),
    }
}

fn parse_paging(reader: &mut ManifestReader<'_>, entry: &Entry<'_>, mut table: TomlTable<'_>) -> Paging {
    let t = &mut table;
    let located: Vec<(&str, Option<FileLocation>)> =
        ["parameter", "first", "next", "last_item", "size", "size_parameter"]
            .map(|name| (name, t.key_location(name)))
            .to_vec();
    let at = |name: &str| located.iter().find(|(one, _)| *one == name).and_then(|(_, at)| at.clone());
    let style = reader.one_of(t, "style").map(|(_, word)| word);
    let parameter = text_value(reader.text(t, "parameter"));
    let first = reader.integer(t, "first");
    let next = parse_pointer_key(reader, t, "next");
    let last_item = parse_pointer_key(reader, t, "last_item");
    let more = parse_pointer_key(reader, t, "more");
    let total = parse_pointer_key(reader, t, "total");
    let (size, size_parameter) = (reader.integer(t, "size"), text_value(reader.text(t, "size_parameter")));
    reader.finish(table);
    let Some(style) = style else {
        report_missing_key(reader, entry, "style", "style = \"page\"");
        return Paging::default();
    };
    let allowed: &[&str] = match style {
        "page" => &["parameter", "first"],
        "offset" => &["parameter"],
        "cursor" => &["parameter", "next", "last_item"],
        _ => &["next"],
    };
    for name in ["parameter", "first", "next", "last_item"].into_iter().filter(|name| !allowed.contains(name))
    {
        if let Some(at) = at(name) {
            let message = format!("`{name}` has no effect with the style `{style}`");
            reader.error(&at, message, format!("this style has {}", join_and(allowed)));
        }
    }
    if size.is_some() != size_parameter.is_some()
        && let Some(at) = at("size").or_else(|| at("size_parameter"))
    {
        reader.error(&at, "`size` and `size_parameter` need each other", "add the other one, or remove both");
    }
    let or = |default: &str| parameter.clone().unwrap_or_else(|| default.to_owned());
    let style = match (style, next, last_item) {
        ("page", ..) => PageStyle::Page { parameter: or("page"), first: first.unwrap_or(1) },
        ("offset", ..) => PageStyle::Offset { parameter: or("offset") },
        ("cursor", Some(next), None) => {
            PageStyle::Cursor { parameter: or("cursor"), next: CursorPointer::Response(next) }
        }
        ("cursor", None, Some(next)) => {
            PageStyle::Cursor { parameter: or("cursor"), next: CursorPointer::LastItem(next) }
        }
        ("cursor", ..) => {
            let help = "write `next = \"/meta/next_cursor\"` for a cursor in the response, or `last_item = \"/id\"` for one in the \
                        last record";
            reader.error(&entry.key_location, "a cursor needs either `next` or `last_item`", help);
            PageStyle::Single
        }
        (_, next, _) => PageStyle::Link { next },
    };
    Paging { style, more, total, size: size_parameter.zip(size) }
}

fn parse_get(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    key: &[Located<String>],
) -> Option<GetEndpoint> {
    let t = &mut table;
    let path = parse_path(reader, t, key);
    let item = parse_pointer_key(reader, t, "item").unwrap_or_default();
    let query = parse_fixed_query(reader, t);
    reader.finish(table);
    let path = path?;
    check_key_in_path(reader, entry, &path, key);
    Some(GetEndpoint { path: path.value, item, query })
}

fn parse_write(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    mut table: TomlTable<'_>,
    default_method: Method,
    key: &[Located<String>],
) -> Option<WriteEndpoint> {
    let t = &mut table;
    let method = reader.one_of(t, "method").and_then(|(_, word)| Method::parse(word));
    let path = parse_path(reader, t, key);
    let body_at = parse_pointer_key(reader, t, "body_at").unwrap_or_default();
    let item = parse_pointer_key(reader, t, "item").unwrap_or_default();
    let query = parse_fixed_query(reader, t);
    let idempotency_header =
        reader.text(t, "idempotency_header").and_then(|name| check_header_name(reader, &name));
    let error = parse_pointer_key(reader, t, "error");
    reader.finish(table);
    let path = path?;
    if default_method != Method::Post {
        check_key_in_path(reader, entry, &path, key);
    }
    Some(WriteEndpoint {
        method: method.unwrap_or(default_method),
        path: path.value,
        body_at,
        item,
        query,
        idempotency_header,
        error,
    })
}

/// One record is found by its whole key.
fn check_key_in_path(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    path: &Located<PathTemplate>,
    key: &[Located<String>],
) {
    if key.is_empty() {
        let message = format!("`{}` needs the key of the collection", entry.key);
        reader.error(&entry.key_location, message, "add a line such as `key = \"id\"`");
        return;
    }
    let names: Vec<&str> = path.value.names().collect();
    let missing: Vec<&str> =
        key.iter().map(|part| part.value.as_str()).filter(|part| !names.contains(part)).collect();
    if !missing.is_empty() {
        let message = format!("the path does not name the key {}", join_and(&missing));
        reader.error(&path.location, message, format!("write a path such as `/orders/{{{}}}`", missing[0]));
    }
}

/// The path of an endpoint, in which only the fields of the key have places.
fn parse_path(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
    key: &[Located<String>],
) -> Option<Located<PathTemplate>> {
    let text = reader.text(t, "path")?;
    let path = parse_path_text(reader, &text)?;
    let known: Vec<&str> = key.iter().map(|part| part.value.as_str()).collect();
    if let Some(name) = path.names().find(|name| !known.contains(name)) {
        let message = format!("`{{{name}}}` is not a part of the key");
        let help = match known.as_slice() {
            [] => "this path has no places for values".to_owned(),
            known => format!("write {}", join_or(known)),
        };
        reader.error(&text.location, message, help);
        return None;
    }
    Some(Located::new(path, text.location))
}

fn parse_path_text(reader: &mut ManifestReader<'_>, text: &TextValue) -> Option<PathTemplate> {
    let (message, help) = match PathTemplate::parse(&text.value) {
        Ok(path) => return Some(path),
        Err(PathError::Pattern(error)) => {
            let (message, help) = error.explain();
            (message.to_owned(), help)
        }
        Err(PathError::NoSlash) => {
            (format!("{} is not a path below `url`", text.quoted()), "begin it with a `/`")
        }
        Err(PathError::EmptySegment) => ("the path has an empty segment".to_owned(), "remove one `/`"),
        Err(PathError::DotSegment) => (
            "the path has a segment of dots, which would leave `url`".to_owned(),
            "write the path that is meant",
        ),
        Err(PathError::Character('?')) => {
            ("the path has a query".to_owned(), "write `query = { … }` instead")
        }
        Err(PathError::Character(c)) => (
            format!("the path has the character `{}`", c.escape_debug()),
            "remove it; Spile encodes what needs it",
        ),
    };
    reader.error(&text.location, message, help);
    None
}

fn parse_pointer_key(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>, name: &str) -> Option<String> {
    let text = reader.text(t, name)?;
    parse_pointer(reader, text)
}

fn parse_fixed_query(reader: &mut ManifestReader<'_>, t: &mut TomlTable<'_>) -> Vec<(String, String)> {
    let query = reader.text_pairs(t, "query");
    query.into_iter().map(|(name, value)| (name.value, value.value)).collect()
}

/// Parses `[tools.NAME.request]`.
pub(super) fn parse_request(
    reader: &mut ManifestReader<'_>,
    t: &mut TomlTable<'_>,
) -> Option<Located<RequestTemplate>> {
    let (entry, mut table) = reader.table(t, "request")?;
    let t = &mut table;
    let method = reader.one_of(t, "method").and_then(|(_, word)| Method::parse(word)).unwrap_or(Method::Get);
    let path_text = reader.text(t, "path");
    let path = match &path_text {
        Some(text) => parse_path_text(reader, text),
        None => Some(PathTemplate::default()),
    };
    let mut query = Vec::new();
    for (name, value) in reader.text_pairs(t, "query") {
        query.extend(parse_pattern(reader, &value).map(|pattern| (name.value, pattern)));
    }
    let mut headers = Vec::new();
    for (name, value) in reader.text_pairs(t, "headers") {
        let name = TextValue { raw: name.value.clone(), value: name.value, location: name.location };
        let Some(name) = check_header_name(reader, &name) else { continue };
        if name.eq_ignore_ascii_case("authorization") {
            let help = "write `auth` in the source";
            reader.error(&value.location, "credentials belong to the source", help);
            continue;
        }
        headers.extend(parse_pattern(reader, &value).map(|pattern| (name, pattern)));
    }
    let body = reader.json_template(t, "body");
    let body_format = match reader.one_of(t, "body_format").map(|(_, word)| word) {
        Some("form") => BodyFormat::Form,
        _ => BodyFormat::Json,
    };
    let idempotency_header =
        reader.text(t, "idempotency_header").and_then(|name| check_header_name(reader, &name));
    let error_pointer = parse_pointer_key(reader, t, "error");
    reader.finish(table);
    if let (Some(body), false) = (&body, method.has_body()) {
        let message = format!("a `{}` request has no body", method.as_str());
        reader.error(&body.location, message, "remove `body`, or choose `method = \"POST\"`");
    }
    let template = RequestTemplate {
        query,
        headers,
        body: body.map(|body| body.value),
        body_format,
        idempotency_header,
        error_pointer,
        ..RequestTemplate::new(method, path?)
    };
    Some(Located::new(template, path_text.map_or(entry.key_location, |text| text.location)))
}

fn parse_pattern(reader: &mut ManifestReader<'_>, text: &TextValue) -> Option<TextPattern> {
    match TextPattern::parse(&text.value) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let (message, help) = error.explain();
            reader.error(&text.location, message, help);
            None
        }
    }
}
