//! Which server is meant, and how it is spoken to: flags as typed, read once into something that can be opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use call::Caps;
use clap::{Args, ValueEnum};
use upstream::{Connection, Options, Seen, Tap, Target, masked, process};
use wire::Version;
use wire::client::{Speak, Terms};
use wire::frame::Framing;

use super::desk::{Desk, Seat};
use super::inside;
use super::trouble::{Named, Trouble, over_http};

/// Flags that every client command has.
#[derive(Debug, Args)]
pub struct To {
    /// A server at an address: http:, https:, ws:, wss:, unix: or http+unix:
    #[arg(long, value_name = "URL", help_heading = SERVER, conflicts_with_all = ["command", "from"])]
    url: Option<String>,

    /// A server that is a program: started, and spoken to on its stdin and stdout
    #[arg(long, value_name = "CMD ARGS…", help_heading = SERVER, conflicts_with = "from")]
    command: Option<String>,

    /// What `spile serve` takes, served in this process; the default is the current folder
    #[arg(long, value_name = "PATH", help_heading = SERVER)]
    from: Option<PathBuf>,

    /// Sent with every request; may be repeated
    #[arg(long, value_name = "NAME: VALUE", help_heading = SERVER)]
    header: Vec<String>,

    /// Send the bearer token in this file
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    token_file: Option<PathBuf>,

    /// Trust the certificates in this file too (PEM)
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    cacert: Option<PathBuf>,

    /// Speak this protocol version and no other
    #[arg(long, value_name = "VERSION", help_heading = SERVER, value_parser = version)]
    protocol: Option<Version>,

    /// How messages are told apart on a pipe: by lines, the standard, or by Content-Length
    #[arg(long, help_heading = SERVER)]
    framing: Option<PipeFraming>,

    /// Tell the server that it may work in this folder; may be repeated
    #[arg(long, value_name = "DIR", help_heading = SERVER)]
    root: Vec<PathBuf>,

    /// How long one answer may take
    #[arg(long, value_name = "SECONDS", help_heading = SERVER, default_value = "120", value_parser = seconds)]
    timeout: Seconds,

    /// Text to read, or the result as it came
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Output,

    /// Show what the server logs and what is odd about it; twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

const SERVER: &str = "Server";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PipeFraming {
    Lines,
    Headers,
}

/// A time, as typed: `0.5`, `120`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds {
    ms: u64,
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.ms as f64 / 1000.0)
    }
}

fn seconds(text: &str) -> Result<Seconds, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=1_000_000.0).contains(&seconds) => {
            Ok(Seconds { ms: (seconds * 1000.0).ceil() as u64 })
        }
        _ => Err("expected seconds, more than 0, such as 0.5 or 120".into()),
    }
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| {
        let known: Vec<&str> = Version::ALL.iter().map(|(_, date)| *date).collect();
        format!("known are {}", known.join(", "))
    })
}

/// The same, as meant.
pub(crate) struct Place {
    pub(crate) named: Named,
    pub(crate) timeout_ms: u64,
    pub(crate) roots: Vec<PathBuf>,
    reach: Reach,
    options: Options,
}

enum Reach {
    At(Target),
    Start(process::Command),
    Inside(PathBuf),
}

impl To {
    /// Whether somebody said which server it is.
    pub(crate) fn is_said(&self) -> bool {
        self.url.is_some() || self.command.is_some() || self.from.is_some()
    }

    pub(crate) fn place(&self) -> Result<Place, Trouble> {
        let (at, reach) = match (&self.url, &self.command, &self.from) {
            (Some(url), ..) => {
                let target = Target::parse(url).map_err(|error| Trouble::usage(format!("--url: {error}")))?;
                (masked::address(url).into_owned(), Reach::At(target))
            }
            (None, Some(line), _) => {
                let command = process::Command::parse(line);
                let command = command.map_err(|error| Trouble::usage(format!("--command: {error}")))?;
                // Without the variables in front, and what looks like a secret: `masked` says what does.
                (command.to_string(), Reach::Start(command))
            }
            (None, None, from) => {
                let path = from.clone().unwrap_or_else(|| ".".into());
                (path.display().to_string(), Reach::Inside(path))
            }
        };
        let headers = self.headers()?;
        let has_heads = matches!(
            reach,
            Reach::At(Target::Http(_) | Target::Sse(_) | Target::WebSocket(_) | Target::HttpUnix { .. })
        );
        if !headers.is_empty() && !has_heads {
            let help = match (&reach, at.strip_prefix("unix:")) {
                (Reach::At(_), Some(path)) => over_http(path),
                _ => "a program takes its secrets from its environment".to_owned(),
            };
            return Err(
                Trouble::usage("headers and tokens are for servers over HTTP and WebSocket").help(help)
            );
        }
        if self.framing.is_some() && has_heads {
            return Err(Trouble::usage(
                "--framing is for pipes; over HTTP and WebSocket there is nothing to frame",
            ));
        }
        let roots = self.root.iter().map(|root| folder(root)).collect::<Result<Vec<_>, _>>()?;
        let mut caps = Caps::ELICIT_FORM.with(Caps::ELICIT_URL);
        if !roots.is_empty() {
            caps = caps.with(Caps::ROOTS);
        }
        let ms = self.timeout.ms;
        let terms = Terms::default();
        let terms = Terms {
            caps,
            speak: self.protocol.map_or(Speak::Any, Speak::Only),
            handshake_ms: terms.handshake_ms.min(ms),
            probe_ms: terms.probe_ms.min(ms),
            ..terms
        };
        let outbound = outbound::Options::default();
        let options = Options {
            terms,
            outbound: outbound::Options {
                ca_file: self.cacert.clone(),
                connect_timeout_ms: outbound.connect_timeout_ms.min(ms),
            },
            framing: match self.framing {
                Some(PipeFraming::Headers) => Framing::Headers,
                Some(PipeFraming::Lines) | None => Framing::Lines,
            },
            ..Options::default()
        };
        let named = Named { at, with_token: !headers.is_empty(), with_protocol: self.protocol.is_some() };
        Ok(Place { named, timeout_ms: ms, roots, reach, options: Options { headers, ..options } })
    }

    fn headers(&self) -> Result<Vec<(String, String)>, Trouble> {
        let mut headers = self.header.iter().map(|text| header(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(file) = &self.token_file {
            if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
                return Err(Trouble::usage("--header says who we are already; leave --token-file out"));
            }
            headers.push(("Authorization".to_owned(), format!("Bearer {}", token(file)?)));
        }
        Ok(headers)
    }
}

/// Headers that are part of the protocol, or of HTTP itself.
const OURS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "transfer-encoding",
    "upgrade",
];

fn header(text: &str) -> Result<(String, String), Trouble> {
    // The value may be a secret, so none is repeated.
    let bad = |why: &str| {
        Trouble::usage(format!("--header: {why}")).help("one looks like --header \"X-Key: value\"")
    };
    let (name, value) = text.split_once(':').ok_or_else(|| bad("there is no `:` behind the name"))?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(bad("a name has only letters, digits and `-`"));
    }
    if value.bytes().any(|c| c < 0x20 && c != b'\t' || c == 0x7f) || !value.is_ascii() {
        return Err(bad(&format!("the value of `{name}` has a character that cannot be sent")));
    }
    let lower = name.to_ascii_lowercase();
    if OURS.contains(&&*lower) || lower.starts_with("mcp-") || lower.starts_with("sec-websocket-") {
        return Err(Trouble::usage(format!("--header: `{name}` is set by the protocol")));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn token(file: &Path) -> Result<String, Trouble> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Trouble::usage(format!("there is no token file `{shown}`")),
        std::io::ErrorKind::InvalidData => Trouble::usage(format!("the token file `{shown}` is no text")),
        _ => Trouble::usage(format!("the token file `{shown}` cannot be read: {error}")),
    })?;
    match text.trim() {
        "" => Err(Trouble::usage(format!("the token file `{shown}` is empty"))),
        token if token.contains(['\n', '\r']) => {
            Err(Trouble::usage(format!("the token file `{shown}` has more than one line; a token is one")))
        }
        token if !token.bytes().all(|c| c.is_ascii_graphic()) => Err(Trouble::usage(format!(
            "the token in `{shown}` has a character that cannot be sent; a token has letters, digits and signs"
        ))),
        token => Ok(token.to_owned()),
    }
}

fn folder(path: &Path) -> Result<PathBuf, Trouble> {
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        _ => Err(Trouble::usage(format!("--root: there is no folder `{}`", path.display()))),
    }
}

impl Place {
    pub(crate) async fn open(
        self,
        desk: &Arc<Desk>,
        tap: Option<Arc<dyn Tap>>,
    ) -> Result<Connection, Trouble> {
        let options = Options { tap, ..self.options };
        let told = |error| Trouble::opening(error, &self.named);
        match self.reach {
            Reach::At(target) => {
                Connection::open(&target, options, Arc::new(Seat(desk.clone()))).await.map_err(told)
            }
            Reach::Start(command) => {
                Connection::spawn(&command, options, Arc::new(Seat(desk.clone()))).await.map_err(told)
            }
            Reach::Inside(path) => {
                let (input, output) = tokio::io::split(inside::serve(&path, desk)?);
                if let Some(tap) = &options.tap {
                    tap.saw(Seen::Opened(&format!("serving {} in this process", path.display())));
                }
                Connection::over_pipe(input, output, options, Arc::new(Seat(desk.clone())))
                    .await
                    .map_err(told)
            }
        }
    }
}
