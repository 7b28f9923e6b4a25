//! The modules that a folder's entry files reach, with every import resolved. The only part that reads files.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxc_resolver::{
    ResolveError, ResolveOptions, Resolver, TsconfigDiscovery, TsconfigOptions, TsconfigReferences,
};

use super::module::{Import, Module, ModuleKind, package_of};
use super::{BundleLimits, ModuleLinks};
use crate::diagnostic::Diagnostic;
use crate::schema::{TypeFile, TypeFiles};

/// Parsed modules of an earlier build, by id: a reload parses only what changed.
#[derive(Debug, Default)]
pub(crate) struct ModuleCache(HashMap<String, Arc<Module>>);

/// A module and where its imports lead.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) module: Arc<Module>,
    /// Specifier → module id.
    pub(crate) links: BTreeMap<String, String>,
}

impl Unit {
    /// Whether it is a file of the author.
    pub(crate) fn is_own(&self) -> bool {
        super::module::package_name(&self.module.id).is_none()
    }

    /// Whether it belongs to a package of which it is known that its functions keep nothing of what they are given.
    pub(crate) fn is_of_known_package(&self) -> bool {
        super::module::package_name(&self.module.id).is_some_and(super::hidden_state::keeps_nothing)
    }
}

pub(crate) struct Graph<'a> {
    root: &'a Path,
    limits: &'a BundleLimits,
    /// Where imports lead, if that is known already.
    known_links: Option<&'a ModuleLinks>,
    cache: &'a mut ModuleCache,
    import_resolver: Resolver,
    require_resolver: Resolver,
    units: HashMap<String, Unit>,
    /// Why a module is missing from `units`.
    failures: HashMap<String, Box<Diagnostic>>,
    /// The module that first imported a module, to show the chain.
    importers: HashMap<String, String>,
    source_bytes: usize,
}

impl<'a> Graph<'a> {
    /// `root` is canonical.
    pub(crate) fn new(
        root: &'a Path,
        limits: &'a BundleLimits,
        known_links: Option<&'a ModuleLinks>,
        cache: &'a mut ModuleCache,
    ) -> Self {
        let import_resolver = Resolver::new(resolve_options(root, "import"));
        let require_resolver = import_resolver.clone_with_options(resolve_options(root, "require"));
        Self {
            root,
            limits,
            known_links,
            cache,
            import_resolver,
            require_resolver,
            units: HashMap::new(),
            failures: HashMap::new(),
            importers: HashMap::new(),
            source_bytes: 0,
        }
    }

    /// Adds an entry file and everything it imports. Returns the first problem that keeps it from running.
    pub(crate) fn add(&mut self, entry: &str) -> Result<(), Box<Diagnostic>> {
        let mut queue = VecDeque::from([entry.to_owned()]);
        let mut seen = BTreeSet::from([entry.to_owned()]);
        while let Some(id) = queue.pop_front() {
            if let Some(failure) = self.failures.get(&id) {
                return Err(failure.clone());
            }
            if !self.units.contains_key(&id) {
                match self.load(&id) {
                    Ok(unit) => {
                        self.units.insert(id.clone(), unit);
                    }
                    Err(failure) => {
                        self.failures.insert(id, failure.clone());
                        return Err(failure);
                    }
                }
            }
            for dependency in self.units[&id].links.values() {
                if seen.insert(dependency.clone()) {
                    self.importers.entry(dependency.clone()).or_insert_with(|| id.clone());
                    queue.push_back(dependency.clone());
                }
            }
        }
        Ok(())
    }

    /// The entry and everything it reaches, by id.
    pub(crate) fn reachable(&self, entries: &[&str]) -> BTreeMap<String, Unit> {
        let mut todo: Vec<&str> = entries.to_vec();
        let mut found = BTreeMap::new();
        while let Some(id) = todo.pop() {
            if let (false, Some(unit)) = (found.contains_key(id), self.units.get(id)) {
                todo.extend(unit.links.values().map(String::as_str));
                found.insert(id.to_owned(), unit.clone());
            }
        }
        found
    }

    /// Reads one file of the folder and resolves its imports.
    fn load(&mut self, id: &str) -> Result<Unit, Box<Diagnostic>> {
        let path = self.root.join(id);
        // Imports have been followed by the resolver; an entry may be a link itself.
        if path.canonicalize().is_ok_and(|path| self.module_id(&path).is_none()) {
            let help = "code is served from its own folder only; copy the file";
            return Err(Box::new(
                Diagnostic::error(id, "a link that leads outside the folder").with_help(help),
            ));
        }
        let source = self.read(id, &path)?;
        let module = match self.cache.0.get(id) {
            Some(module) if module.source == source => module.clone(),
            _ => {
                let module = Arc::new(parse(id, source).map_err(|error| self.with_chain(*error, id))?);
                self.cache.0.insert(id.to_owned(), module.clone());
                module
            }
        };
        let folder = path.parent().unwrap_or(self.root).to_path_buf();
        let resolver = match module.kind {
            ModuleKind::CommonJs => &self.require_resolver,
            ModuleKind::EsModule | ModuleKind::Json => &self.import_resolver,
        };
        let mut links = BTreeMap::new();
        for import in &module.imports {
            if let Some(known) = self.known_links {
                match known.target(id, &import.specifier) {
                    Some(target) => {
                        links.insert(import.specifier.clone(), target.to_owned());
                    }
                    None if import.is_optional => {}
                    None => {
                        let message = format!("`{}` was not packed", import.specifier);
                        return Err(Box::new(self.import_error(&module, import, message)));
                    }
                }
                continue;
            }
            match resolver.resolve(&folder, &import.specifier) {
                Ok(resolution) => {
                    let target = self.module_id(resolution.path()).ok_or_else(|| {
                        let message = format!("`{}` is outside the folder", import.specifier);
                        let help = "a tool can import files of its own folder and of its `node_modules`";
                        self.import_error(&module, import, message).with_help(help)
                    })?;
                    if let Some(kind) = native_kind(&target) {
                        if import.is_optional {
                            continue;
                        }
                        let message = native_part(&target, kind);
                        return Err(Box::new(
                            self.import_error(&module, import, message).with_help(NATIVE_REPLACEMENT),
                        ));
                    }
                    links.insert(import.specifier.clone(), target);
                }
                // It throws when it runs, as in Node, and the file handles that.
                Err(_) if import.is_optional => {}
                Err(error) => return Err(Box::new(self.resolve_error(&module, import, &error))),
            }
        }
        Ok(Unit { module, links })
    }

    /// Whether the file of the folder still has this text.
    pub(crate) fn has_source(&self, id: &str, source: &str) -> bool {
        std::fs::read(self.root.join(id)).is_ok_and(|bytes| bytes == source.as_bytes())
    }

    fn read(&mut self, id: &str, path: &Path) -> Result<String, Box<Diagnostic>> {
        let limits = self.limits;
        let fail =
            |graph: &Self, message: String| Box::new(*graph.with_chain(Diagnostic::error(id, message), id));
        if self.units.len() >= limits.modules_max {
            return Err(fail(self, format!("the tools import more than {} modules", limits.modules_max)));
        }
        let too_large = |max: usize| format!("larger than {max} bytes");
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.len() > limits.module_bytes_max as u64 => {
                return Err(fail(self, too_large(limits.module_bytes_max)));
            }
            Ok(metadata) if !metadata.is_file() => return Err(fail(self, "not a file".into())),
            Ok(_) => {}
            Err(error) => return Err(fail(self, format!("cannot be read: {}", error.kind()))),
        }
        let bytes =
            std::fs::read(path).map_err(|error| fail(self, format!("cannot be read: {}", error.kind())))?;
        self.source_bytes += bytes.len();
        if self.source_bytes > limits.source_bytes_max {
            return Err(fail(
                self,
                format!("the tools and their imports are {}", too_large(limits.source_bytes_max)),
            ));
        }
        if let Some(kind) = binary_kind(&bytes) {
            let diagnostic = Diagnostic::error(id, native_part(id, kind)).with_help(NATIVE_REPLACEMENT);
            return Err(self.with_chain(diagnostic, id));
        }
        String::from_utf8(bytes).map_err(|_| fail(self, "not UTF-8".into()))
    }

    /// The path inside the folder; `None` if it is outside. The resolver has followed symbolic links.
    fn module_id(&self, path: &Path) -> Option<String> {
        let inside = path.strip_prefix(self.root).ok()?;
        let parts: Option<Vec<&str>> = inside.components().map(|part| part.as_os_str().to_str()).collect();
        Some(parts?.join("/"))
    }

    fn import_error(&self, module: &Module, import: &Import, message: String) -> Diagnostic {
        let position = module.source_position(import.offset);
        let diagnostic = Diagnostic::error(&module.id, message).at(&module.source, position);
        *self.with_chain(diagnostic, &module.id)
    }

    fn resolve_error(&self, module: &Module, import: &Import, error: &ResolveError) -> Diagnostic {
        let specifier = &import.specifier;
        match error {
            ResolveError::Builtin { resolved, .. } => {
                let name = resolved.strip_prefix("node:").unwrap_or(resolved);
                let message = format!(
                    "the Node built-in `{specifier}` does not exist here{}",
                    match super::module::package_name(&module.id) {
                        Some(_) => format!("; {} needs it", package_of(&module.id)),
                        None => String::new(),
                    }
                );
                self.import_error(module, import, message).with_help(builtin_replacement(name))
            }
            ResolveError::TsconfigLoadFailed { .. } | ResolveError::TsconfigNotFound(_) => {
                Diagnostic::error("tsconfig.json", "cannot be read as a TypeScript configuration")
            }
            _ if !specifier.starts_with(['.', '/']) => {
                let message = format!("cannot find the package `{specifier}`");
                self.import_error(module, import, message)
                    .with_help("install it: `npm install` in the folder")
            }
            _ => self
                .import_error(module, import, format!("cannot find `{specifier}`"))
                .with_help("the path is relative to this file; files of the folder are imported as `./name`"),
        }
    }

    /// Says how the author's file came to import this one.
    fn with_chain(&self, mut diagnostic: Diagnostic, id: &str) -> Box<Diagnostic> {
        const CHAIN_MAX: usize = 12;
        let mut chain = vec![id];
        while let Some(importer) = chain.last().and_then(|last| self.importers.get(*last)) {
            chain.push(importer);
            if chain.len() > CHAIN_MAX {
                break;
            }
        }
        if chain.len() > 1 {
            chain.reverse();
            diagnostic.message = format!("{} (imported by {})", diagnostic.message, chain.join(" → "));
        }
        Box::new(diagnostic)
    }
}

impl TypeFiles for Graph<'_> {
    fn read(&self, from: &str, specifier: &str) -> Result<TypeFile, String> {
        let path = self.root.join(from);
        let resolved = self.import_resolver.resolve(path.parent().unwrap_or(self.root), specifier);
        let resolved = resolved.map_err(|_| "which cannot be found".to_owned())?;
        let file = self.module_id(resolved.path()).ok_or("which is outside the folder")?;
        if super::module::package_name(&file).is_some() {
            return Err("which is a package; only types of the folder's own files are read".into());
        }
        if !file.ends_with(".ts") && !file.ends_with(".mts") {
            return Err("which is not TypeScript".into());
        }
        let metadata = std::fs::metadata(resolved.path()).map_err(|error| error.kind().to_string())?;
        let bytes_max = self.limits.module_bytes_max;
        if !metadata.is_file() || metadata.len() > bytes_max as u64 {
            return Err(format!("which is not a file of at most {bytes_max} bytes"));
        }
        let source = std::fs::read_to_string(resolved.path())
            .map_err(|error| format!("which cannot be read: {}", error.kind()))?;
        Ok(TypeFile { file, source })
    }
}

/// Parses a file. A bug of the parser costs this file, not the server.
fn parse(id: &str, source: String) -> Result<Module, Box<Diagnostic>> {
    std::panic::catch_unwind(|| Module::parse(id, source))
        .unwrap_or_else(|_| Err(Box::new(Diagnostic::error(id, "cannot be parsed: internal error"))))
}

fn resolve_options(root: &Path, condition: &str) -> ResolveOptions {
    let tsconfig: PathBuf = root.join("tsconfig.json");
    let main_fields: &[&str] = if condition == "import" { &["module", "main"] } else { &["main"] };
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    ResolveOptions {
        tsconfig: tsconfig.is_file().then_some(TsconfigDiscovery::Manual(TsconfigOptions {
            config_file: tsconfig,
            references: TsconfigReferences::Disabled,
        })),
        // Without `node`, packages choose the build for browsers, which needs no Node built-ins.
        condition_names: owned(&[condition, "browser", "default"]),
        // `.node` is found to be refused by name.
        extensions: owned(&[".ts", ".mts", ".js", ".mjs", ".cjs", ".json", ".node"]),
        // TypeScript's convention: an import of `./a.js` may mean `./a.ts`.
        extension_alias: vec![
            (".js".into(), owned(&[".ts", ".js"])),
            (".mjs".into(), owned(&[".mts", ".mjs"])),
        ],
        main_fields: owned(main_fields),
        builtin_modules: true,
        // The environment must not decide what a tool imports.
        node_path: false,
        ..ResolveOptions::default()
    }
}

const NATIVE_REPLACEMENT: &str =
    "tools run JavaScript only: use a package without native parts, or call a service with `ctx.fetch`";

/// What a file is that is not JavaScript, by its name.
fn native_kind(id: &str) -> Option<&'static str> {
    match Path::new(id).extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "node" => Some("a native module of Node"),
        "wasm" => Some("WebAssembly"),
        "dll" | "dylib" | "exe" | "so" => Some("a native program"),
        _ => None,
    }
}

/// The same, by its first bytes.
fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    const PROGRAMS: [&[u8]; 5] =
        [b"\x7fELF", b"MZ\x90", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xce\xfa\xed\xfe"];
    match bytes {
        [0, b'a', b's', b'm', ..] => Some("WebAssembly"),
        _ if PROGRAMS.iter().any(|magic| bytes.starts_with(magic)) => Some("a native program"),
        _ => bytes.contains(&0).then_some("a binary file"),
    }
}

fn native_part(id: &str, kind: &str) -> String {
    match super::module::package_name(id) {
        Some(package) => format!("the package `{package}` has a native part: `{id}` is {kind}"),
        None => format!("`{id}` is {kind}, which cannot be imported"),
    }
}

/// What to use instead of a Node built-in.
fn builtin_replacement(name: &str) -> &'static str {
    match name.split('/').next().unwrap_or_default() {
        "fs" => "read and write files with `ctx.files`",
        "http" | "https" | "http2" | "net" | "tls" | "dgram" | "dns" => "make requests with `ctx.fetch`",
        "process" => "read settings with `ctx.env` and `ctx.secret`",
        "timers" => "use the global `setTimeout`",
        "url" => "use the global `URL` and `URLSearchParams`",
        "buffer" | "string_decoder" => "use `Uint8Array`, `TextEncoder`, `TextDecoder`, `atob` and `btoa`",
        "crypto" => "use the global `crypto.randomUUID` and `crypto.getRandomValues`",
        "sqlite" => "query declared sources with `ctx.sql` and `ctx.collection`",
        "console" => "use the global `console`",
        "child_process" | "cluster" | "worker_threads" => {
            "tools cannot start programs; call other tools with `ctx.tool`"
        }
        _ => "tools run without Node; use a package that runs in browsers",
    }
}
