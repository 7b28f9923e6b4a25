//! From a folder of code to programs that need no file system.
//!
//! ```text
//! tools/*.ts    entries.rs          one entry file per tool, prompt and resource
//!  → graph      graph.rs            parse, remove types, resolve imports; closed and bounded
//!  → program    program.rs          the modules of one entry, as the engine takes them, and their hash
//!  → describe   engine::describe    load it once in a sandbox without effects: schema and metadata
//!  → definition schema/             the tool or prompt as the catalog shows it
//! ```
//!
//! A file that fails in any step is one [`Diagnostic`]; the others are served.

mod common_js;
mod entries;
mod graph;
mod hidden_state;
mod links;
mod lint;
mod module;
mod module_state;
mod positions;
mod program;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use contract::CompiledSchema;
pub(crate) use graph::ModuleCache;
pub use links::ModuleLinks;
pub(crate) use program::Program;

use crate::diagnostic::Diagnostic;
use crate::engine::{EngineLimits, Isolation};
use crate::handler::{Handler, HandlerKind};
use crate::schema::{self, ArgumentCompletion};
pub(crate) use entries::Entry;
use graph::Graph;

/// What a folder's tools may consist of.
#[derive(Debug, Clone)]
pub struct BundleLimits {
    pub tools_max: usize,
    pub modules_max: usize,
    pub module_bytes_max: usize,
    /// All modules of the folder together.
    pub source_bytes_max: usize,
    /// The time that the module of one tool may take to load.
    pub load_wall_ms: u64,
}

impl Default for BundleLimits {
    fn default() -> Self {
        Self {
            tools_max: 1000,
            modules_max: 10_000,
            module_bytes_max: 4 << 20,
            source_bytes_max: 64 << 20,
            load_wall_ms: 10_000,
        }
    }
}

#[derive(Debug, Clone)]
pub struct BundleOptions {
    /// The folder of the tools, inside the root.
    pub tools_dir: String,
    /// The folder of the prompts, inside the root. Its code files are prompts, too.
    pub prompts_dir: String,
    /// Files that answer resources: paths inside the root.
    pub resource_files: Vec<String>,
    pub limits: BundleLimits,
    pub engine_limits: EngineLimits,
    /// Where the code runs, also while it is only loaded.
    pub isolation: Isolation,
    /// Where imports lead, as another build of the same files found it. `None`: they are resolved in the file system.
    pub links: Option<Arc<ModuleLinks>>,
    /// Tools that may use `eval` and `new Function`, because a package of theirs needs it.
    pub eval_tools: BTreeSet<String>,
}

impl Default for BundleOptions {
    fn default() -> Self {
        Self {
            tools_dir: "tools".into(),
            prompts_dir: "prompts".into(),
            resource_files: Vec::new(),
            limits: BundleLimits::default(),
            engine_limits: EngineLimits::default(),
            isolation: Isolation::default(),
            links: None,
            eval_tools: BTreeSet::new(),
        }
    }
}

/// All code of a folder, compiled. Each list is in the order of the names; what cannot be served is the reason why.
#[derive(Debug)]
pub struct Bundle {
    pub tools: Vec<Result<BundledTool, Diagnostic>>,
    pub prompts: Vec<Result<BundledPrompt, Diagnostic>>,
    pub resources: Vec<Result<BundledResource, Diagnostic>>,
    /// What cannot work although it is served.
    pub warnings: Vec<Diagnostic>,
    cache: ModuleCache,
}

#[derive(Clone)]
pub struct BundledTool {
    pub definition: spile_core::Tool,
    pub(crate) handler: Arc<Handler>,
}

#[derive(Clone)]
pub struct BundledPrompt {
    pub definition: spile_core::Prompt,
    /// What the arguments must match.
    pub(crate) input: Arc<CompiledSchema>,
    /// By argument; in the order of the definition.
    pub(crate) completions: Vec<ArgumentCompletion>,
    pub(crate) handler: Arc<Handler>,
}

/// Code that answers a resource. What the catalog shows of it is declared in the manifest.
#[derive(Clone)]
pub struct BundledResource {
    pub(crate) handler: Arc<Handler>,
}

impl BundledResource {
    /// The path inside the folder.
    pub fn file(&self) -> &str {
        &self.handler.file
    }
}

impl std::fmt::Debug for BundledTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BundledTool").field(&self.definition).finish()
    }
}

impl std::fmt::Debug for BundledPrompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BundledPrompt").field(&self.definition).finish()
    }
}

impl std::fmt::Debug for BundledResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BundledResource").field(&self.file()).finish()
    }
}

impl Bundle {
    /// The tools that the folder has files for, served or not.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| match tool {
            Ok(tool) => tool.definition.name.as_str(),
            Err(diagnostic) => {
                let file = diagnostic.file.rsplit('/').next().unwrap_or_default();
                file.split_once('.').map_or(file, |(stem, _)| stem)
            }
        })
    }

    /// Compiles the code of a folder. Blocks: it reads files and runs the top level of each entry in a sandbox.
    pub fn build(root: &Path, options: &BundleOptions) -> Self {
        Self::build_with(root, options, ModuleCache::default(), &Previous::default())
    }

    /// Compiles the folder again: parses only the files that changed, and loads only the programs whose code
    /// changed. For the same options.
    pub fn rebuild(&mut self, root: &Path, options: &BundleOptions) {
        let previous = Previous {
            tools: std::mem::take(&mut self.tools).into_iter().flatten().collect(),
            prompts: std::mem::take(&mut self.prompts).into_iter().flatten().collect(),
            resources: std::mem::take(&mut self.resources).into_iter().flatten().collect(),
        };
        *self = Self::build_with(root, options, std::mem::take(&mut self.cache), &previous);
    }

    fn build_with(root: &Path, options: &BundleOptions, mut cache: ModuleCache, previous: &Previous) -> Self {
        let mut bundle = Self {
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            warnings: Vec::new(),
            cache: ModuleCache::default(),
        };
        match root.canonicalize() {
            Ok(root) => {
                let graph = Graph::new(&root, &options.limits, options.links.as_deref(), &mut cache);
                let mut builder = Builder { graph, options, context: None, warnings: &mut bundle.warnings };
                builder.context = context_file(&root).map(|file| builder.graph.add(file).map(|()| file));
                let tools = entries::list_tools(&root, options).into_iter();
                bundle.tools = tools.map(|entry| builder.tool(&entry?, &previous.tools)).collect();
                let prompts = entries::list_prompts(&root, options).into_iter();
                bundle.prompts = prompts.map(|entry| builder.prompt(&entry?, &previous.prompts)).collect();
                let resources = entries::list_resources(options).into_iter();
                bundle.resources =
                    resources.map(|entry| builder.resource(&entry, &previous.resources)).collect();
            }
            Err(error) => {
                let message = format!("the folder cannot be read: {}", error.kind());
                bundle.tools.push(Err(Diagnostic::error(&root.display().to_string(), message)));
            }
        }
        Self { cache, ..bundle }
    }

    /// The tools that can be served.
    pub fn served(&self) -> impl Iterator<Item = &BundledTool> {
        self.tools.iter().flatten()
    }

    pub fn served_prompts(&self) -> impl Iterator<Item = &BundledPrompt> {
        self.prompts.iter().flatten()
    }

    pub fn served_resources(&self) -> impl Iterator<Item = &BundledResource> {
        self.resources.iter().flatten()
    }

    /// What keeps the rest from being served. A file that several of them need is named once.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        let tools = self.tools.iter().filter_map(|one| one.as_ref().err());
        let prompts = self.prompts.iter().filter_map(|one| one.as_ref().err());
        let all = tools.chain(prompts).chain(self.resources.iter().filter_map(|one| one.as_ref().err()));
        let mut seen: Vec<&Diagnostic> = Vec::new();
        all.filter(move |one| {
            let is_new = !seen.contains(one);
            if is_new {
                seen.push(one);
            }
            is_new
        })
    }

    /// Whether any code looks at the request: a context function, or `ctx.request`.
    pub fn reads_requests(&self) -> bool {
        self.handlers().any(|handler| handler.program.reads_request)
    }

    /// The files of the folder that are served, packages included.
    pub fn module_files(&self) -> BTreeSet<&str> {
        self.handlers().flat_map(|handler| handler.program.file_ids()).collect()
    }

    /// The files that must travel with the served code, those that only have types included.
    pub fn packable_files(&self) -> BTreeSet<String> {
        let types = self.handlers().flat_map(|handler| handler.type_files.iter().map(|one| one.file.clone()));
        self.module_files().into_iter().map(ToOwned::to_owned).chain(types).collect()
    }

    /// Where the imports of these files lead.
    pub fn links(&self) -> ModuleLinks {
        ModuleLinks::new(self.handlers().flat_map(|handler| handler.program.links()))
    }

    /// The npm packages among them.
    pub fn packages(&self) -> BTreeSet<&str> {
        self.module_files().into_iter().filter_map(module::package_name).collect()
    }

    fn handlers(&self) -> impl Iterator<Item = &Arc<Handler>> {
        let tools = self.served().map(|tool| &tool.handler);
        let prompts = self.served_prompts().map(|prompt| &prompt.handler);
        tools.chain(prompts).chain(self.served_resources().map(|resource| &resource.handler))
    }

    /// Whether there is no code at all.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty()
    }
}

/// What an earlier build found.
#[derive(Default)]
struct Previous {
    tools: Vec<BundledTool>,
    prompts: Vec<BundledPrompt>,
    resources: Vec<BundledResource>,
}

struct Builder<'b> {
    graph: Graph<'b>,
    options: &'b BundleOptions,
    context: Option<Result<&'static str, Box<Diagnostic>>>,
    warnings: &'b mut Vec<Diagnostic>,
}

impl Builder<'_> {
    fn tool(&mut self, entry: &Entry, previous: &[BundledTool]) -> Result<BundledTool, Diagnostic> {
        let program = self.program(entry)?;
        if let Some(same) = previous.iter().find(|one| self.is_same(&one.handler, entry, &program)) {
            return Ok(same.clone());
        }
        let described = self.describe(&program, HandlerKind::Tool)?;
        let declared = schema::declare_tool(&entry.name, &program, &described, &self.graph, self.warnings)?;
        if program.may_detach && declared.definition.task_support == spile_core::TaskSupport::Forbidden {
            let message = "`ctx.detach` has no effect: the tool never becomes a task";
            let help = "add `task: \"optional\"` or `task: \"required\"` to its metadata";
            self.warnings.push(Diagnostic::warning(&entry.file, message).with_help(help));
        }
        let handler = Handler {
            kind: HandlerKind::Tool,
            name: entry.name.clone(),
            file: entry.file.clone(),
            program,
            offset: declared.handler_offset,
            shares_state: declared.shares_state,
            output: declared.output,
            task_support: declared.definition.task_support,
            type_files: declared.type_files,
        };
        Ok(BundledTool { definition: declared.definition, handler: Arc::new(handler) })
    }

    fn prompt(&mut self, entry: &Entry, previous: &[BundledPrompt]) -> Result<BundledPrompt, Diagnostic> {
        let program = self.program(entry)?;
        if let Some(same) = previous.iter().find(|one| self.is_same(&one.handler, entry, &program)) {
            return Ok(same.clone());
        }
        let described = self.describe(&program, HandlerKind::Prompt)?;
        let declared = schema::declare_prompt(&entry.name, &program, &described, &self.graph, self.warnings)?;
        let handler = Handler::plain(HandlerKind::Prompt, entry, program, declared.handler_offset);
        let schema::DeclaredPrompt { definition, input, completions, type_files, .. } = declared;
        let handler = Handler { type_files, ..handler };
        Ok(BundledPrompt { definition, input, completions, handler: Arc::new(handler) })
    }

    fn resource(
        &mut self,
        entry: &Entry,
        previous: &[BundledResource],
    ) -> Result<BundledResource, Diagnostic> {
        let program = self.program(entry)?;
        if let Some(same) = previous.iter().find(|one| self.is_same(&one.handler, entry, &program)) {
            return Ok(same.clone());
        }
        self.describe(&program, HandlerKind::Resource)?;
        let offset = schema::handler_offset(&program);
        let handler = Handler::plain(HandlerKind::Resource, entry, program, offset);
        Ok(BundledResource { handler: Arc::new(handler) })
    }

    fn program(&mut self, entry: &Entry) -> Result<Arc<Program>, Diagnostic> {
        let context = match &self.context {
            Some(Ok(file)) => Some(*file),
            Some(Err(broken)) => return Err(of_context((**broken).clone())),
            None => None,
        };
        self.graph.add(&entry.file).map_err(|diagnostic| *diagnostic)?;
        let allows_eval = self.options.eval_tools.contains(&entry.name);
        let modules = self.graph.reachable(&[&entry.file, context.unwrap_or(&entry.file)]);
        for unit in modules.values() {
            lint::check(&unit.module, self.warnings);
            lint::check_package_locale(&unit.module, entry, self.warnings);
            if !allows_eval {
                lint::check_package(&unit.module, entry, self.warnings);
            }
        }
        Ok(Arc::new(Program::new(&entry.file, context, modules, allows_eval)?))
    }

    fn describe(
        &self,
        program: &Arc<Program>,
        kind: HandlerKind,
    ) -> Result<crate::engine::Described, Diagnostic> {
        let BundleOptions { limits, engine_limits, isolation, .. } = self.options;
        let described = crate::engine::describe(program, kind, engine_limits, isolation, limits.load_wall_ms);
        described.map_err(|diagnostic| match program.context() {
            Some(context) if diagnostic.file == context => of_context(diagnostic),
            _ => diagnostic,
        })
    }

    /// Whether an earlier build made the handler from the same files.
    fn is_same(&self, handler: &Handler, entry: &Entry, program: &Program) -> bool {
        let is_unchanged = |one: &schema::TypeFile| self.graph.has_source(&one.file, &one.source);
        handler.name == entry.name
            && handler.file == entry.file
            && handler.program.is_same(program)
            && handler.type_files.iter().all(is_unchanged)
    }
}

fn context_file(root: &Path) -> Option<&'static str> {
    let files = ["src/context.ts", "context.ts", "src/context.js", "context.js"];
    files.into_iter().find(|file| root.join(file).is_file())
}

/// A problem of the context file. Its function may refuse a call, so nothing runs without it.
fn of_context(diagnostic: Diagnostic) -> Diagnostic {
    let Diagnostic { message, .. } = &diagnostic;
    let message = format!("{message}; no tool, prompt or resource with code is served without the context");
    Diagnostic { message, ..diagnostic }
}
