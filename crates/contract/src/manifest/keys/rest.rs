//! The keys of sources that are REST APIs: the source itself, the endpoints of its collections, and requests of tools.

use super::{AppliesTo, COLUMN_CHARS_MAX, Key, Section, TextLength, VALUE, ValueType};
use crate::manifest::SourceKind;
use crate::manifest::rest::{
    PAGE_SIZE_LIMIT, PAGES_MAX_LIMIT, READ_ROWS_MAX_LIMIT, REQUEST_TIMEOUT_MS_LIMIT, REQUESTS_MAX_LIMIT,
    RESPONSE_BYTES_MAX_LIMIT, RESPONSE_BYTES_MAX_MINIMUM,
};
use crate::request::Method;

pub(super) const REST: AppliesTo = AppliesTo::SourceKinds(&[SourceKind::Rest]);

const PATH: ValueType = ValueType::Text(TextLength::Any(2000));
const POINTER: ValueType = ValueType::Text(TextLength::Any(COLUMN_CHARS_MAX));
const NAME: ValueType = ValueType::Text(TextLength::NonBlank(200));
const SECRET: ValueType = ValueType::Text(TextLength::NonBlank(COLUMN_CHARS_MAX));

fn methods() -> Vec<&'static str> {
    Method::ALL.map(Method::as_str).to_vec()
}

fn writing_methods() -> Vec<&'static str> {
    Method::ALL.into_iter().filter(|method| !method.is_safe()).map(Method::as_str).collect()
}

const QUERY: Key = Key::new("query", ValueType::TextPairs, "Parameters of the query that never change.")
    .example("{ expand = \"lines\" }")
    .aliases(&["params", "parameters"]);
const ITEM: Key = Key::new("item", POINTER, "The JSON pointer to the record in the response.")
    .default_text("the whole response")
    .example("\"/data\"")
    .aliases(&["record", "result", "pointer"]);
const IDEMPOTENCY_HEADER: Key = Key::new(
    "idempotency_header",
    NAME,
    "The header by which the API recognizes a repeated request. Callers can then pass an `idempotency_key`, and a \
     request that failed on the way is sent again.",
)
.example("\"Idempotency-Key\"");
const ERROR: Key = Key::new(
    "error",
    POINTER,
    "The JSON pointer to the text that says why the API refuses a request. Callers read it, cut to 300 characters. Without \
     it they learn the status only.",
)
.example("\"/error/message\"");

pub static AUTH: Section = Section {
    header: "[sources.NAME.auth]",
    description: "The credentials of a REST API: one of these keys. Values come from variables, and nothing shows them. They \
                  are sent to the host of `url` only.",
    keys: &[
        Key::new("bearer", SECRET, "A token, sent as `Authorization: Bearer …`.")
            .example("\"secret\"")
            .aliases(&["token", "access_token", "api_token"]),
        Key::new("basic", ValueType::Table(&BASIC), "A user and a password.")
            .example("{ user = \"reports\", password = \"secret\" }"),
        Key::new("header", ValueType::Table(&AUTH_HEADER), "A header with a key.")
            .example("{ name = \"X-Api-Key\", value = \"secret\" }")
            .aliases(&["api_key", "apikey"]),
        Key::new(
            "client_credentials",
            ValueType::Table(&CLIENT_CREDENTIALS),
            "OAuth 2 without a user: Spile fetches a token, and a new one before it expires.",
        )
        .example(
            "{ token_url = \"https://login.example.com/token\", client_id = \"reports\", client_secret = \"secret\" }",
        )
        .aliases(&["oauth", "oauth2"]),
    ],
};

pub static BASIC: Section = Section {
    header: "[sources.NAME.auth.basic]",
    description: "A user and a password.",
    keys: &[
        Key::new("user", SECRET, "The user.").example("\"reports\"").aliases(&["username", "login"]),
        Key::new("password", VALUE, "The password.").default_text("empty").example("\"secret\""),
    ],
};

pub static AUTH_HEADER: Section = Section {
    header: "[sources.NAME.auth.header]",
    description: "A header with a key.",
    keys: &[
        Key::new("name", NAME, "The name of the header.").example("\"X-Api-Key\""),
        Key::new("value", SECRET, "Its value.").example("\"secret\""),
    ],
};

pub static CLIENT_CREDENTIALS: Section = Section {
    header: "[sources.NAME.auth.client_credentials]",
    description: "OAuth 2 client credentials (RFC 6749, 4.4).",
    keys: &[
        Key::new("token_url", NAME, "The token endpoint.").example("\"https://login.example.com/token\""),
        Key::new("client_id", SECRET, "The id of the client.").example("\"reports\""),
        Key::new("client_secret", SECRET, "Its secret.").example("\"secret\""),
        Key::new("scope", NAME, "The scopes to ask for, with blanks between them.")
            .default_text("none")
            .example("\"orders.read\"")
            .aliases(&["scopes"]),
    ],
};

/// The keys of `[sources.NAME]` that are for REST APIs only.
pub(super) const SOURCE_KEYS: [Key; 11] = [
    Key::new("auth", ValueType::Table(&AUTH), "The credentials.")
        .default_text("none")
        .example("{ bearer = \"secret\" }")
        .aliases(&["authorization", "authentication", "credentials", "token"])
        .applies_to(REST),
    Key::new("headers", ValueType::TextPairs, "Headers of every request.")
        .example("{ X-Api-Version = \"2\" }")
        .applies_to(REST),
    Key::new("query", ValueType::TextPairs, "Parameters in the query of every request, such as a key.")
        .example("{ api_key = \"secret\" }")
        .aliases(&["params"])
        .applies_to(REST),
    Key::new(
        "allow_private_addresses",
        ValueType::Boolean,
        "Whether the host may be at an address of this machine or its network. Otherwise only public addresses are \
         connected to, however the name is spelled or resolved.",
    )
    .default_text("`false`")
    .example("true")
    .aliases(&["allow_private_networks", "allow_localhost"])
    .applies_to(REST),
    Key::new(
        "redirects",
        ValueType::OneOf(|| vec!["same_origin", "any", "none"]),
        "Which redirects of a reading request are followed: below `url` only, or also to other public hosts. `any` needs a \
         source without `auth`, `headers` and `query`.",
    )
    .default_text("`same_origin`")
    .example("\"any\"")
    .aliases(&["follow_redirects"])
    .applies_to(REST),
    Key::new(
        "requests_max",
        ValueType::Integer { min: 1, max: REQUESTS_MAX_LIMIT as u64 },
        "How many requests run at the same time; others wait.",
    )
    .default_text("4")
    .example("8")
    .aliases(&["concurrency", "max_concurrency"])
    .applies_to(REST),
    Key::new("rate_limit", ValueType::Rate, "How many requests are sent, at most. Others wait, or are refused.")
        .default_text("no limit")
        .example("\"10/s\"")
        .aliases(&["rate", "throttle"])
        .applies_to(REST),
    Key::new(
        "timeout_ms",
        ValueType::Integer { min: 1, max: REQUEST_TIMEOUT_MS_LIMIT },
        "How long one request may take, in milliseconds.",
    )
    .default_text("10000")
    .example("30000")
    .aliases(&["timeout", "request_timeout"])
    .applies_to(REST),
    Key::new(
        "response_bytes_max",
        ValueType::Integer { min: RESPONSE_BYTES_MAX_MINIMUM as u64, max: RESPONSE_BYTES_MAX_LIMIT as u64 },
        "The maximum size of one response, in bytes.",
    )
    .default_text("16777216")
    .example("1048576")
    .applies_to(REST),
    Key::new(
        "pages_max",
        ValueType::Integer { min: 1, max: PAGES_MAX_LIMIT as u64 },
        "How many pages one call reads, at most. A question that needs more is refused with a reason.",
    )
    .default_text("100")
    .example("20")
    .applies_to(REST),
    Key::new(
        "read_rows_max",
        ValueType::Integer { min: 1, max: READ_ROWS_MAX_LIMIT as u64 },
        "How many rows one call reads, at most.",
    )
    .default_text("100000")
    .example("10000")
    .applies_to(REST),
];

/// The keys of `[collections.NAME]` that are for REST APIs only.
pub(super) const COLLECTION_KEYS: [Key; 5] = [
    Key::new(
        "list",
        ValueType::Table(&LIST),
        "How records are listed. `search` and `aggregate` use it, too.",
    )
    .example("{ path = \"/orders\", items = \"/data\" }")
    .applies_to(REST),
    Key::new("get", ValueType::Table(&GET), "How one record is read.")
        .default_text("by reading the list")
        .example("{ path = \"/orders/{id}\" }")
        .applies_to(REST),
    Key::new(
        "create",
        ValueType::Table(&WRITE),
        "How a record is created. Only with the operation `create`.",
    )
    .example("{ method = \"POST\", path = \"/orders\" }")
    .applies_to(REST),
    Key::new(
        "update",
        ValueType::Table(&WRITE),
        "How a record is changed. Only with the operation `update`.",
    )
    .example("{ method = \"PATCH\", path = \"/orders/{id}\" }")
    .applies_to(REST),
    Key::new(
        "delete",
        ValueType::Table(&WRITE),
        "How a record is deleted. Only with the operation `delete`.",
    )
    .example("{ method = \"DELETE\", path = \"/orders/{id}\" }")
    .applies_to(REST),
];

pub static LIST: Section = Section {
    header: "[collections.NAME.list]",
    description: "How the records of a collection are listed by a REST API.",
    keys: &[
        Key::new("path", PATH, "The path below the source's `url`.").default_text("empty").example("\"/orders\""),
        Key::new("items", POINTER, "The JSON pointer to the array of records in the response.")
            .default_text("the whole response")
            .example("\"/data\"")
            .aliases(&["records", "results", "data"]),
        QUERY,
        Key::new("format", ValueType::OneOf(|| vec!["json", "csv", "jsonl"]), "What the response is. `jsonl` has an object in each line.")
            .default_text("`json`")
            .example("\"csv\""),
        Key::new("page", ValueType::Table(&PAGE), "How the API divides a list into pages.")
            .default_text("one response has all records")
            .example("{ style = \"cursor\", parameter = \"cursor\", next = \"/meta/next_cursor\" }")
            .aliases(&["pages", "paging", "pagination"]),
        Key::new(
            "filters",
            ValueType::TextPairs,
            "Filters that the API understands: an argument of the list tool, and the parameter of the query for it. The API may \
             return more records than those that match, but never fewer: Spile checks each one again.",
        )
        .example("{ status = \"status\", created_min = \"created_after\" }"),
    ],
};

pub static PAGE: Section = Section {
    header: "[collections.NAME.list.page]",
    description: "How a REST API divides a list into pages. Without `more` and `total`, pages that are numbered or counted end with \
                  the first empty one. What contradicts the end of the list is an error.",
    keys: &[
        Key::new(
            "style",
            ValueType::OneOf(|| vec!["page", "offset", "cursor", "link"]),
            "A page's number, the number of records before it, a cursor from the page before, or a `Link` header (RFC 8288).",
        )
        .example("\"cursor\"")
        .aliases(&["kind", "type"]),
        Key::new("parameter", NAME, "The parameter of the query. Not with `link`.")
            .default_text("`page`, `offset` or `cursor`")
            .example("\"page\"")
            .aliases(&["param"]),
        Key::new("first", ValueType::Integer { min: 0, max: 1 }, "The number of the first page. Only with `page`.")
            .default_text("1")
            .example("0"),
        Key::new(
            "next",
            POINTER,
            "The JSON pointer to the next cursor, or with `link` to the URL of the next page. There is no next page if it is \
             missing, null, empty or `false`.",
        )
        .default_text("with `link`, the `Link` header")
        .example("\"/meta/next_cursor\""),
        Key::new(
            "last_item",
            POINTER,
            "The JSON pointer into the last record of a page whose value is the next cursor. Only with `cursor`, and with `more` \
             or an empty page at the end.",
        )
        .example("\"/id\""),
        Key::new("more", POINTER, "The JSON pointer to `true` if there are more pages, and `false` on the last.").example("\"/has_more\""),
        Key::new("total", POINTER, "The JSON pointer to the number of records of all pages together, which must be exact: fewer records are an error.")
            .example("\"/meta/total\""),
        Key::new(
            "size",
            ValueType::Integer { min: 1, max: PAGE_SIZE_LIMIT as u64 },
            "How many records to ask for. Needs `size_parameter`.",
        )
        .example("100"),
        Key::new("size_parameter", NAME, "The parameter of the query for `size`.")
            .example("\"per_page\"")
            .aliases(&["size_param", "limit_parameter"]),
    ],
};

pub static GET: Section = Section {
    header: "[collections.NAME.get]",
    description: "How a REST API returns one record. A response with the status 404 or 410, or `null` at `item`, means that there is none.",
    keys: &[
        Key::new("path", PATH, "The path below the source's `url`, with the fields of the key in braces.")
            .example("\"/orders/{id}\""),
        ITEM,
        QUERY,
    ],
};

pub static WRITE: Section = Section {
    header: "[collections.NAME.create]",
    description: "How a REST API changes a record: also `update` and `delete`. The body of `create`, `update` and every `PUT` is a JSON \
                  object with the fields by their names in the API: all fields of the record for a `PUT`, those that change for \
                  a `PATCH`.",
    keys: &[
        Key::new("method", ValueType::OneOf(writing_methods), "The method.")
            .default_text("`POST` to create, `PATCH` to update, `DELETE` to delete")
            .example("\"PUT\""),
        Key::new("path", PATH, "The path below the source's `url`, with the fields of the key in braces.")
            .example("\"/orders/{id}\""),
        Key::new("body_at", POINTER, "The JSON pointer to where the record is in the body.")
            .default_text("the whole body")
            .example("\"/order\"")
            .aliases(&["wrap", "envelope"]),
        ITEM,
        QUERY,
        IDEMPOTENCY_HEADER,
        ERROR,
    ],
};

pub static REQUEST: Section = Section {
    header: "[tools.NAME.request]",
    description: "A request to a REST API. `{name}` is the place of an argument: in a path it stays inside its segment, in a query it is \
                  one value. An argument that is not used becomes a parameter of the query, or a member of the body if the method has one.",
    keys: &[
        Key::new("method", ValueType::OneOf(methods), "The method.").default_text("`GET`").example("\"POST\""),
        Key::new("path", PATH, "The path below the source's `url`.")
            .default_text("empty")
            .example("\"/orders/{order_id}/refund\"")
            .aliases(&["url", "endpoint"]),
        Key::new(
            "query",
            ValueType::TextPairs,
            "Parameters of the query. An argument that callers omit leaves its parameter out. An array is sent as several \
             parameters, or joined: `{tags|csv}`, `{tags|pipes}`, `{tags|spaces}`.",
        )
        .example("{ notify = \"{notify}\" }")
        .aliases(&["params", "parameters"]),
        Key::new("headers", ValueType::TextPairs, "Headers. Values must be visible ASCII characters.")
            .example("{ X-Reason = \"{reason}\" }"),
        Key::new(
            "body",
            ValueType::JsonTemplate,
            "The body, as JSON: `\"{name}\"` is an argument of its type. Members whose argument is omitted are left out.",
        )
        .default_text("the arguments that nothing else uses")
        .example("{ amount = \"{amount}\", source = \"agent\" }")
        .aliases(&["json", "data", "payload"]),
        Key::new("body_format", ValueType::OneOf(|| vec!["json", "form"]), "How the body is encoded.")
            .default_text("`json`")
            .example("\"form\"")
            .aliases(&["content_type"]),
        IDEMPOTENCY_HEADER,
        ERROR,
    ],
};
