//! The client's commands, each a question to a server that is open already.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use clap::{Args, Subcommand, ValueEnum};
use contract::humanize::{join_truncated, pluralize};
use contract::nearest;
use json::{Json, Node};
use tokio::sync::OnceCell;
use upstream::Connection;
use wire::ListKind;
use wire::client::{ClientCall, ClientError};
use wire::method::Method;

use super::arguments;
use super::error::{CommandError, Exit, Phase, ServerLabel};
use super::output_style::{OutputStyle, print};
use super::render;
use super::schema::Schema;
use super::server_args::OutputFormat;
use super::terminal::Terminal;
use crate::atomic_file::{self, FileMode};
use crate::sanitize;

/// One thing to ask. In `spile trace` each is typed as one argument.
#[derive(Debug, Subcommand)]
pub(crate) enum Step {
    /// List the tools of a server, or show one in full
    Tools(ToolsArgs),
    /// Call a tool
    Call(CallArgs),
    /// List the resources of a server, and the patterns of their addresses
    Resources(NoArgs),
    /// Read a resource
    Read(ReadArgs),
    /// List the prompts of a server
    Prompts(NoArgs),
    /// Get a prompt, filled in
    Prompt(PromptArgs),
    /// Ask how an argument of a prompt or a resource pattern could go on
    Complete(CompleteArgs),
    /// Ask whether the server is there, who it is, and how long it takes to say so
    Ping(NoArgs),
}

impl Step {
    /// Names of what a server offers, and what is neither that nor an argument.
    pub(crate) fn positional_words(&self) -> Vec<&str> {
        match self {
            Self::Tools(args) => args.name.iter().map(String::as_str).collect(),
            Self::Call(args) => name_and_bare_words(&args.tool, &args.arguments),
            Self::Prompt(args) => name_and_bare_words(&args.name, &args.arguments),
            Self::Resources(_) | Self::Read(_) | Self::Prompts(_) | Self::Complete(_) | Self::Ping(_) => {
                Vec::new()
            }
        }
    }
}

fn name_and_bare_words<'a>(name: &'a str, arguments: &'a [String]) -> Vec<&'a str> {
    let bare = arguments.iter().map(String::as_str).filter(|word| !word.contains('='));
    std::iter::once(name).chain(bare).collect()
}

#[derive(Debug, Args)]
pub struct NoArgs {}

#[derive(Debug, Args)]
pub struct ToolsArgs {
    /// The tool to show in full
    name: Option<String>,
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool
    tool: String,
    /// Its arguments, read by its input schema; a key that is given again adds to a list
    #[arg(value_name = "KEY=VALUE", conflicts_with = "json")]
    arguments: Vec<String>,
    /// Its arguments as a JSON object; `-` reads them from stdin
    #[arg(long)]
    json: Option<String>,
    /// Send arguments that do not fit, to see what the server says
    #[arg(long)]
    unchecked: bool,
    /// Write the first image, sound or file of the answer to FILE
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The resource's address
    uri: String,
    /// Write what it holds to FILE, byte for byte
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PromptArgs {
    /// The prompt
    name: String,
    /// Its arguments
    #[arg(value_name = "KEY=VALUE")]
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// What the argument belongs to
    of: CompleteTarget,
    /// A prompt's name, or the pattern of a resource's address
    name: String,
    /// The argument
    argument: String,
    /// What has been typed of it
    #[arg(default_value = "")]
    value: String,
    /// Arguments that are settled already
    #[arg(value_name = "KEY=VALUE")]
    context_arguments: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CompleteTarget {
    Prompt,
    Resource,
}

/// A server that is open, and how its answers are shown.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) label: ServerLabel,
    pub(crate) timeout_ms: u64,
    pub(crate) terminal: Arc<Terminal>,
    pub(crate) display: ResultDisplay,
    /// Read once.
    pub(crate) tools: OnceCell<Vec<Json>>,
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultDisplay {
    Print(OutputFormat),
    /// Something else is printed: the messages themselves.
    Hidden,
}

type CommandResult = Result<Exit, CommandError>;

impl Session {
    pub(crate) async fn run(&self, step: &Step) -> CommandResult {
        match step {
            Step::Tools(args) => self.list_tools(args).await,
            Step::Call(args) => self.call_tool(args).await,
            Step::Resources(NoArgs {}) => self.list_resources().await,
            Step::Read(args) => self.read(args).await,
            Step::Prompts(NoArgs {}) => self.list_prompts().await,
            Step::Prompt(args) => self.get_prompt(args).await,
            Step::Complete(args) => self.complete(args).await,
            Step::Ping(NoArgs {}) => self.ping().await,
        }
    }

    async fn list_tools(&self, args: &ToolsArgs) -> CommandResult {
        let tools = self.tools().await?;
        if let Some(name) = &args.name {
            let tool = self.find_tool(tools, name)?;
            return self.print_result(tool.to_doc().root(), |screen| render::tool(tool, screen));
        }
        let whole = list_object("tools", tools);
        self.print_result(whole.to_doc().root(), |screen| {
            self.list_heading(tools.len(), "tool", screen) + &render::tools(tools, screen)
        })
    }

    async fn call_tool(&self, args: &CallArgs) -> CommandResult {
        let tools = self.tools().await?;
        let tool = self.find_tool(tools, &args.tool)?;
        let doc = tool.to_doc();
        let schema = doc.root().get("inputSchema").map(Schema::parse).unwrap_or_default();
        let given = match args.json.as_deref() {
            Some("-") => arguments::from_json(&read_stdin()?),
            Some(text) => arguments::from_json(text),
            None => arguments::from_key_values(&args.arguments, &schema),
        };
        // Whoever watches the messages wants to see what the server says to it.
        let is_checked = !args.unchecked && self.display != ResultDisplay::Hidden;
        let checked = given.and_then(|given| {
            if is_checked { arguments::check(&given, &schema).map(|()| given) } else { Ok(given) }
        });
        let usage = || format!("\n  usage: {}\n", schema.usage(&args.tool));
        let given = checked.map_err(|trouble| trouble.details(usage()))?;
        let params = Json::object(|out| {
            out.str("name", &args.tool).raw("arguments", given.as_str());
        });
        let result = self.request(Method::ToolsCall, params).await?;
        let doc = result.to_doc();
        let root = doc.root();
        let is_error = root.get("isError").and_then(|flag| flag.bool()) == Some(true);
        if let Some(file) = &args.save {
            let blocks = root.get("content").into_iter().flat_map(|all| all.elements());
            let found = blocks.filter_map(block_bytes).next();
            self.save(file, found)?;
        }
        if is_error && self.display != ResultDisplay::Print(OutputFormat::Json) {
            if self.display != ResultDisplay::Hidden {
                let text = render::result(root, &self.terminal.style);
                self.terminal.print(&format!("{}{}", self.terminal.style.red("error: "), text.trim_end()));
            }
            return Ok(Exit::Failed);
        }
        self.print_result(root, |screen| render::result(root, screen))?;
        Ok(if is_error { Exit::Failed } else { Exit::Success })
    }

    async fn list_resources(&self) -> CommandResult {
        let resources = self.list(ListKind::Resources).await?;
        // Servers may have the one without the other.
        let templates = match self.connection.list(ListKind::Templates, Some(self.timeout_ms)).await {
            Ok(templates) => templates,
            Err(ClientError::Server(_)) => Vec::new(),
            Err(failure) => return Err(self.command_error(failure)),
        };
        let whole = Json::object(|out| {
            let raw = |out: &mut Vec<u8>, one: &Json| out.extend_from_slice(one.as_str().as_bytes());
            out.array("resources", &resources, raw).array("resourceTemplates", &templates, raw);
        });
        let many = resources.len() + templates.len();
        self.print_result(whole.to_doc().root(), |screen| {
            self.list_heading(many, "resource", screen) + &render::resources(&resources, &templates, screen)
        })
    }

    async fn read(&self, args: &ReadArgs) -> CommandResult {
        let params = Json::object(|out| {
            out.str("uri", &args.uri);
        });
        let result = self.request(Method::ResourcesRead, params).await?;
        let doc = result.to_doc();
        let contents = || doc.root().get("contents").into_iter().flat_map(|all| all.elements());
        if let Some(file) = &args.save {
            let found = contents().filter_map(resource_bytes).next();
            self.save(file, found)?;
            return Ok(Exit::Success);
        }
        self.print_result(doc.root(), |_| contents().map(render::resource_contents).collect())
    }

    async fn list_prompts(&self) -> CommandResult {
        let prompts = self.list(ListKind::Prompts).await?;
        let whole = list_object("prompts", &prompts);
        self.print_result(whole.to_doc().root(), |screen| {
            self.list_heading(prompts.len(), "prompt", screen) + &render::prompts(&prompts, screen)
        })
    }

    async fn get_prompt(&self, args: &PromptArgs) -> CommandResult {
        let prompts = self.list(ListKind::Prompts).await?;
        let prompt = self.find(&prompts, &args.name, "prompt")?;
        let doc = prompt.to_doc();
        let schema = Schema::from_prompt(doc.root());
        let given = arguments::from_key_values(&args.arguments, &schema)
            .and_then(|given| arguments::check(&given, &schema).map(|()| given))
            .map_err(|trouble| {
                let usage = schema.usage(&args.name).replacen("spile call", "spile prompt", 1);
                trouble.details(format!("\n  usage: {usage}\n"))
            })?;
        let params = Json::object(|out| {
            out.str("name", &args.name).raw("arguments", given.as_str());
        });
        let result = self.request(Method::PromptsGet, params).await?;
        let doc = result.to_doc();
        self.print_result(doc.root(), |screen| render::prompt(doc.root(), screen))
    }

    async fn complete(&self, args: &CompleteArgs) -> CommandResult {
        let settled = arguments::text_arguments(&args.context_arguments)?;
        let params = Json::object(|out| {
            out.object("ref", |out| {
                match args.of {
                    CompleteTarget::Prompt => out.str("type", "ref/prompt").str("name", &args.name),
                    CompleteTarget::Resource => out.str("type", "ref/resource").str("uri", &args.name),
                };
            });
            out.object("argument", |out| {
                out.str("name", &args.argument).str("value", &args.value);
            });
            if !args.context_arguments.is_empty() {
                out.object("context", |out| {
                    out.raw("arguments", settled.as_str());
                });
            }
        });
        let result = self.request(Method::Complete, params).await?;
        let doc = result.to_doc();
        let completion = doc.root().get("completion");
        let values =
            || completion.and_then(|all| all.get("values")).into_iter().flat_map(|all| all.elements());
        self.print_result(doc.root(), |_| {
            values()
                .filter_map(|value| value.str())
                .map(|value| format!("{}\n", sanitize::escape_line(&value)))
                .collect()
        })?;
        let has_more =
            completion.and_then(|all| all.get("hasMore")).and_then(|flag| flag.bool()) == Some(true);
        if has_more && self.display == ResultDisplay::Print(OutputFormat::Text) {
            self.terminal.print("there are more");
        }
        Ok(Exit::Success)
    }

    async fn ping(&self) -> CommandResult {
        let took = self
            .connection
            .ping(Some(self.timeout_ms))
            .await
            .map_err(|failure| self.command_error(failure))?;
        let ms = format!("{:.1}", took.as_secs_f64() * 1000.0);
        let greeting = self.connection.server_info();
        let whole = Json::object(|out| {
            out.str("name", &greeting.name).str("version", &greeting.server_version);
            out.str("protocol", greeting.protocol_version.as_str()).raw("ms", &ms);
        });
        self.print_result(whole.to_doc().root(), |screen| format!("{} · {ms} ms\n", self.server_line(screen)))
    }

    /// `customers-lookup 0+5e8f4a · protocol 2026-07-28`
    fn server_line(&self, screen: &OutputStyle) -> String {
        let greeting = self.connection.server_info();
        let name = screen.bold(&sanitize::escape_line(&greeting.name));
        let version = sanitize::escape_line(&greeting.server_version).into_owned();
        format!("{name} {version} · protocol {}", greeting.protocol_version.as_str())
    }

    fn list_heading(&self, many: usize, what: &str, screen: &OutputStyle) -> String {
        let many = if many == 0 { format!("no {what}s") } else { pluralize(many as u64, what) };
        let gap = if many.starts_with("no ") { "" } else { "\n" };
        format!("{} · {many}\n{gap}", self.server_line(screen))
    }

    async fn tools(&self) -> Result<&[Json], CommandError> {
        let tools = self.tools.get_or_try_init(|| self.list(ListKind::Tools)).await?;
        Ok(tools)
    }

    async fn list(&self, list: ListKind) -> Result<Vec<Json>, CommandError> {
        let what = list.result_key();
        if !self.connection.has_capability(what) {
            return Ok(Vec::new());
        }
        self.connection.list(list, Some(self.timeout_ms)).await.map_err(|failure| self.command_error(failure))
    }

    async fn request(&self, method: Method, params: Json) -> Result<Json, CommandError> {
        let desk = self.terminal.clone();
        let follow: upstream::ProgressCallback = Arc::new(move |progress| desk.show_progress(&progress));
        let call = ClientCall { timeout_ms: Some(self.timeout_ms), ..ClientCall::new(method, params) };
        let answered = self.connection.call(call, Some(follow)).await;
        self.terminal.clear_progress();
        answered.map_err(|failure| self.command_error(failure))
    }

    fn command_error(&self, failure: ClientError) -> CommandError {
        CommandError::from_client_error(failure, Phase::Requesting, &self.label)
    }

    fn find_tool<'t>(&self, tools: &'t [Json], name: &str) -> Result<&'t Json, CommandError> {
        self.find(tools, name, "tool")
    }

    fn find<'t>(&self, all: &'t [Json], name: &str, what: &str) -> Result<&'t Json, CommandError> {
        if let Some(found) =
            all.iter().find(|one| one.to_doc().root().get("name").is_some_and(|known| known.eq_str(name)))
        {
            return Ok(found);
        }
        let names: Vec<String> =
            all.iter().filter_map(|one| Some(one.to_doc().root().get("name")?.str()?.into_owned())).collect();
        let trouble = CommandError::usage(format!("there is no {what} `{name}`"));
        let has = || format!("there are {}", join_truncated(&names, 12));
        Err(match nearest(name, names.iter().map(String::as_str)) {
            Some(meant) => trouble.help(format!("did you mean `{meant}`?")),
            None if names.is_empty() => trouble.help(format!("the server offers no {what}s")),
            None => trouble.help(has()),
        })
    }

    fn print_result(&self, whole: Node<'_>, text: impl FnOnce(&OutputStyle) -> String) -> CommandResult {
        let screen = OutputStyle::stdout();
        match self.display {
            ResultDisplay::Hidden => {}
            ResultDisplay::Print(OutputFormat::Json) => {
                print(&format!("{}\n", render::pretty(whole, &screen)))?
            }
            ResultDisplay::Print(OutputFormat::Text) => print(&text(&screen))?,
        }
        Ok(Exit::Success)
    }

    fn save(&self, file: &std::path::Path, bytes: Option<Vec<u8>>) -> Result<(), CommandError> {
        let Some(bytes) = bytes else {
            return Err(CommandError::new(Exit::Failed, "there is nothing to save in the answer"));
        };
        atomic_file::write(file, &bytes, FileMode::PreserveOrUmask)
            .map_err(|error| CommandError::usage(format!("--save: {error:#}")))?;
        self.terminal.print(&format!("wrote {} ({})", file.display(), pluralize(bytes.len() as u64, "byte")));
        Ok(())
    }
}

fn list_object(key: &str, items: &[Json]) -> Json {
    Json::object(|out| {
        out.array(key, items, |out, one| out.extend_from_slice(one.as_str().as_bytes()));
    })
}

/// The bytes of an image, a sound or a resource in an answer.
fn block_bytes(block: Node<'_>) -> Option<Vec<u8>> {
    block.get("data").and_then(decode_base64).or_else(|| block.get("resource").and_then(resource_bytes))
}

fn resource_bytes(contents: Node<'_>) -> Option<Vec<u8>> {
    let text = || contents.get("text")?.str().map(|text| text.into_owned().into_bytes());
    contents.get("blob").and_then(decode_base64).or_else(text)
}

fn decode_base64(data: Node<'_>) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(&*data.str()?).ok()
}

/// What is piped in may be so long.
const STDIN_BYTES_MAX: u64 = 16 << 20;

fn read_stdin() -> Result<String, CommandError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(read) if read as u64 > STDIN_BYTES_MAX => {
            Err(CommandError::usage(format!("--json -: more than {STDIN_BYTES_MAX} bytes")))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(CommandError::usage(format!("--json -: stdin cannot be read: {error}"))),
    }
}
