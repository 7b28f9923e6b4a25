//! `spile pack`: a server as one file that needs nothing installed.
//!
//! ```text
//! executable   this program, and behind its end the manifest, the lock file and, if wanted, the data
//! mcpb         a bundle for desktop clients: that executable and a manifest of the client's kind
//! server-json  what a registry of servers wants to know
//! ```

mod bundle;
mod metadata;
mod packed_server;
mod trailer;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use contract::Contract;
use contract::manifest::SourceKind;
use ring::digest;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::atomic_file::{self, FileMode};
use crate::progress::ProgressBar;
use crate::project::{PackageContents, Project};
pub use metadata::PackMetadata;
pub use packed_server::run_if_packed;
use trailer::{FileSection, Trailer};

#[derive(Debug, Args)]
pub struct PackArgs {
    /// What `serve` takes
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Where to write it
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Put the data in too, from where the manifest says now; without this it is looked for beside the executable, as the manifest names it
    #[arg(long)]
    with_data: bool,
    /// What to make
    #[arg(long, value_enum, default_value_t = PackFormat::Executable)]
    format: PackFormat,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Another build of spile to pack into, for another system
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// mcpb: who made it
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
    /// server-json: its name in the registry, e.g. io.github.acme/customers
    #[arg(long, value_name = "NAMESPACE/NAME")]
    id: Option<String>,
    /// server-json: the bundle that --bundle-url leads to
    #[arg(long, value_name = "FILE", requires = "bundle_url")]
    bundle: Option<PathBuf>,
    /// server-json: where the bundle can be got
    #[arg(long, value_name = "URL", requires = "bundle")]
    bundle_url: Option<String>,
    /// server-json: where it is served over HTTP
    #[arg(long, value_name = "URL")]
    remote_url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PackFormat {
    Executable,
    Mcpb,
    ServerJson,
}

pub fn run(args: &PackArgs) -> anyhow::Result<ExitCode> {
    if args.output.exists() && !args.force {
        bail!("`{}` is there already; --force replaces it", args.output.display());
    }
    ensure!(!args.output.is_dir(), "`{}` is a folder; name a file", args.output.display());
    let project = Project::find(&args.path)?;
    let mut looked = project.scan()?;
    crate::print_diagnostics(&looked.diagnostics);
    let Some(ready) = looked.compiled.take() else { return Ok(ExitCode::FAILURE) };
    let packing = project.package_contents(looked, args.with_data, ready.contract.has_write_tools())?;
    if let Some(made) = &packing.new_id_file {
        writeln!(
            io::stderr(),
            "made {}, which tells this server's data from another's; keep it with the manifest",
            made.display()
        )?;
    }
    let beside = packing.sources.iter().find(|source| !args.with_data && source.path.is_relative());
    if let (PackFormat::Mcpb, Some(source)) = (args.format, beside) {
        bail!("a bundle has nothing beside it, and `{}` would not be found; add --with-data", source.name);
    }
    let server = PackagedServer::new(&ready.contract, packing, args.with_data)?;
    match args.format {
        PackFormat::Executable => {
            atomic_file::write_with(&args.output, FileMode::Executable, |file| {
                write_executable(file.as_file_mut(), &server, args)
            })?;
        }
        PackFormat::Mcpb => bundle::write_mcpb(&args.output, &server, args)?,
        PackFormat::ServerJson => bundle::write_server_json(&args.output, &server, args)?,
    }
    let bytes = std::fs::metadata(&args.output)?.len();
    let size = match bytes >> 20 {
        0 => format!("{} KiB", bytes.div_ceil(1024)),
        mebibytes => format!("{mebibytes} MiB"),
    };
    let what = format!("{} {}", server.metadata.name, server.metadata.version);
    writeln!(io::stderr(), "packed {what} into {} ({size})", args.output.display())?;
    for line in server.remarks(args) {
        writeln!(io::stderr(), "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be packed.
struct PackagedServer {
    metadata: PackMetadata,
    description: String,
    tools: Vec<(String, String)>,
    manifest: String,
    lock: Option<Vec<u8>>,
    /// The files that go in, with their names in the archive.
    files: Vec<PackedFile>,
}

struct PackedFile {
    archive_path: String,
    path: PathBuf,
    kind: SourceKind,
}

impl PackagedServer {
    fn new(contract: &Contract, packing: PackageContents, with_data: bool) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        let mut sources = Vec::new();
        for (at, source) in packing.sources.into_iter().enumerate() {
            if !with_data {
                break;
            }
            let name = source.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Two sources may have files of one name.
            let place = format!("data/{at}/{name}");
            sources.push((source.name, place.clone()));
            files.push(PackedFile { archive_path: place, path: source.path, kind: source.kind });
        }
        let first = |text: &str| text.lines().next().unwrap_or_default().trim().to_owned();
        let instructions = contract.instructions.as_deref().map(first).filter(|line| !line.is_empty());
        // A value that is only in the environment of whoever packs is not for everybody to read.
        let values: Vec<String> =
            packing.variables.iter().filter_map(|name| std::env::var(name).ok()).collect();
        let tells =
            |text: &str| values.iter().any(|value| !value.is_empty() && text.contains(value.as_str()));
        let instructions = instructions.filter(|text| !tells(text));
        let described = |text: &str| if tells(text) { String::new() } else { text.to_owned() };
        Ok(Self {
            description: instructions.unwrap_or_else(|| format!("Tools for {}.", contract.name)),
            tools: contract
                .tools
                .iter()
                .map(|tool| (tool.name.clone(), described(&tool.description)))
                .collect(),
            metadata: PackMetadata {
                name: contract.name.clone(),
                version: contract.version.clone(),
                variables: packing.variables,
                sources,
                is_writable: contract.has_write_tools(),
                id: packing.id,
            },
            manifest: packing.manifest,
            lock: packing.lock,
            files,
        })
    }

    /// What whoever packed it should know.
    fn remarks(&self, args: &PackArgs) -> Vec<String> {
        let mut out = Vec::new();
        if args.format != PackFormat::ServerJson && self.files.is_empty() {
            out.push("the data is not in it; --with-data puts it in".to_owned());
        }
        if !self.metadata.variables.is_empty() {
            out.push(format!(
                "it reads these variables when it starts: {}",
                self.metadata.variables.join(", ")
            ));
        }
        if args.format == PackFormat::ServerJson && args.bundle.is_none() && args.remote_url.is_none() {
            out.push(
                "nobody can get it from this yet; add --bundle and --bundle-url, or --remote-url".to_owned(),
            );
        }
        out
    }
}

/// Writes the program, the payload and the trailer.
fn write_executable(out: &mut File, server: &PackagedServer, args: &PackArgs) -> anyhow::Result<()> {
    let path = match &args.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("where this program lies cannot be told")?,
    };
    let mut program = File::open(&path).with_context(|| format!("`{}` cannot be read", path.display()))?;
    if args.program.is_some() && !trailer::has_magic(&mut program)? {
        bail!("`{}` is no build of spile, and would not know what is packed into it", path.display());
    }
    // A program that has something packed already is taken without it.
    let length = match Trailer::read(&mut program)? {
        Some(trailer) => trailer.start,
        None => program.metadata()?.len(),
    };
    program.rewind()?;
    let data: u64 =
        server.files.iter().filter_map(|file| Some(std::fs::metadata(&file.path).ok()?.len())).sum();
    let bar = ProgressBar::new("packing", length + data);
    io::copy(&mut bar.count_reads((&mut program).take(length)), out)?;
    let from = out.stream_position()?;
    write_payload(out, server, &bar)?;
    let end = out.seek(SeekFrom::End(0))?;
    let digest = sha256_from(out, from)?;
    out.seek(SeekFrom::Start(end))?;
    Trailer { digest, start: from, length: end - from }.write(out)?;
    Ok(())
}

fn write_payload(out: &mut File, server: &PackagedServer, bar: &ProgressBar) -> anyhow::Result<()> {
    let mut archive = ZipWriter::new(FileSection::open_ended(out)?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut member = |name: &str, bytes: &[u8]| {
        archive.start_file(name, options)?;
        archive.write_all(bytes)?;
        anyhow::Ok(())
    };
    member(metadata::MEMBER, server.metadata.write().as_bytes())?;
    member(metadata::MANIFEST, server.manifest.as_bytes())?;
    if let Some(lock) = &server.lock {
        member(metadata::LOCK, lock)?;
    }
    for file in &server.files {
        let shown = file.path.display();
        let copy = tempfile::tempdir()?;
        // A database may have its newest rows in another file; its copy is one file.
        let path = match file.kind {
            SourceKind::Sqlite => {
                let to = copy.path().join("copy.db");
                source::sqlite::copy(&file.path, &to)
                    .with_context(|| format!("`{shown}` cannot be copied"))?;
                to
            }
            _ => file.path.clone(),
        };
        let mut data = File::open(&path).with_context(|| format!("`{shown}` cannot be read"))?;
        archive.start_file(
            &*file.archive_path,
            options.large_file(data.metadata()?.len() >= u64::from(u32::MAX)),
        )?;
        io::copy(&mut bar.count_reads(&mut data), &mut archive)?;
    }
    archive.finish()?;
    Ok(())
}

fn sha256_from(file: &mut File, from: u64) -> io::Result<[u8; 32]> {
    file.seek(SeekFrom::Start(from))?;
    sha256(file)
}

fn sha256(from: &mut impl Read) -> io::Result<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            some => context.update(&buffer[..some]),
        }
    }
    Ok(context.finish().as_ref().try_into().unwrap_or_default())
}

/// What is packed into a file, if something is.
pub(crate) fn read_packed_metadata(path: &Path) -> anyhow::Result<Option<PackMetadata>> {
    if !path.is_file() {
        return Ok(None);
    }
    let Some(trailer) = Trailer::read_path(path)? else { return Ok(None) };
    let mut file = File::open(path)?;
    read_metadata(&mut ZipArchive::new(FileSection::new(&mut file, trailer)?)?).map(Some)
}

fn read_metadata(archive: &mut ZipArchive<FileSection<'_>>) -> anyhow::Result<PackMetadata> {
    PackMetadata::read(read_member(archive, metadata::MEMBER)?)
}

/// A small member.
fn read_member(archive: &mut ZipArchive<FileSection<'_>>, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    archive.by_name(name)?.take(metadata::BYTES_MAX * 8).read_to_end(&mut bytes)?;
    Ok(bytes)
}
