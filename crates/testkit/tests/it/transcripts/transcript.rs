//! Parses a transcript into steps.

use spile_core::Limits;

const SHARED_VARIABLES: &str = include_str!("variables.txt");

pub struct Transcript {
    /// Folder and file name.
    name: String,
    pub version: String,
    pub transport: TransportKind,
    pub framing: Framing,
    pub providers: Vec<String>,
    pub limits: Limits,
    pub variables: Vec<(String, String)>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    Stdio,
    Http,
    Sse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Lines,
    ContentLength,
}

/// One line, or one block of lines that belong together.
#[derive(Clone)]
pub struct Step {
    pub line: usize,
    /// The connection; empty for the default one.
    pub connection: String,
    pub action: Action,
}

#[derive(Clone)]
pub enum Action {
    Let {
        name: String,
        text: String,
    },
    /// A message that conforms to its schema, or one that must not.
    Send {
        text: String,
        conforms: bool,
    },
    Raw(Vec<u8>),
    Header {
        name: String,
        value: String,
    },
    /// GET or DELETE.
    Request(&'static str),
    Expect(Vec<Expected>),
    Status(u16),
    ExpectHeader {
        name: String,
        value: String,
    },
    Event(String),
    End,
    AdvanceTime {
        ms: u64,
    },
    Close,
}

#[derive(Clone)]
pub struct Expected {
    pub line: usize,
    pub text: String,
    /// Anywhere in its block.
    pub any_order: bool,
}

impl Transcript {
    pub fn title(&self) -> String {
        format!("{} at {} over {:?}", self.name, self.version, self.transport)
    }

    pub fn location(&self, line: usize) -> String {
        format!("{}:{line}", self.name)
    }
}

/// The transcript for each version and transport it names.
pub fn parse(name: &str, folder: &str, text: &str) -> Vec<Transcript> {
    let mut versions = default_versions(folder);
    let mut transports = vec![TransportKind::Stdio, TransportKind::Sse];
    let mut framing = Framing::Lines;
    let mut serves = vec!["conformance".to_owned()];
    let mut limits = Limits::default();
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        let location = format!("{name}:{number}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = |rest: &str| rest.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        if let Some((key, value)) = line.split_once(": ")
            && steps.is_empty()
            && !line.starts_with(['>', '<', '@'])
        {
            match key {
                "serves" => serves = words(value),
                "versions" => versions = words(value),
                "transports" => {
                    transports =
                        words(value).iter().map(|transport| parse_transport(transport, &location)).collect()
                }
                "limit" => set_limit(&mut limits, value, &location),
                "framing" if value == "content-length" => framing = Framing::ContentLength,
                _ => panic!("{location}: what is `{line}`?"),
            }
            continue;
        }
        let (on, line) = match line.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
            Some((on, rest)) => (on.to_owned(), rest.trim()),
            None => (String::new(), line),
        };
        let act = parse_action(number, line, &location);
        match (steps.last_mut(), act) {
            (Some(Step { connection: before, action: Action::Expect(block), .. }), Action::Expect(more))
                if *before == on =>
            {
                block.extend(more);
            }
            (_, act) => steps.push(Step { line: number, connection: on, action: act }),
        }
    }
    if framing == Framing::ContentLength {
        transports.retain(|transport| *transport == TransportKind::Stdio);
    }
    let mut all = Vec::new();
    for version in &versions {
        for transport in &transports {
            let mut lets = vec![
                ("version".to_owned(), version.clone()),
                ("nobody".to_owned(), null_id_member(version).to_owned()),
                ("data".to_owned(), data_as_text(version).to_owned()),
            ];
            for line in SHARED_VARIABLES.lines().filter(|line| line.starts_with("let ")) {
                let Action::Let { name, text } = parse_action(0, line, "variables.txt") else { continue };
                lets.push((name, text));
            }
            all.push(Transcript {
                name: name.to_owned(),
                version: version.clone(),
                transport: *transport,
                framing,
                providers: serves.clone(),
                limits: limits.clone(),
                variables: lets,
                steps: steps.clone(),
            });
        }
    }
    all
}

fn default_versions(folder: &str) -> Vec<String> {
    let all = wire::Version::ALL.iter();
    let own: Vec<String> = match folder {
        "handshake" => all
            .filter(|(version, _)| version.has(wire::Feature::Handshake))
            .map(|(_, date)| (*date).to_owned())
            .collect(),
        _ => all.filter(|(_, date)| *date == folder).map(|(_, date)| (*date).to_owned()).collect(),
    };
    // A transcript that mixes versions names them in each message; this is the version of a message without one.
    if own.is_empty() { vec![wire::Version::UNSPECIFIED.as_str().to_owned()] } else { own }
}

/// How an error without a request encodes its id: left out, or `null` in versions that require it.
fn null_id_member(version: &str) -> &'static str {
    let has_word = |version: wire::Version| version.has(wire::Feature::ErrorWithoutId);
    if wire::Version::parse(version).is_some_and(has_word) { "" } else { "\"id\":null," }
}

/// The second text of a failed tool call, for versions without structured content.
fn data_as_text(version: &str) -> &'static str {
    let has_structured = |version: wire::Version| version.has(wire::Feature::StructuredContent);
    if wire::Version::parse(version).is_some_and(has_structured) {
        ""
    } else {
        r#",{"type":"text","text":"<string>"}"#
    }
}

fn parse_action(number: usize, line: &str, location: &str) -> Action {
    let (sign, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let expected =
        |floats| Action::Expect(vec![Expected { line: number, text: rest.to_owned(), any_order: floats }]);
    let header = || {
        let (name, value) = rest.split_once(':').unwrap_or((rest, ""));
        (name.trim().to_owned(), value.trim().to_owned())
    };
    match sign {
        "let" => {
            let (name, text) =
                rest.split_once(" = ").unwrap_or_else(|| panic!("{location}: let NAME = TEXT"));
            Action::Let { name: name.trim().to_owned(), text: text.trim().to_owned() }
        }
        ">" => Action::Send { text: rest.to_owned(), conforms: true },
        ">!" => Action::Send { text: rest.to_owned(), conforms: false },
        ">raw" => Action::Raw(unescape(rest)),
        ">h" => {
            let (name, value) = header();
            Action::Header { name, value }
        }
        ">get" => Action::Request("GET"),
        ">delete" => Action::Request("DELETE"),
        "<" => expected(false),
        "<*" => expected(true),
        "<s" => Action::Status(rest.parse().unwrap_or_else(|_| panic!("{location}: <s STATUS"))),
        "<h" => {
            let (name, value) = header();
            Action::ExpectHeader { name, value }
        }
        "<e" => Action::Event(rest.to_owned()),
        "<end" => Action::End,
        "~" => {
            Action::AdvanceTime { ms: rest.parse().unwrap_or_else(|_| panic!("{location}: ~ MILLISECONDS")) }
        }
        "close" => Action::Close,
        _ => panic!("{location}: what is `{line}`?"),
    }
}

fn parse_transport(name: &str, location: &str) -> TransportKind {
    match name {
        "stdio" => TransportKind::Stdio,
        "http" => TransportKind::Http,
        "sse" => TransportKind::Sse,
        _ => panic!("{location}: unknown transport `{name}`"),
    }
}

fn set_limit(limits: &mut Limits, text: &str, location: &str) {
    let (name, value) = text.split_once(' ').unwrap_or_else(|| panic!("{location}: limit: NAME NUMBER"));
    let value: u64 = value.trim().parse().unwrap_or_else(|_| panic!("{location}: `{value}` is no number"));
    let size = value as usize;
    match name {
        "page_items_max" => limits.page_items_max = size,
        "batch_items_max" => limits.batch_items_max = size,
        "message_bytes_max" => limits.message_bytes_max = size,
        "calls_per_connection_max" => limits.calls_per_connection_max = size,
        "subscriptions_per_connection_max" => limits.subscriptions_per_connection_max = size,
        "tasks_per_principal_max" => limits.tasks_per_principal_max = size,
        "call_timeout_ms" => limits.call_timeout_ms = value,
        "rounds_max" => limits.input_rounds_max = value as u32,
        _ => panic!("{location}: no limit is called `{name}` here"),
    }
}

/// `\r`, `\n`, `\\` and `\xff`; everything else is literal.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let (byte, len) = match after.as_bytes() {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', ..] => (u8::from_str_radix(&after[1..3], 16).expect("two hex digits after \\x"), 3),
            _ => panic!("what is `\\{after}`?"),
        };
        out.push(byte);
        rest = &after[len..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
