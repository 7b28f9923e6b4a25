//! The client's commands, each a question to a server that is open already.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use clap::{Args, Subcommand, ValueEnum};
use contract::nearest;
use contract::words::{counted, some};
use json::{Json, Node};
use tokio::sync::OnceCell;
use upstream::Connection;
use wire::List;
use wire::client::{Call, Failure};
use wire::method::Method;

use super::arguments;
use super::desk::Desk;
use super::schema::Schema;
use super::screen::{Screen, print};
use super::show;
use super::to::Output;
use super::trouble::{Exit, Named, Trouble, When};
use crate::plain;
use crate::replace::{self, Mode};

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
    pub(crate) fn words(&self) -> Vec<&str> {
        match self {
            Self::Tools(args) => args.name.iter().map(String::as_str).collect(),
            Self::Call(args) => named(&args.tool, &args.arguments),
            Self::Prompt(args) => named(&args.name, &args.arguments),
            Self::Resources(_) | Self::Read(_) | Self::Prompts(_) | Self::Complete(_) | Self::Ping(_) => {
                Vec::new()
            }
        }
    }
}

fn named<'a>(name: &'a str, arguments: &'a [String]) -> Vec<&'a str> {
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
    of: Of,
    /// A prompt's name, or the pattern of a resource's address
    name: String,
    /// The argument
    argument: String,
    /// What has been typed of it
    #[arg(default_value = "")]
    value: String,
    /// Arguments that are settled already
    #[arg(value_name = "KEY=VALUE")]
    settled: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Of {
    Prompt,
    Resource,
}

/// A server that is open, and how its answers are shown.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) named: Named,
    pub(crate) timeout_ms: u64,
    pub(crate) desk: Arc<Desk>,
    pub(crate) showing: Showing,
    /// Read once.
    pub(crate) tools: OnceCell<Vec<Json>>,
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Showing {
    Printed(Output),
    /// Something else is printed: the messages themselves.
    Unseen,
}

type Done = Result<Exit, Trouble>;

impl Session {
    pub(crate) async fn run(&self, step: &Step) -> Done {
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

    async fn list_tools(&self, args: &ToolsArgs) -> Done {
        let tools = self.tools().await?;
        if let Some(name) = &args.name {
            let tool = self.find_tool(tools, name)?;
            return self.show(tool.doc().root(), |screen| show::tool(tool, screen));
        }
        let whole = listed("tools", tools);
        self.show(whole.doc().root(), |screen| {
            self.head(tools.len(), "tool", screen) + &show::tools(tools, screen)
        })
    }

    async fn call_tool(&self, args: &CallArgs) -> Done {
        let tools = self.tools().await?;
        let tool = self.find_tool(tools, &args.tool)?;
        let doc = tool.doc();
        let schema = doc.root().get("inputSchema").map(Schema::read).unwrap_or_default();
        let given = match args.json.as_deref() {
            Some("-") => arguments::from_json(&stdin()?),
            Some(text) => arguments::from_json(text),
            None => arguments::from_words(&args.arguments, &schema),
        };
        // Whoever watches the messages wants to see what the server says to it.
        let is_checked = !args.unchecked && self.showing != Showing::Unseen;
        let checked = given.and_then(|given| {
            if is_checked { arguments::check(&given, &schema).map(|()| given) } else { Ok(given) }
        });
        let usage = || format!("\n  usage: {}\n", schema.usage(&args.tool));
        let given = checked.map_err(|trouble| trouble.below(usage()))?;
        let params = Json::object(|out| {
            out.str("name", &args.tool).raw("arguments", given.as_str());
        });
        let result = self.ask(Method::ToolsCall, params).await?;
        let doc = result.doc();
        let root = doc.root();
        let is_error = root.get("isError").and_then(|flag| flag.bool()) == Some(true);
        if let Some(file) = &args.save {
            let blocks = root.get("content").into_iter().flat_map(|all| all.elements());
            let found = blocks.filter_map(bytes_of).next();
            self.save(file, found)?;
        }
        if is_error && self.showing != Showing::Printed(Output::Json) {
            if self.showing != Showing::Unseen {
                let text = show::result(root, &self.desk.screen);
                self.desk.say(&format!("{}{}", self.desk.screen.red("error: "), text.trim_end()));
            }
            return Ok(Exit::Told);
        }
        self.show(root, |screen| show::result(root, screen))?;
        Ok(if is_error { Exit::Told } else { Exit::Fine })
    }

    async fn list_resources(&self) -> Done {
        let resources = self.list(List::Resources).await?;
        // Servers may have the one without the other.
        let templates = match self.connection.list(List::Templates, Some(self.timeout_ms)).await {
            Ok(templates) => templates,
            Err(Failure::Told(_)) => Vec::new(),
            Err(failure) => return Err(self.trouble(failure)),
        };
        let whole = Json::object(|out| {
            let raw = |out: &mut Vec<u8>, one: &Json| out.extend_from_slice(one.as_str().as_bytes());
            out.array("resources", &resources, raw).array("resourceTemplates", &templates, raw);
        });
        let many = resources.len() + templates.len();
        self.show(whole.doc().root(), |screen| {
            self.head(many, "resource", screen) + &show::resources(&resources, &templates, screen)
        })
    }

    async fn read(&self, args: &ReadArgs) -> Done {
        let params = Json::object(|out| {
            out.str("uri", &args.uri);
        });
        let result = self.ask(Method::ResourcesRead, params).await?;
        let doc = result.doc();
        let contents = || doc.root().get("contents").into_iter().flat_map(|all| all.elements());
        if let Some(file) = &args.save {
            let found = contents().filter_map(held_by).next();
            self.save(file, found)?;
            return Ok(Exit::Fine);
        }
        self.show(doc.root(), |_| contents().map(show::contents).collect())
    }

    async fn list_prompts(&self) -> Done {
        let prompts = self.list(List::Prompts).await?;
        let whole = listed("prompts", &prompts);
        self.show(whole.doc().root(), |screen| {
            self.head(prompts.len(), "prompt", screen) + &show::prompts(&prompts, screen)
        })
    }

    async fn get_prompt(&self, args: &PromptArgs) -> Done {
        let prompts = self.list(List::Prompts).await?;
        let prompt = self.find(&prompts, &args.name, "prompt")?;
        let doc = prompt.doc();
        let schema = Schema::of_prompt(doc.root());
        let given = arguments::from_words(&args.arguments, &schema)
            .and_then(|given| arguments::check(&given, &schema).map(|()| given))
            .map_err(|trouble| {
                let usage = schema.usage(&args.name).replacen("spile call", "spile prompt", 1);
                trouble.below(format!("\n  usage: {usage}\n"))
            })?;
        let params = Json::object(|out| {
            out.str("name", &args.name).raw("arguments", given.as_str());
        });
        let result = self.ask(Method::PromptsGet, params).await?;
        let doc = result.doc();
        self.show(doc.root(), |screen| show::prompt(doc.root(), screen))
    }

    async fn complete(&self, args: &CompleteArgs) -> Done {
        let settled = arguments::texts(&args.settled)?;
        let params = Json::object(|out| {
            out.object("ref", |out| {
                match args.of {
                    Of::Prompt => out.str("type", "ref/prompt").str("name", &args.name),
                    Of::Resource => out.str("type", "ref/resource").str("uri", &args.name),
                };
            });
            out.object("argument", |out| {
                out.str("name", &args.argument).str("value", &args.value);
            });
            if !args.settled.is_empty() {
                out.object("context", |out| {
                    out.raw("arguments", settled.as_str());
                });
            }
        });
        let result = self.ask(Method::Complete, params).await?;
        let doc = result.doc();
        let completion = doc.root().get("completion");
        let values =
            || completion.and_then(|all| all.get("values")).into_iter().flat_map(|all| all.elements());
        self.show(doc.root(), |_| {
            values()
                .filter_map(|value| value.str())
                .map(|value| format!("{}\n", plain::line(&value)))
                .collect()
        })?;
        let has_more =
            completion.and_then(|all| all.get("hasMore")).and_then(|flag| flag.bool()) == Some(true);
        if has_more && self.showing == Showing::Printed(Output::Text) {
            self.desk.say("there are more");
        }
        Ok(Exit::Fine)
    }

    async fn ping(&self) -> Done {
        let took =
            self.connection.ping(Some(self.timeout_ms)).await.map_err(|failure| self.trouble(failure))?;
        let ms = format!("{:.1}", took.as_secs_f64() * 1000.0);
        let greeting = self.connection.greeting();
        let whole = Json::object(|out| {
            out.str("name", &greeting.name).str("version", &greeting.server_version);
            out.str("protocol", greeting.version.as_str()).raw("ms", &ms);
        });
        self.show(whole.doc().root(), |screen| format!("{} · {ms} ms\n", self.who(screen)))
    }

    /// `customers-lookup 0+5e8f4a · protocol 2026-07-28`
    fn who(&self, screen: &Screen) -> String {
        let greeting = self.connection.greeting();
        let name = screen.bold(&plain::line(&greeting.name));
        let version = plain::line(&greeting.server_version).into_owned();
        format!("{name} {version} · protocol {}", greeting.version.as_str())
    }

    fn head(&self, many: usize, what: &str, screen: &Screen) -> String {
        let many = if many == 0 { format!("no {what}s") } else { counted(many as u64, what) };
        let gap = if many.starts_with("no ") { "" } else { "\n" };
        format!("{} · {many}\n{gap}", self.who(screen))
    }

    async fn tools(&self) -> Result<&[Json], Trouble> {
        let tools = self.tools.get_or_try_init(|| self.list(List::Tools)).await?;
        Ok(tools)
    }

    async fn list(&self, list: List) -> Result<Vec<Json>, Trouble> {
        let what = list.key();
        if !self.connection.offers(what) {
            return Ok(Vec::new());
        }
        self.connection.list(list, Some(self.timeout_ms)).await.map_err(|failure| self.trouble(failure))
    }

    async fn ask(&self, method: Method, params: Json) -> Result<Json, Trouble> {
        let desk = self.desk.clone();
        let follow: upstream::Follow = Arc::new(move |progress| desk.progress(&progress));
        let call = Call { timeout_ms: Some(self.timeout_ms), ..Call::new(method, params) };
        let answered = self.connection.call(call, Some(follow)).await;
        self.desk.clear();
        answered.map_err(|failure| self.trouble(failure))
    }

    fn trouble(&self, failure: Failure) -> Trouble {
        Trouble::of(failure, When::Asking, &self.named)
    }

    fn find_tool<'t>(&self, tools: &'t [Json], name: &str) -> Result<&'t Json, Trouble> {
        self.find(tools, name, "tool")
    }

    fn find<'t>(&self, all: &'t [Json], name: &str, what: &str) -> Result<&'t Json, Trouble> {
        if let Some(found) =
            all.iter().find(|one| one.doc().root().get("name").is_some_and(|known| known.is(name)))
        {
            return Ok(found);
        }
        let names: Vec<String> =
            all.iter().filter_map(|one| Some(one.doc().root().get("name")?.str()?.into_owned())).collect();
        let trouble = Trouble::usage(format!("there is no {what} `{name}`"));
        let has = || format!("there are {}", some(&names, 12));
        Err(match nearest(name, names.iter().map(String::as_str)) {
            Some(meant) => trouble.help(format!("did you mean `{meant}`?")),
            None if names.is_empty() => trouble.help(format!("the server offers no {what}s")),
            None => trouble.help(has()),
        })
    }

    fn show(&self, whole: Node<'_>, text: impl FnOnce(&Screen) -> String) -> Done {
        let screen = Screen::stdout();
        match self.showing {
            Showing::Unseen => {}
            Showing::Printed(Output::Json) => print(&format!("{}\n", show::pretty(whole, &screen)))?,
            Showing::Printed(Output::Text) => print(&text(&screen))?,
        }
        Ok(Exit::Fine)
    }

    fn save(&self, file: &std::path::Path, bytes: Option<Vec<u8>>) -> Result<(), Trouble> {
        let Some(bytes) = bytes else {
            return Err(Trouble::new(Exit::Told, "there is nothing to save in the answer"));
        };
        replace::file(file, &bytes, Mode::AsItWasOrUsual)
            .map_err(|error| Trouble::usage(format!("--save: {error:#}")))?;
        self.desk.say(&format!("wrote {} ({})", file.display(), counted(bytes.len() as u64, "byte")));
        Ok(())
    }
}

fn listed(key: &str, items: &[Json]) -> Json {
    Json::object(|out| {
        out.array(key, items, |out, one| out.extend_from_slice(one.as_str().as_bytes()));
    })
}

/// The bytes of an image, a sound or a resource in an answer.
fn bytes_of(block: Node<'_>) -> Option<Vec<u8>> {
    block.get("data").and_then(decoded).or_else(|| block.get("resource").and_then(held_by))
}

fn held_by(contents: Node<'_>) -> Option<Vec<u8>> {
    let text = || contents.get("text")?.str().map(|text| text.into_owned().into_bytes());
    contents.get("blob").and_then(decoded).or_else(text)
}

fn decoded(data: Node<'_>) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(&*data.str()?).ok()
}

/// What is piped in may be so long.
const STDIN_BYTES_MAX: u64 = 16 << 20;

fn stdin() -> Result<String, Trouble> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(read) if read as u64 > STDIN_BYTES_MAX => {
            Err(Trouble::usage(format!("--json -: more than {STDIN_BYTES_MAX} bytes")))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(Trouble::usage(format!("--json -: stdin cannot be read: {error}"))),
    }
}
