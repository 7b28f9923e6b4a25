//! The modules of one tool as the engine takes them: a closed map, and a hash of all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ring::digest::{Context, SHA256};

use super::graph::Unit;
use super::hidden_state::HiddenState;
use super::module::{Module, ModuleKind};
use super::positions::{Place, call_start};
use crate::diagnostic::{Diagnostic, Position};
use crate::engine::{CodeHash, Pace, ProgramCode};

/// Opens the function around a CommonJS file, on its first line, so that line numbers stay.
const COMMON_JS_HEAD: &str = "export default function (exports, require, module, __filename, __dirname) {";
const COMMON_JS_PREFIX: &str = "cjs:";

/// One entry file and everything it imports: what the engine runs, and what diagnostics need.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) code: Arc<ProgramCode>,
    pub(crate) pace: Arc<Pace>,
    /// Whether the author's files use a function that ends a round. Such a tool begins every round with fresh
    /// module state: a value that an earlier call left behind could not be replayed.
    pub(crate) may_ask: bool,
    /// Whether a call ended a round although the syntax does not show it: a package asked, or a computed name.
    pub(crate) has_asked: AtomicBool,
    /// Whether one call may leave something for the next, in the author's files or in packages.
    pub(crate) may_keep_state: bool,
    /// Whether the author's files use `ctx.detach`.
    pub(crate) may_detach: bool,
    /// Whether the request can make a difference: there is a context function, or code uses `ctx.request`.
    pub(crate) reads_request: bool,
    files: BTreeMap<String, Unit>,
}

/// Of an error that author code makes.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

impl Program {
    pub(crate) fn new(
        entry: &str,
        context: Option<&str>,
        files: BTreeMap<String, Unit>,
        allows_eval: bool,
    ) -> Result<Self, Diagnostic> {
        let mut modules: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let export_names = ExportNames::new(&files);
        for (id, unit) in &files {
            match unit.module.kind {
                ModuleKind::EsModule => {
                    modules.insert(id.clone(), unit.module.code.clone());
                }
                ModuleKind::CommonJs => {
                    let function = format!("{COMMON_JS_HEAD}{}\n}}", unit.module.code);
                    modules.insert(format!("{COMMON_JS_PREFIX}{id}"), function.into());
                    let facade = common_js_facade(id, &files, &export_names.of(id));
                    modules.insert(id.clone(), facade.into());
                }
                ModuleKind::Json => {
                    // Parsed, not pasted: `__proto__` is a key like any other in JSON.
                    let value = format!("JSON.parse({})", quote(&unit.module.code));
                    let function =
                        format!("export default function (e, r, module) {{ module.exports = {value}; }}");
                    modules.insert(format!("{COMMON_JS_PREFIX}{id}"), function.into());
                    modules.insert(id.clone(), format!("export default {value};").into());
                }
            }
        }
        let mut digest = Context::new(&SHA256);
        let mut field = |bytes: &[u8]| {
            digest.update(&(bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        field(crate::engine::PRELUDE_VERSION);
        field(&[u8::from(allows_eval)]);
        field(entry.as_bytes());
        field(context.unwrap_or_default().as_bytes());
        for (id, unit) in &files {
            field(id.as_bytes());
            field(unit.module.code.as_bytes());
            for (specifier, target) in &unit.links {
                field(specifier.as_bytes());
                field(target.as_bytes());
            }
        }
        let mut hash = CodeHash::default();
        hash.copy_from_slice(digest.finish().as_ref());
        let may_ask = files.values().any(|unit| unit.module.may_ask);
        let may_detach = files.values().any(|unit| unit.module.may_detach);
        let reads_request = context.is_some() || files.values().any(|unit| unit.module.reads_request);
        let (entry, context) = (entry.to_owned(), context.map(ToOwned::to_owned));
        let own = files.iter().filter(|(_, unit)| unit.module.kind == ModuleKind::EsModule);
        let links = own.map(|(id, unit)| (id.clone(), unit.links.clone())).collect();
        let code = Arc::new(ProgramCode { entry, context, hash, allows_eval, modules, links });
        let shows_state = files.values().any(|unit| unit.module.may_keep_state && unit.is_own());
        let has_big_integers = files.values().any(|unit| unit.module.has_big_integers);
        // Code from text may have them, too.
        let pace = Arc::new(Pace::new(!shows_state && !has_big_integers && !allows_eval));
        let may_keep_state = shows_state || may_hide_state(&files);
        let has_asked = AtomicBool::new(false);
        Ok(Self { code, pace, may_ask, has_asked, may_keep_state, may_detach, reads_request, files })
    }

    /// The file that exports the handler.
    pub(crate) fn entry(&self) -> &str {
        &self.code.entry
    }

    /// The file of the context function.
    pub(crate) fn context(&self) -> Option<&str> {
        self.code.context.as_deref()
    }

    pub(crate) fn hash(&self) -> &CodeHash {
        &self.code.hash
    }

    /// Whether it comes from the same files. The hash does not see types and comments, which a schema may
    /// come from.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let sources = |program: &Self| -> Vec<*const Module> {
            program.files.values().map(|unit| Arc::as_ptr(&unit.module)).collect()
        };
        // A file that did not change is the same module: see `ModuleCache`.
        self.hash() == other.hash() && sources(self) == sources(other)
    }

    /// Where the imports of each file lead.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.files.iter().map(|(id, unit)| (id.as_str(), &unit.links))
    }

    /// Its files: paths inside the folder.
    pub(crate) fn file_ids(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The source of one of the tool's files.
    pub(crate) fn source(&self, file: &str) -> Option<&str> {
        self.files.get(file).map(|unit| unit.module.source.as_str())
    }

    /// An error in the author's code, at the topmost position of `stack` that is in a file of the author; in
    /// a file of a package if there is none.
    pub(crate) fn locate(&self, mut message: String, stack: &str) -> Diagnostic {
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push('…');
        }
        let frames = stack.lines().enumerate().filter_map(|(depth, line)| Some((depth, self.frame(line)?)));
        let frames: Vec<_> = frames.collect();
        let own = frames.iter().find(|(_, (module, _))| super::module::package_name(&module.id).is_none());
        match own.or(frames.first()) {
            Some((depth, (module, position))) => {
                // All frames but the first are calls of the frame above.
                let place = if *depth == 0 { Place::Error } else { Place::Call };
                let position = call_start(&module.id, &module.source, *position, place);
                Diagnostic::error(&module.id, message).at(&module.source, position)
            }
            None => self.missing_export(&message).unwrap_or_else(|| Diagnostic::error(self.entry(), message)),
        }
    }

    /// The engine names the missing export and the module that lacks it, but not who imports it.
    fn missing_export(&self, message: &str) -> Option<Diagnostic> {
        let (_, rest) = message.split_once("Could not find export '")?;
        let (name, rest) = rest.split_once("' in module '")?;
        let target = rest.strip_suffix('\'')?;
        self.files.values().find_map(|Unit { module, links }| {
            let leads_there = |specifier: &str| links.get(specifier).is_some_and(|link| link == target);
            let offset = module.import_offset(name, leads_there)?;
            let message = format!("`{target}` has no export `{name}`");
            let help =
                "check the name; a type is imported with `import type` and passed on with `export type`";
            let diagnostic = Diagnostic::error(&module.id, message).with_help(help);
            Some(diagnostic.at(&module.source, module.source_position(offset)))
        })
    }

    /// Reads `at name (file:line:column)`.
    fn frame(&self, line: &str) -> Option<(&Module, Position)> {
        let line = line.trim().trim_end_matches(')');
        let start = line.rfind('(').map(|at| at + 1).or_else(|| line.find("at ").map(|at| at + 3))?;
        let mut parts = line[start..].rsplitn(3, ':');
        let column: u32 = parts.next()?.parse().ok()?;
        let line: u32 = parts.next()?.parse().ok()?;
        let name = parts.next()?;
        let id = name.strip_prefix(COMMON_JS_PREFIX).unwrap_or(name);
        let module = &self.files.get(id)?.module;
        // The head of the wrapper stands before the first line.
        let shift = if id != name && line == 1 { COMMON_JS_HEAD.len() as u32 } else { 0 };
        let generated = Position { line, column: column.saturating_sub(shift).max(1) };
        let position = module.map.as_ref().and_then(|map| map.lookup(generated)).unwrap_or(generated);
        Some((module, position))
    }
}

/// Whether the files may keep state that the author's top levels do not show.
fn may_hide_state(files: &BTreeMap<String, Unit>) -> bool {
    let own = files.values().filter(|unit| unit.is_own()).map(|unit| unit.module.hidden_state);
    own.reduce(HiddenState::or).is_some_and(HiddenState::may_exist)
        || files
            .values()
            .any(|unit| unit.module.may_keep_state && !unit.is_own() && !unit.is_of_known_package())
}

/// An ES module that runs a CommonJS file and exports what it exports.
fn common_js_facade(id: &str, files: &BTreeMap<String, Unit>, export_names: &BTreeSet<String>) -> String {
    use std::fmt::Write;
    let mut code = String::from("import { define, load } from \"spile:common-js\";\n");
    for (n, part) in required_files(id, files).iter().enumerate() {
        let links = serde_json::to_string(&files[part].links).unwrap_or_default();
        let function = quote(&format!("{COMMON_JS_PREFIX}{part}"));
        // Writing to a `String` cannot fail.
        let _ = write!(code, "import f{n} from {function};\ndefine({}, f{n}, {links});\n", quote(part));
    }
    let _ = write!(code, "const m = load({});\nexport default m;\n", quote(id));
    for (n, name) in export_names.iter().enumerate() {
        let name = quote(name);
        let _ = write!(code, "const e{n} = m?.[{name}];\nexport {{ e{n} as {name} }};\n");
    }
    code
}

/// Every CommonJS or JSON file that `id` requires, directly or not, itself included.
fn required_files(id: &str, files: &BTreeMap<String, Unit>) -> BTreeSet<String> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![id]);
    while let Some(id) = todo.pop() {
        let Some(unit) = files.get(id).filter(|unit| unit.module.kind != ModuleKind::EsModule) else {
            continue;
        };
        if found.insert(id.to_owned()) {
            todo.extend(unit.links.values().map(String::as_str));
        }
    }
    found
}

/// The names that CommonJS files must export: those that their text shows, and those that importers ask for,
/// as bundlers do.
struct ExportNames<'a> {
    files: &'a BTreeMap<String, Unit>,
    asked: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> ExportNames<'a> {
    fn new(files: &'a BTreeMap<String, Unit>) -> Self {
        let mut asked: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for unit in files.values() {
            for (specifier, name) in &unit.module.imported_names {
                if let Some(target) = unit.links.get(specifier) {
                    asked.entry(target).or_default().insert(name);
                }
            }
        }
        Self { files, asked }
    }

    fn of(&self, id: &str) -> BTreeSet<String> {
        let mut names: BTreeSet<String> =
            self.asked.get(id).into_iter().flatten().map(|name| (*name).to_owned()).collect();
        let (mut seen, mut todo) = (BTreeSet::new(), vec![id]);
        while let Some(id) = todo.pop() {
            let Some(unit) = self.files.get(id).filter(|_| seen.insert(id)) else { continue };
            names.extend(unit.module.export_names.iter().cloned());
            let reexported = unit.module.reexports.iter();
            todo.extend(reexported.filter_map(|specifier| unit.links.get(specifier)).map(String::as_str));
        }
        names.remove("default");
        names
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
