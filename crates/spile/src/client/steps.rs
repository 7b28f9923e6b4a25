//! The client commands, each a request to a server that is already connected.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use clap::{Args, Subcommand, ValueEnum};
use contract::humanize::{join_truncated, pluralize};
use contract::nearest;
use json::{Json, Node};
use servers::config::ToolFilter;
use servers::manager::CallTimeouts;
use tokio::sync::OnceCell;
use upstream::Connection;
use wire::ListKind;
use wire::client::{ClientCall, ClientError};
use wire::method::Method;

use super::arguments::{self, Validation};
use super::error::{CommandError, Exit, Phase, ServerLabel};
use super::output_style::{OutputStyle, print};
use super::record::TestRecorder;
use super::render;
use super::schema::Schema;
use super::server_args::{NamedServer, OutputFormat};
use super::skills::SkillArgs;
use super::terminal::Terminal;
use crate::atomic_file::{self, FileMode};
use crate::layout::hanging;
use crate::sanitize;

/// One client command. In `spile trace` each is typed as one argument.
#[derive(Debug, Subcommand)]
pub(crate) enum Step {
    /// List the server's tools, or describe one tool in full
    Tools(ToolsArgs),
    /// Call a tool and print its result
    Call(CallArgs),
    /// List the server's resources and resource templates
    Resources(NoArgs),
    /// Read a resource
    Read(ReadArgs),
    /// List the server's prompts
    Prompts(NoArgs),
    /// Get a prompt with its arguments filled in
    Prompt(PromptArgs),
    /// List the server's skills
    Skills(NoArgs),
    /// Read a skill, if it is what the server listed
    Skill(SkillArgs),
    /// Ask a server to complete an argument of a prompt or resource template
    Complete(CompleteArgs),
    /// Check that the server responds: print its name, its version and the round-trip time
    Ping(NoArgs),
}

impl Step {
    /// The tool that the step is about.
    pub(crate) fn tool_name(&self) -> Option<&str> {
        match self {
            Self::Tools(args) => args.words.last().map(String::as_str),
            Self::Call(args) => Some(&args.tool),
            Self::Resources(_)
            | Self::Read(_)
            | Self::Prompts(_)
            | Self::Prompt(_)
            | Self::Skills(_)
            | Self::Skill(_)
            | Self::Complete(_)
            | Self::Ping(_) => None,
        }
    }

    /// Whether a word that can only be a server is given: `spile ping customers.csv`.
    pub(crate) fn has_server_word(&self) -> bool {
        match self {
            Self::Resources(args) | Self::Prompts(args) | Self::Skills(args) | Self::Ping(args) => {
                args.server_word.is_some()
            }
            Self::Tools(args) => args.words.len() > 1,
            Self::Call(_) | Self::Read(_) | Self::Prompt(_) | Self::Skill(_) | Self::Complete(_) => false,
        }
    }

    /// Takes out the word that names a server: `spile tools customers.csv`, `spile call customers.csv TOOL KEY=VALUE`.
    pub(crate) fn take_server(
        self,
        parse: impl Fn(&str) -> Option<NamedServer>,
    ) -> Result<(Self, Option<NamedServer>), CommandError> {
        let only = |args: NoArgs| match args.server_word {
            Some(word) => parse(&word).map(Some).ok_or_else(|| {
                CommandError::usage(format!(
                    "`{word}` is not an address, and there is no such file or folder"
                ))
            }),
            None => Ok(None),
        };
        Ok(match self {
            Self::Tools(ToolsArgs { mut words }) => {
                let found = words.iter().enumerate().find_map(|(at, word)| Some((at, parse(word)?)));
                let named = found.map(|(at, named)| {
                    words.remove(at);
                    named
                });
                if let [first, _, ..] = &words[..] {
                    return Err(CommandError::usage(format!(
                        "`{first}` is not an address, and there is no such file or folder"
                    )));
                }
                (Self::Tools(ToolsArgs { words }), named)
            }
            Self::Call(args) => {
                let (tool, arguments, named) = split_server(args.tool, args.arguments, "tool", parse)?;
                (Self::Call(CallArgs { tool, arguments, ..args }), named)
            }
            Self::Prompt(args) => {
                let (name, arguments, named) = split_server(args.name, args.arguments, "prompt", parse)?;
                (Self::Prompt(PromptArgs { name, arguments, ..args }), named)
            }
            Self::Resources(args) => (Self::Resources(NoArgs::default()), only(args)?),
            Self::Prompts(args) => (Self::Prompts(NoArgs::default()), only(args)?),
            Self::Skills(args) => (Self::Skills(NoArgs::default()), only(args)?),
            Self::Ping(args) => (Self::Ping(NoArgs::default()), only(args)?),
            step @ (Self::Read(_) | Self::Skill(_) | Self::Complete(_)) => (step, None),
        })
    }
}

/// The name, the arguments, and the first word among them that is a server.
fn split_server(
    name: String,
    arguments: Vec<String>,
    kind: &str,
    parse: impl Fn(&str) -> Option<NamedServer>,
) -> Result<(String, Vec<String>, Option<NamedServer>), CommandError> {
    let mut words: Vec<String> = std::iter::once(name).chain(arguments).collect();
    let is_bare = |word: &&String| !word.contains('=') || word.contains("://");
    let found = words.iter().enumerate().filter(|(_, word)| is_bare(word));
    let found = found.filter_map(|(at, word)| Some((at, parse(word)?))).next();
    let named = found.map(|(at, named)| (words.remove(at), named));
    match (words.first().filter(|word| !word.contains('=')), named) {
        (Some(_), named) => Ok((words.remove(0), words, named.map(|(_, named)| named))),
        (None, Some((word, _))) => Err(CommandError::usage(format!("name a {kind} of `{word}`"))
            .help(format!("`spile {kind}s {word}` lists them"))),
        (None, None) => Err(CommandError::usage(format!("name a {kind}"))),
    }
}

/// A request without arguments of its own.
#[derive(Debug, Default, Args)]
pub struct NoArgs {
    /// The server: a file, a folder or an address, as with --from or --url
    #[arg(value_name = "SERVER")]
    server_word: Option<String>,
}

#[derive(Debug, Args)]
pub struct ToolsArgs {
    /// The server, a file, a folder or an address, as with --from or --url; and the tool to describe
    #[arg(value_name = "SERVER|TOOL", num_args = 0..=2)]
    words: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool's name
    tool: String,
    /// The tool's arguments, typed by its input schema; repeat a key to build a list
    #[arg(value_name = "KEY=VALUE")]
    arguments: Vec<String>,
    /// The tool's arguments as a JSON object; `-` reads it from stdin
    #[arg(long = "args", value_name = "JSON")]
    json_arguments: Option<String>,
    /// Send the call even if the tool is unknown or the arguments do not match its input schema
    #[arg(long)]
    unchecked: bool,
    /// Call the tool without asking first, even if it is annotated as destructive
    #[arg(short, long)]
    yes: bool,
    /// Write the first image, audio or embedded resource of the result to FILE
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Add the call and its result to FILE as a test for `spile test`, such as tests/customers.toml
    #[arg(long, value_name = "FILE")]
    save_test: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The resource's URI
    uri: String,
    /// Write the contents to FILE, byte for byte
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PromptArgs {
    /// The prompt's name
    name: String,
    /// The prompt's arguments
    #[arg(value_name = "KEY=VALUE")]
    arguments: Vec<String>,
    /// Send the request even if the prompt is unknown or its arguments do not match
    #[arg(long)]
    unchecked: bool,
}

#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// Whether the argument belongs to a prompt or to a resource template
    #[arg(value_name = "KIND")]
    target: CompleteTarget,
    /// The prompt's name, or the resource template's URI template
    name: String,
    /// The argument to complete
    argument: String,
    /// The beginning of its value
    #[arg(default_value = "")]
    value: String,
    /// Arguments that already have a value
    #[arg(value_name = "KEY=VALUE")]
    context_arguments: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CompleteTarget {
    Prompt,
    Resource,
}

/// A connection to a server, and how its results are shown. Not a session of the protocol.
pub(crate) struct ClientSession {
    pub(crate) connection: Connection,
    pub(crate) label: ServerLabel,
    /// The name of a configured server: its tools can be called by their public names.
    pub(crate) server_name: Option<String>,
    /// Which of its tools its entry offers: the others are as if it had none of them.
    pub(crate) offered_tools: ToolFilter,
    pub(crate) timeouts: CallTimeouts,
    pub(crate) terminal: Arc<Terminal>,
    pub(crate) display: ResultDisplay,
    /// A trace shows how the server handles invalid requests, so nothing is checked before it is sent.
    pub(crate) validation: Validation,
    /// The tool list, requested once.
    pub(crate) tools: OnceCell<Vec<Json>>,
}

/// What to do with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultDisplay {
    Print(OutputFormat),
    /// `spile trace` prints the messages instead.
    Hidden,
}

pub(super) type CommandResult = Result<Exit, CommandError>;

impl ClientSession {
    pub(crate) async fn run(&self, step: &Step) -> CommandResult {
        match step {
            Step::Tools(args) => self.list_tools(args).await,
            Step::Call(args) => self.call_tool(args).await,
            Step::Resources(_) => self.list_resources().await,
            Step::Read(args) => self.read(args).await,
            Step::Prompts(_) => self.list_prompts().await,
            Step::Prompt(args) => self.get_prompt(args).await,
            Step::Skills(_) => self.list_skills().await,
            Step::Skill(args) => self.read_skill(args).await,
            Step::Complete(args) => self.complete(args).await,
            Step::Ping(_) => self.ping().await,
        }
    }

    async fn list_tools(&self, args: &ToolsArgs) -> CommandResult {
        let tools = self.tools().await?;
        if let Some(name) = args.words.first() {
            let tool = self.find_tool(tools, &self.own_tool_name(name).await?)?;
            return self.print_result(tool.to_doc().root(), |style| render::tool(tool, style));
        }
        let list = list_object("tools", tools);
        self.print_result(list.to_doc().root(), |style| {
            self.list_heading(tools.len(), "tool", style) + &render::tools(tools, style)
        })
    }

    async fn call_tool(&self, args: &CallArgs) -> CommandResult {
        let tool = self.own_tool_name(&args.tool).await?;
        let given = self.call_arguments(args, &tool).await?;
        // A trace shows what a server does; it has nobody to ask.
        if !args.yes && self.validation == Validation::Strict {
            self.confirm_destructive(&tool, &given).await?;
        }
        let recorder = match &args.save_test {
            Some(file) => Some(TestRecorder::open(file, &given, self.tools().await?)?),
            None => None,
        };
        let params = Json::object(|out| {
            out.str("name", &tool).raw("arguments", given.as_str());
        });
        let result = self.request(Method::ToolsCall, params).await?;
        let doc = result.to_doc();
        let root = doc.root();
        let is_error = root.get("isError").and_then(|flag| flag.bool()) == Some(true);
        if let Some((recorder, file)) = recorder.zip(args.save_test.as_ref()) {
            let name = recorder.append(&args.tool, &given, root, &self.terminal.answered())?;
            let name = sanitize::escape_line(&name).into_owned();
            self.terminal.print(&format!("recorded `{name}` in {}", file.display()));
        }
        let save = || {
            let Some(file) = &args.save else { return Ok(()) };
            let blocks = root.get("content").into_iter().flat_map(|all| all.elements());
            let bytes = blocks.filter_map(block_bytes).next();
            self.save(file, bytes, "the result has no image, audio or embedded resource")
        };
        if is_error && self.display != ResultDisplay::Print(OutputFormat::Json) {
            if self.display != ResultDisplay::Hidden {
                let text = render::result(root, &self.terminal.style);
                self.terminal.print(&format!("{}{}", self.terminal.style.red("error: "), text.trim_end()));
            }
            save()?;
            return Ok(Exit::Failed);
        }
        self.print_result(root, |style| render::result(root, style))?;
        save()?;
        Ok(if is_error { Exit::Failed } else { Exit::Success })
    }

    /// Asks before a tool runs that says that it destroys something.
    async fn confirm_destructive(&self, name: &str, arguments: &Json) -> Result<(), CommandError> {
        // The tools of a manifest only show what they would do.
        if arguments.to_doc().root().get("dry_run").and_then(|flag| flag.bool()) == Some(true) {
            return Ok(());
        }
        let tools = self.tools().await?;
        let is_destructive = find_named(tools, name).is_some_and(|tool| {
            let doc = tool.to_doc();
            let hint = doc.root().get("annotations").and_then(|hints| hints.get("destructiveHint")?.bool());
            hint == Some(true)
        });
        if !is_destructive {
            return Ok(());
        }
        let shown = sanitize::escape_line(name).into_owned();
        let refused = |reason: &str| {
            CommandError::new(
                Exit::Refused,
                format!("`{shown}` was not called: it is destructive, and {reason}"),
            )
            .help("pass --yes to call it without being asked")
        };
        if !self.terminal.is_interactive() {
            return Err(refused("nobody can be asked without a terminal"));
        }
        let server = self.terminal.server_name();
        let question =
            format!("`{shown}` of {server} is destructive: it may delete or overwrite. Call it? [y/N] ");
        match self.terminal.confirm(&question).await {
            true => Ok(()),
            false => Err(refused("you did not allow it")),
        }
    }

    /// The arguments of a call, checked against the tool's input schema unless validation is off.
    async fn call_arguments(&self, args: &CallArgs, name: &str) -> Result<Json, CommandError> {
        let validation = self.validation_of(args.unchecked);
        let mut input_schema = None;
        let schema = match validation {
            Validation::Strict => {
                let tools = self.tools().await?;
                let tool = self.find_tool(tools, name)?;
                input_schema = tool.to_doc().root().get("inputSchema").map(Json::from);
                call_schema(tools, tool)
            }
            // The schema only types `key=value` words; without one they are sent as JSON or strings.
            Validation::Off if args.json_arguments.is_some() => Schema::default(),
            Validation::Off => match self.tools().await {
                Ok(tools) => find_named(tools, name).map(|tool| call_schema(tools, tool)).unwrap_or_default(),
                Err(error) if error.is_connection_lost => return Err(error),
                Err(_) => Schema::default(),
            },
        };
        let given = match args.json_arguments.as_deref() {
            Some(_) if !args.arguments.is_empty() => {
                Err(CommandError::usage(format!("`{}` cannot be combined with --args", args.arguments[0]))
                    .help("put all arguments into the JSON object, or none"))
            }
            Some("-") => arguments::from_json(&read_stdin()?, validation),
            Some(text) => arguments::from_json(text, validation),
            None => arguments::from_key_values(&args.arguments, &schema, validation),
        };
        given
            .and_then(|given| match validation {
                Validation::Strict => {
                    arguments::check(&given, &schema)?;
                    input_schema.as_ref().map_or(Ok(()), |schema| arguments::check_schema(&given, schema))?;
                    Ok(given)
                }
                Validation::Off => Ok(given),
            })
            .map_err(|error| error.details(self.usage_details(&schema, "call", &args.tool)))
    }

    fn validation_of(&self, unchecked: bool) -> Validation {
        if unchecked { Validation::Off } else { self.validation }
    }

    async fn list_resources(&self) -> CommandResult {
        let resources = self.list(ListKind::Resources).await?;
        // A server may have resources and not support templates.
        let templates = match self.connection.list(ListKind::Templates, Some(self.timeouts.idle_ms)).await {
            Ok(templates) => templates,
            Err(ClientError::Server(_)) => Vec::new(),
            Err(error) => return Err(self.command_error(error)),
        };
        let object = Json::object(|out| {
            let raw = |out: &mut Vec<u8>, one: &Json| out.extend_from_slice(one.as_str().as_bytes());
            out.array("resources", &resources, raw).array("resourceTemplates", &templates, raw);
        });
        let count = resources.len() + templates.len();
        self.print_result(object.to_doc().root(), |style| {
            self.list_heading(count, "resource", style) + &render::resources(&resources, &templates, style)
        })
    }

    async fn read(&self, args: &ReadArgs) -> CommandResult {
        let params = Json::object(|out| {
            out.str("uri", &args.uri);
        });
        let result = self
            .request(Method::ResourcesRead, params)
            .await
            .map_err(|error| self.unsupported(error, "resources", "the server has no resources"))?;
        let doc = result.to_doc();
        let contents = || doc.root().get("contents").into_iter().flat_map(|all| all.elements());
        if let Some(file) = &args.save {
            let bytes = contents().filter_map(resource_bytes).next();
            self.save(file, bytes, "the resource has no contents")?;
            return Ok(Exit::Success);
        }
        self.print_result(doc.root(), |_| contents().map(render::resource_contents).collect())
    }

    async fn list_prompts(&self) -> CommandResult {
        let prompts = self.list(ListKind::Prompts).await?;
        let list = list_object("prompts", &prompts);
        self.print_result(list.to_doc().root(), |style| {
            self.list_heading(prompts.len(), "prompt", style) + &render::prompts(&prompts, style)
        })
    }

    async fn get_prompt(&self, args: &PromptArgs) -> CommandResult {
        let schema_of = |prompt: &Json| Schema::from_prompt(prompt.to_doc().root());
        let given = match self.validation_of(args.unchecked) {
            Validation::Off => arguments::text_arguments(&args.arguments)?,
            Validation::Strict => {
                let prompts = self.list(ListKind::Prompts).await?;
                let schema = schema_of(self.find(&prompts, &args.name, "prompt")?);
                arguments::from_key_values(&args.arguments, &schema, Validation::Strict)
                    .and_then(|given| arguments::check(&given, &schema).map(|()| given))
                    .map_err(|error| error.details(self.usage_details(&schema, "prompt", &args.name)))?
            }
        };
        let params = Json::object(|out| {
            out.str("name", &args.name).raw("arguments", given.as_str());
        });
        let result = self.request(Method::PromptsGet, params).await?;
        let doc = result.to_doc();
        self.print_result(doc.root(), |style| render::prompt(doc.root(), style))
    }

    async fn complete(&self, args: &CompleteArgs) -> CommandResult {
        let context = arguments::text_arguments(&args.context_arguments)?;
        let params = Json::object(|out| {
            out.object("ref", |out| {
                match args.target {
                    CompleteTarget::Prompt => out.str("type", "ref/prompt").str("name", &args.name),
                    CompleteTarget::Resource => out.str("type", "ref/resource").str("uri", &args.name),
                };
            });
            out.object("argument", |out| {
                out.str("name", &args.argument).str("value", &args.value);
            });
            if !args.context_arguments.is_empty() {
                out.object("context", |out| {
                    out.raw("arguments", context.as_str());
                });
            }
        });
        let result = self.request(Method::Complete, params).await.map_err(|error| {
            self.unsupported(error, "completions", "the server does not support completion")
        })?;
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
        if values().next().is_none() && self.display == ResultDisplay::Print(OutputFormat::Text) {
            self.terminal.print("no completions");
        }
        if has_more && self.display == ResultDisplay::Print(OutputFormat::Text) {
            self.terminal.print("the server has more values");
        }
        Ok(Exit::Success)
    }

    async fn ping(&self) -> CommandResult {
        let round_trip = self
            .connection
            .ping(Some(self.timeouts.idle_ms))
            .await
            .map_err(|error| self.command_error(error))?;
        let ms = format!("{:.1}", round_trip.as_secs_f64() * 1000.0);
        let server = self.connection.server_info();
        let object = Json::object(|out| {
            out.str("name", &server.name).str("version", &server.server_version);
            out.str("protocol", server.protocol_version.as_str()).raw("ms", &ms);
        });
        self.print_result(object.to_doc().root(), |style| self.server_line(&format!("{ms} ms"), style))
    }

    /// `customers-lookup 0+5e8f4a · protocol 2026-07-28 · 2 tools`
    fn server_line(&self, more: &str, style: &OutputStyle) -> String {
        let server = self.connection.server_info();
        let name = sanitize::escape_line(&server.name);
        let version = sanitize::escape_line(&server.server_version);
        let rest = format!("{version} · protocol {} · {more}", server.protocol_version.as_str());
        let line = format!("{name} {rest}");
        if style.columns.is_some_and(|columns| sanitize::width(&line) > columns) {
            return hanging("", &line, style.columns);
        }
        format!("{} {rest}\n", style.bold(&name))
    }

    pub(super) fn list_heading(&self, count: usize, kind: &str, style: &OutputStyle) -> String {
        match count {
            0 => self.server_line(&format!("no {kind}s"), style),
            _ => self.server_line(&pluralize(count as u64, kind), style) + "\n",
        }
    }

    fn usage_details(&self, schema: &Schema, command: &str, name: &str) -> String {
        format!("\n{}", hanging("  usage: ", &schema.usage(command, name), self.terminal.style.columns))
    }

    /// The server's own name of a tool that was named `mcp__server__tool`.
    async fn own_tool_name(&self, name: &str) -> Result<String, CommandError> {
        let (Some(server), Some(_)) = (&self.server_name, servers::names::server_part_of(name)) else {
            return Ok(name.to_owned());
        };
        let docs: Vec<_> = self.tools().await?.iter().map(Json::to_doc).collect();
        let own: Vec<_> = docs.iter().filter_map(|tool| tool.root().get("name")?.str()).collect();
        let public = servers::names::public_names(server, own.iter().map(|name| &**name));
        let found = public.iter().find(|(_, public)| *public == name).map(|(own, _)| (*own).to_owned());
        // A name that is not public may be the server's own, however it looks.
        Ok(found.unwrap_or_else(|| name.to_owned()))
    }

    async fn tools(&self) -> Result<&[Json], CommandError> {
        let list = async || -> Result<Vec<Json>, CommandError> {
            let mut tools = self.list(ListKind::Tools).await?;
            tools.retain(|tool| self.offered_tools.offers_definition(tool));
            Ok(tools)
        };
        let tools = self.tools.get_or_try_init(list).await?;
        Ok(tools)
    }

    async fn list(&self, kind: ListKind) -> Result<Vec<Json>, CommandError> {
        if !self.connection.has_capability(kind.result_key()) {
            return Ok(Vec::new());
        }
        self.connection
            .list(kind, Some(self.timeouts.idle_ms))
            .await
            .map_err(|error| self.command_error(error))
    }

    async fn request(&self, method: Method, params: Json) -> Result<Json, CommandError> {
        let terminal = self.terminal.clone();
        let on_progress: upstream::ProgressCallback =
            Arc::new(move |progress| terminal.show_progress(&progress));
        let call = ClientCall {
            timeout_ms: Some(self.timeouts.idle_ms),
            total_timeout_ms: Some(self.timeouts.total_ms),
            ..ClientCall::new(method, params)
        };
        let response = self.connection.call(call, Some(on_progress)).await;
        self.terminal.clear_progress();
        response.map_err(|error| self.command_error(error))
    }

    /// Explains an error of a server that does not declare the capability. Servers of older versions may support
    /// completion without declaring it, so they are asked first.
    fn unsupported(&self, error: CommandError, capability: &str, message: &str) -> CommandError {
        match error.exit {
            Exit::Failed if !self.connection.has_capability(capability) => {
                CommandError::new(Exit::Failed, message)
            }
            _ => error,
        }
    }

    pub(super) fn command_error(&self, error: ClientError) -> CommandError {
        CommandError::from_client_error(error, Phase::Requesting, &self.label)
    }

    fn find_tool<'t>(&self, tools: &'t [Json], name: &str) -> Result<&'t Json, CommandError> {
        if !self.offered_tools.offers(name) {
            let error =
                CommandError::usage(format!("the entry of the server does not offer the tool `{name}`"));
            let server = self.server_name.as_deref().unwrap_or("NAME");
            return Err(
                error.help(format!("`spile mcp get {server}` names the file; its lists of tools decide"))
            );
        }
        self.find(tools, name, "tool")
    }

    fn find<'t>(&self, all: &'t [Json], name: &str, kind: &str) -> Result<&'t Json, CommandError> {
        if let Some(found) = find_named(all, name) {
            return Ok(found);
        }
        let names: Vec<String> =
            all.iter().filter_map(|one| Some(one.to_doc().root().get("name")?.str()?.into_owned())).collect();
        let error = CommandError::usage(format!("unknown {kind} `{name}`"));
        let known = || format!("known {kind}s: {}", join_truncated(&names, 12));
        Err(match nearest(name, names.iter().map(String::as_str)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if std::path::Path::new(name).exists() => error.help(format!(
                "`{name}` is {}; to use it as the server, add `--from {name}`",
                super::path_kind(name)
            )),
            None if names.is_empty() => error.help(format!("the server has no {kind}s")),
            None => error.help(known()),
        })
    }

    pub(super) fn print_result(
        &self,
        result: Node<'_>,
        text: impl FnOnce(&OutputStyle) -> String,
    ) -> CommandResult {
        let style = OutputStyle::stdout();
        match self.display {
            ResultDisplay::Hidden => {}
            ResultDisplay::Print(OutputFormat::Json) => {
                print(&format!("{}\n", render::pretty(result, &style)))?
            }
            ResultDisplay::Print(OutputFormat::Text) => print(&text(&style))?,
        }
        Ok(Exit::Success)
    }

    pub(super) fn save(
        &self,
        file: &std::path::Path,
        bytes: Option<Vec<u8>>,
        reason: &str,
    ) -> Result<(), CommandError> {
        let Some(bytes) = bytes else {
            let message = format!("--save: {reason}; `{}` was not written", file.display());
            return Err(CommandError::new(Exit::Failed, message));
        };
        atomic_file::write(file, &bytes, FileMode::PreserveOrUmask)
            .map_err(|error| CommandError::usage(format!("--save: {error:#}")))?;
        self.terminal.print(&format!("wrote {} ({})", file.display(), pluralize(bytes.len() as u64, "byte")));
        Ok(())
    }
}

fn find_named<'t>(all: &'t [Json], name: &str) -> Option<&'t Json> {
    all.iter().find(|one| one.to_doc().root().get("name").is_some_and(|known| known.eq_str(name)))
}

fn tool_schema(tool: &Json) -> Schema {
    tool.to_doc().root().get("inputSchema").map(Schema::parse).unwrap_or_default()
}

/// The schema of a tool, and where a pattern allows other arguments the arguments of tools that its description names:
/// "Filters are as in list_orders."
fn call_schema(tools: &[Json], tool: &Json) -> Schema {
    let mut schema = tool_schema(tool);
    if schema.patterns.is_empty() {
        return schema;
    }
    let doc = tool.to_doc();
    let description = doc.root().get("description").and_then(|text| text.str()).unwrap_or_default();
    let is_named = |name: &str| {
        description.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').any(|word| word == name)
    };
    for other in tools {
        let other_doc = other.to_doc();
        if other_doc.root().get("name").and_then(|name| name.str()).is_some_and(|name| is_named(&name)) {
            schema.described_elsewhere.extend(tool_schema(other).arguments);
        }
    }
    schema
}

fn list_object(key: &str, items: &[Json]) -> Json {
    Json::object(|out| {
        out.array(key, items, |out, one| out.extend_from_slice(one.as_str().as_bytes()));
    })
}

/// The bytes of an image, audio or embedded resource.
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

/// The limit of `--args -`.
const STDIN_BYTES_MAX: u64 = 16 << 20;

fn read_stdin() -> Result<String, CommandError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(read) if read as u64 > STDIN_BYTES_MAX => {
            Err(CommandError::usage(format!("--args -: stdin exceeds the limit of {STDIN_BYTES_MAX} bytes")))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(CommandError::usage(format!("--args -: cannot read stdin: {error}"))),
    }
}
