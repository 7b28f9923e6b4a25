//! MCP Apps: `apps/*.html` as `ui://` resources with `_meta.ui`.
//!
//! A comment at the very start of the file, which begins with `<!-- app`, has the settings as YAML. It is not part of what
//! clients get.

use std::ops::Range;

use contract::diagnostic::Diagnostic;
use json::Json;
use json::write::ObjectWriter;
use spile_core::Resource;

use crate::files::FileTree;
use crate::front_matter::{Fields, Reporter, parse_front_matter};
use crate::limits::ContentLimits;
use crate::served::{ServedFile, Strip};
use crate::uri::uri_of_path;

/// The type that hosts recognise an app by (MCP Apps 2026-01-26, UI Resource Format).
pub const APP_MIME_TYPE: &str = "text/html;profile=mcp-app";

const COMMENT_OPEN: &str = "<!-- app";
const COMMENT_CLOSE: &str = "-->";

/// What precedes the document: its YAML, and where the document starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AppComment {
    pub(crate) yaml: Range<usize>,
    pub(crate) end: usize,
}

pub(crate) fn split_app_comment(text: &str) -> Option<AppComment> {
    let start = text.len() - text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).len();
    let rest = text[start..].strip_prefix(COMMENT_OPEN)?;
    if !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let yaml_start = start + COMMENT_OPEN.len();
    let length = rest.find(COMMENT_CLOSE)?;
    let after = &rest[length + COMMENT_CLOSE.len()..];
    let end = text.len() - after.strip_prefix("\r\n").or(after.strip_prefix('\n')).unwrap_or(after).len();
    Some(AppComment { yaml: yaml_start..yaml_start + length, end })
}

pub(crate) fn load_apps(
    tree: &FileTree,
    folder: usize,
    limits: &ContentLimits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<ServedFile> {
    let mut apps = Vec::new();
    for path in tree.files.keys() {
        let Some((name, extension)) = path.rsplit_once('.') else { continue };
        if !extension.eq_ignore_ascii_case("html") {
            continue;
        }
        let label = format!("{}/{path}", tree.label);
        let text = match tree.read(path, limits.resource_bytes_max) {
            Ok(bytes) => String::from_utf8(bytes),
            Err(error) => {
                diagnostics.push(error.diagnostic(&label, limits.resource_bytes_max));
                continue;
            }
        };
        let Ok(text) = text else {
            diagnostics
                .push(Diagnostic::error(format!("`{label}` is not UTF-8")).help("save the file as UTF-8"));
            continue;
        };
        let mut reporter = Reporter::new(&label, &text);
        let settings = parse_app(&text, limits, &mut reporter);
        let has_errors = reporter.has_errors();
        diagnostics.append(&mut reporter.diagnostics);
        let Some(settings) = settings.filter(|_| !has_errors) else { continue };
        let content_bytes = text.len() - split_app_comment(&text).map_or(0, |comment| comment.end);
        apps.push(ServedFile {
            folder,
            path: path.clone(),
            resource: Resource {
                uri: uri_of_path("ui", name),
                name: settings.name.unwrap_or_else(|| name.to_owned()),
                title: settings.title,
                description: settings.description,
                mime_type: Some(APP_MIME_TYPE.into()),
                size: Some(content_bytes as u64),
                meta: settings.ui.map(|ui| {
                    Json::object(|meta| {
                        meta.raw("ui", ui.as_str());
                    })
                }),
                ..Resource::default()
            },
            aliases: vec![label],
            mime_type: APP_MIME_TYPE.into(),
            strip: Strip::AppComment,
            is_listed: settings.listed,
        });
    }
    apps
}

struct AppSettings {
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    listed: bool,
    /// The value of `_meta.ui`.
    ui: Option<Json>,
}

fn parse_app(text: &str, limits: &ContentLimits, reporter: &mut Reporter) -> Option<AppSettings> {
    let comment = split_app_comment(text);
    let members = match &comment {
        None => Vec::new(),
        Some(comment) => parse_front_matter(reporter, comment.yaml.clone(), limits.front_matter_bytes_max)?,
    };
    let document = &text[comment.map_or(0, |comment| comment.end)..];
    let start: String = document.trim_start().chars().take(64).collect::<String>().to_ascii_lowercase();
    if !start.starts_with("<!doctype html") && !start.starts_with("<html") {
        let help = "start it with `<!doctype html>`; hosts render whole documents only";
        reporter.warning(
            text.len() - document.len()..text.len() - document.len(),
            "not a whole HTML document",
            help,
        );
    }
    let mut fields = Fields::new(members, reporter);
    let mut settings = AppSettings {
        name: fields.text("name"),
        title: fields.text("title"),
        description: fields.text("description"),
        listed: fields.bool("listed").unwrap_or(true),
        ui: None,
    };
    let csp = fields.map("csp");
    let permissions = fields.texts("permissions");
    let domain = fields.text("domain");
    let prefers_border = fields.bool("prefers_border");
    fields.refuse_unknown();
    let csp = csp.map(|members| read_csp(Fields::new(members, reporter)));
    let permissions: Option<Vec<&str>> = permissions.map(|names| {
        names.into_iter().filter_map(|(name, span)| read_permission(&name, span, reporter)).collect()
    });
    if csp.is_some() || permissions.is_some() || domain.is_some() || prefers_border.is_some() {
        settings.ui = Some(Json::object(|ui| {
            if let Some(csp) = &csp {
                ui.object("csp", |object| write_csp(object, csp));
            }
            if let Some(permissions) = &permissions {
                ui.object("permissions", |object| {
                    for name in permissions {
                        object.raw(name, "{}");
                    }
                });
            }
            ui.maybe_str("domain", domain.as_deref());
            if let Some(prefers_border) = prefers_border {
                ui.bool("prefersBorder", prefers_border);
            }
        }));
    }
    Some(settings)
}

/// The keys in the file, and those of the protocol.
const CSP_KEYS: [(&str, &str); 4] = [
    ("connect_domains", "connectDomains"),
    ("resource_domains", "resourceDomains"),
    ("frame_domains", "frameDomains"),
    ("base_uri_domains", "baseUriDomains"),
];

type Csp = Vec<(&'static str, Vec<String>)>;

fn read_csp(mut fields: Fields<'_>) -> Csp {
    let mut csp = Vec::new();
    for (key, protocol_key) in CSP_KEYS {
        let Some(origins) = fields.texts(key) else { continue };
        for (origin, span) in &origins {
            if !is_origin(origin) {
                let message = format!("`{key}`: `{origin}` is not an origin");
                fields.reporter.error(
                    span.clone(),
                    message,
                    "write `https://api.example.com` or `https://*.example.com`",
                );
            }
        }
        csp.push((protocol_key, origins.into_iter().map(|(origin, _)| origin).collect()));
    }
    fields.refuse_unknown();
    csp
}

fn write_csp(object: &mut ObjectWriter<'_>, csp: &Csp) {
    for (key, origins) in csp {
        object.array(key, origins, |out, origin| json::write::string(out, origin));
    }
}

/// A scheme, a host and perhaps a port. Anything else could add a directive to the host's policy.
fn is_origin(text: &str) -> bool {
    let schemes = ["https://", "http://", "wss://", "ws://"];
    let Some(rest) = schemes.into_iter().find_map(|scheme| text.strip_prefix(scheme)) else { return false };
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let host = host.strip_prefix("*.").unwrap_or(host);
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    host.split('.').all(is_label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn read_permission(name: &str, span: Range<usize>, reporter: &mut Reporter) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 4] = [
        ("camera", "camera"),
        ("microphone", "microphone"),
        ("geolocation", "geolocation"),
        ("clipboard_write", "clipboardWrite"),
    ];
    let found = KNOWN.iter().find(|(known, _)| *known == name).map(|(_, protocol_name)| *protocol_name);
    if found.is_none() {
        let help = "known permissions: camera, microphone, geolocation, clipboard_write";
        reporter.error(span, format!("unknown permission `{name}`"), help);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{is_origin, split_app_comment};

    #[test]
    fn the_settings_are_in_the_first_comment() {
        for (text, expected) in [
            ("<!-- app\ntitle: X\n-->\n<html>", Some(("\ntitle: X\n", "<html>"))),
            ("\u{feff}\n<!-- app title: X --><html>", Some((" title: X ", "<html>"))),
            ("<!-- app\r\ntitle: X\r\n-->\r\n<html>", Some(("\r\ntitle: X\r\n", "<html>"))),
            ("<!-- application --><html>", None),
            ("<!-- a comment --><html>", None),
            ("<html><!-- app x --></html>", None),
            ("<!-- app never closed", None),
            ("", None),
        ] {
            let found = split_app_comment(text).map(|comment| (&text[comment.yaml], &text[comment.end..]));
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn an_origin_cannot_smuggle_a_directive() {
        for origin in
            ["https://a.example.com", "https://*.example.com", "wss://a.b:8443", "http://localhost:3000"]
        {
            assert!(is_origin(origin), "{origin}");
        }
        for origin in [
            "",
            "example.com",
            "https://",
            "https://a.com/path",
            "https://a.com;script-src *",
            "https://a.com script-src",
            "https://a..com",
            "https://*",
            "*",
            "'self'",
            "javascript:alert(1)",
            "https://a.com:99999",
            "https://user@a.com",
        ] {
            assert!(!is_origin(origin), "{origin}");
        }
    }
}
