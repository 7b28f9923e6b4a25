//! From a folder of tools to programs that need no file system.
//!
//! ```text
//! tools/*.ts    list_tools          one entry file per tool
//!  → graph      graph.rs            parse, remove types, resolve imports; closed and bounded
//!  → program    program.rs          the modules of one tool, as the engine takes them, and their hash
//!  → describe   engine::describe    load it once in a sandbox without effects: schema and metadata
//!  → definition schema/             the tool as the catalog shows it
//! ```
//!
//! A file that fails in any step is one [`Diagnostic`]; the other tools are served.

mod common_js;
mod graph;
mod lint;
mod module;
mod positions;
mod program;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use contract::CompiledSchema;
pub(crate) use graph::ModuleCache;
pub(crate) use program::{CodeHash, Program};

use crate::diagnostic::Diagnostic;
use crate::engine::EngineLimits;
use crate::schema;
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
    pub limits: BundleLimits,
    pub engine_limits: EngineLimits,
    /// Tools that may use `eval` and `new Function`, because a package of theirs needs it.
    pub eval_tools: BTreeSet<String>,
    /// Tools whose module state is shared between callers.
    pub shared_state_tools: BTreeSet<String>,
}

impl Default for BundleOptions {
    fn default() -> Self {
        Self {
            tools_dir: "tools".into(),
            limits: BundleLimits::default(),
            engine_limits: EngineLimits::default(),
            eval_tools: BTreeSet::new(),
            shared_state_tools: BTreeSet::new(),
        }
    }
}

/// All tools of a folder, compiled.
#[derive(Debug)]
pub struct Bundle {
    /// In the order of their names. A tool that cannot be served is the reason why.
    pub tools: Vec<Result<BundledTool, Diagnostic>>,
    /// What cannot work although the tool is served.
    pub warnings: Vec<Diagnostic>,
    cache: ModuleCache,
}

#[derive(Clone)]
pub struct BundledTool {
    pub definition: spile_core::Tool,
    /// The file inside the folder.
    pub file: String,
    pub(crate) program: Arc<Program>,
    pub(crate) output: Option<Arc<CompiledSchema>>,
    pub(crate) handler_offset: Option<usize>,
    pub(crate) shares_state: bool,
}

impl std::fmt::Debug for BundledTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BundledTool")
            .field("definition", &self.definition)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl BundledTool {
    /// Points a diagnostic without a position at the handler.
    pub(crate) fn at_handler(&self, diagnostic: Diagnostic) -> Diagnostic {
        match (diagnostic.position, self.handler_offset, self.program.source(&self.file)) {
            (None, Some(offset), Some(source)) => diagnostic.at_offset(source, offset),
            _ => diagnostic,
        }
    }
}

impl Bundle {
    /// Compiles the tools of a folder. Blocks: it reads files and runs the top level of each tool in a
    /// sandbox.
    pub fn build(root: &Path, options: &BundleOptions) -> Self {
        Self::build_with(root, options, ModuleCache::default(), &[])
    }

    /// Compiles the folder again: parses only the files that changed, and loads only the tools whose code
    /// changed. For the same options.
    pub fn rebuild(&mut self, root: &Path, options: &BundleOptions) {
        let previous: Vec<_> = std::mem::take(&mut self.tools).into_iter().flatten().collect();
        *self = Self::build_with(root, options, std::mem::take(&mut self.cache), &previous);
    }

    fn build_with(
        root: &Path,
        options: &BundleOptions,
        mut cache: ModuleCache,
        previous: &[BundledTool],
    ) -> Self {
        let (mut tools, mut warnings) = (Vec::new(), Vec::new());
        match root.canonicalize() {
            Ok(root) => {
                let mut graph = Graph::new(&root, &options.limits, &mut cache);
                let context = context_file(&root).map(|file| graph.add(file).map(|()| file));
                for entry in list_tools(&root, options) {
                    tools.push(entry.and_then(|entry| {
                        let context = match &context {
                            Some(Ok(file)) => Some(*file),
                            Some(Err(broken)) => return Err((**broken).clone()),
                            None => None,
                        };
                        build_tool(&mut graph, &entry, context, options, previous, &mut warnings)
                    }));
                }
            }
            Err(error) => {
                let message = format!("the folder cannot be read: {}", error.kind());
                tools.push(Err(Diagnostic::error(&root.display().to_string(), message)));
            }
        }
        Self { tools, warnings, cache }
    }

    /// The tools that can be served.
    pub fn served(&self) -> impl Iterator<Item = &BundledTool> {
        self.tools.iter().filter_map(|tool| tool.as_ref().ok())
    }

    /// What keeps the other tools from being served.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.tools.iter().filter_map(|tool| tool.as_ref().err())
    }
}

fn build_tool(
    graph: &mut Graph<'_>,
    entry: &Entry,
    context: Option<&str>,
    options: &BundleOptions,
    previous: &[BundledTool],
    warnings: &mut Vec<Diagnostic>,
) -> Result<BundledTool, Diagnostic> {
    graph.add(&entry.file).map_err(|diagnostic| *diagnostic)?;
    let allows_eval = options.eval_tools.contains(&entry.name);
    let modules = graph.reachable(&[&entry.file, context.unwrap_or(&entry.file)]);
    for unit in modules.values() {
        lint::check(&unit.module, warnings);
    }
    let program = Program::new(&entry.file, context, modules, allows_eval)?;
    let is_same = |tool: &&BundledTool| tool.definition.name == entry.name && tool.program.is_same(&program);
    if let Some(unchanged) = previous.iter().find(is_same) {
        return Ok(unchanged.clone());
    }
    let program = Arc::new(program);
    let described = crate::engine::describe(&program, &options.engine_limits, options.limits.load_wall_ms)?;
    let declared = schema::declare(&entry.name, &program, &described)?;
    Ok(BundledTool {
        definition: declared.definition,
        output: declared.output,
        handler_offset: declared.handler_offset,
        file: entry.file.clone(),
        program,
        shares_state: options.shared_state_tools.contains(&entry.name),
    })
}

struct Entry {
    name: String,
    file: String,
}

/// The entry files in the order of their names.
fn list_tools(root: &Path, options: &BundleOptions) -> Vec<Result<Entry, Diagnostic>> {
    let directory = root.join(&options.tools_dir);
    let Ok(files) = std::fs::read_dir(&directory) else { return Vec::new() };
    let mut names: Vec<String> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter(|name| tool_name_of(name).is_some())
        .collect();
    names.sort();
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for file_name in names {
        let file = format!("{}/{file_name}", options.tools_dir.trim_matches('/'));
        let Some(name) = tool_name_of(&file_name) else { continue };
        entries.push(if !is_valid_name(name) {
            let message = format!("`{name}` cannot be the name of a tool");
            let help = "use letters, digits, `_`, `-` and `.`, at most 128 of them";
            Err(Diagnostic::error(&file, message).with_help(help))
        } else if !seen.insert(name.to_owned()) {
            let message = format!("another file is the tool `{name}` already");
            Err(Diagnostic::error(&file, message).with_help("rename one of the two files"))
        } else if entries.len() >= options.limits.tools_max {
            let message = format!("more than {} tools in one folder", options.limits.tools_max);
            Err(Diagnostic::error(&file, message))
        } else {
            Ok(Entry { name: name.to_owned(), file })
        });
    }
    entries
}

/// The file's stem if it is a tool: not a declaration file, a test or a hidden file.
fn tool_name_of(file_name: &str) -> Option<&str> {
    let (stem, extension) = file_name.rsplit_once('.')?;
    let is_code = matches!(extension, "ts" | "mts" | "js" | "mjs");
    let is_other = [".d", ".test", ".spec"].iter().any(|suffix| stem.ends_with(suffix));
    (is_code && !is_other && !stem.starts_with(['.', '_']) && !stem.is_empty()).then_some(stem)
}

/// 2025-11-25, Tool names: 1 to 128 characters, ASCII letters, digits, `_`, `-` and `.`.
fn is_valid_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn context_file(root: &Path) -> Option<&'static str> {
    let files = ["src/context.ts", "context.ts", "src/context.js", "context.js"];
    files.into_iter().find(|file| root.join(file).is_file())
}
