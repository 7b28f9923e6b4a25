//! `spile pack`: packs a server into one file that needs nothing installed.
//!
//! ```text
//! executable   this program, followed by the manifest, the lock file and, with --with-data, the data
//! mcpb         a bundle for desktop clients: that executable and a bundle manifest
//! server-json  the entry of the server in a registry
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
use contract::humanize::join_truncated;
use contract::manifest::SourceKind;
use ring::digest;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::atomic_file::{self, FileMode};
use crate::author_folder::{Author, PackedFolder};
use crate::notice;
use crate::progress::ProgressBar;
use crate::project::{PackageContents, Project};
pub use metadata::PackMetadata;
pub use packed_server::run_if_packed;
use trailer::{FileSection, Trailer};

#[derive(Debug, Args)]
pub struct PackArgs {
    /// A data file, a spile.toml, or a folder with either
    #[arg(default_value = ".")]
    path: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Include the data files; without this, the packed server reads them at the paths in the manifest, relative to the executable
    #[arg(long)]
    with_data: bool,
    /// The kind of file to write
    #[arg(long, value_enum, default_value_t = PackFormat::Executable)]
    format: PackFormat,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// The spile executable of the target platform; default: this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// mcpb: name of the author
    #[arg(long, value_name = "NAME")]
    author: Option<String>,
    /// server-json: name of the server in the registry, e.g. io.github.acme/customers
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = bundle::parse_id)]
    id: Option<String>,
    /// server-json: local copy of the bundle at --bundle-url, for its hash
    #[arg(long, value_name = "FILE", requires = "bundle_url")]
    bundle: Option<PathBuf>,
    /// server-json: URL of the bundle
    #[arg(long, value_name = "URL", requires = "bundle")]
    bundle_url: Option<String>,
    /// server-json: URL where the server is served over HTTP
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
        bail!("`{}` already exists; use --force to replace it", args.output.display());
    }
    ensure!(!args.output.is_dir(), "`{}` is a folder; name a file", args.output.display());
    let project = Project::find(&args.path)?;
    let mut scan = project.scan()?;
    crate::print_diagnostics(&scan.diagnostics);
    let Some(compiled) = scan.compiled.take() else { return Ok(ExitCode::FAILURE) };
    let folder = scan.author.as_ref().map(Author::package).transpose()?;
    let contents = project.package_contents(scan, args.with_data, compiled.contract.has_write_tools())?;
    if let Some(id_file) = &contents.new_id_file {
        let id_file = id_file.display();
        notice::info(&format!("wrote {id_file}, the id of this project's data; keep it with the manifest"));
    }
    let external = contents.sources.iter().find(|source| !args.with_data && source.location.is_relative());
    if let (PackFormat::Mcpb, Some(source)) = (args.format, external) {
        bail!(
            "a bundle cannot read files next to it, so source `{}` would be missing; add --with-data",
            source.name
        );
    }
    let server = PackagedServer::new(&compiled.contract, contents, folder, args.with_data)?;
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
    let label = format!("{} {}", server.metadata.name, server.metadata.version);
    notice::info(&format!("packed {label} into {} ({size})", args.output.display()));
    for line in server.remarks(args) {
        notice::info(&line);
    }
    Ok(ExitCode::SUCCESS)
}

/// A server that is ready to be packed.
struct PackagedServer {
    metadata: PackMetadata,
    description: String,
    tools: Vec<(String, String)>,
    manifest: String,
    lock: Option<Vec<u8>>,
    /// The data files, with their paths in the archive.
    files: Vec<PackedFile>,
    /// Code, prompts, resources, skills and apps.
    folder: Option<PackedFolder>,
    /// The paths of data files that are not included, as in the manifest.
    external_files: Vec<String>,
}

struct PackedFile {
    archive_path: String,
    path: PathBuf,
    kind: SourceKind,
}

impl PackagedServer {
    fn new(
        contract: &Contract,
        mut contents: PackageContents,
        folder: Option<PackedFolder>,
        with_data: bool,
    ) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        let mut sources = Vec::new();
        let external_files = match with_data {
            true => Vec::new(),
            false => contents.sources.iter().map(|source| source.manifest_path.clone()).collect(),
        };
        for (index, source) in contents.sources.into_iter().enumerate() {
            if !with_data {
                break;
            }
            // Data that is not a file stays where it is.
            let Some(path) = source.location.packable_file() else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The index keeps apart files with the same name.
            let archive_path = format!("data/{index}/{name}");
            sources.push((source.name, archive_path.clone()));
            files.push(PackedFile { archive_path, path: path.to_owned(), kind: source.kind });
        }
        for name in folder.iter().flat_map(|folder| &folder.variables) {
            if !contents.variables.contains(name) {
                contents.variables.push(name.clone());
            }
        }
        let first_line = |text: &str| text.lines().next().unwrap_or_default().trim().to_owned();
        let instructions = contract.instructions.as_deref().map(first_line).filter(|line| !line.is_empty());
        // Values from the environment of the person who packs must not be published.
        let values: Vec<String> =
            contents.variables.iter().filter_map(|name| std::env::var(name).ok()).collect();
        let has_value =
            |text: &str| values.iter().any(|value| !value.is_empty() && text.contains(value.as_str()));
        let instructions = instructions.filter(|text| !has_value(text));
        let description = |text: &str| if has_value(text) { String::new() } else { text.to_owned() };
        Ok(Self {
            description: instructions.unwrap_or_else(|| format!("Tools for {}.", contract.name)),
            tools: contract
                .tools
                .iter()
                .map(|tool| (tool.name.clone(), description(&tool.description)))
                .chain(folder.iter().flat_map(|folder| folder.tools.clone()))
                .collect(),
            metadata: PackMetadata {
                name: contract.name.clone(),
                version: contract.version.clone(),
                variables: contents.variables,
                sources,
                is_writable: contract.has_write_tools(),
                id: contents.id,
            },
            manifest: contents.manifest,
            lock: contents.lock,
            files,
            folder,
            external_files,
        })
    }

    /// What to tell the person who packs.
    fn remarks(&self, args: &PackArgs) -> Vec<String> {
        let mut out = Vec::new();
        if args.format != PackFormat::ServerJson && self.files.is_empty() && !self.external_files.is_empty() {
            let output = args.output.file_name().unwrap_or_default().to_string_lossy();
            let files = join_truncated(&self.external_files, 3);
            out.push(format!(
                "the data is not included: {output} reads {files}, relative to its own folder; use --with-data to \
                 include it"
            ));
        }
        if !self.metadata.variables.is_empty() {
            out.push(format!(
                "it reads these environment variables at start: {}",
                self.metadata.variables.join(", ")
            ));
        }
        if args.format == PackFormat::ServerJson && args.bundle.is_none() && args.remote_url.is_none() {
            out.push(
                "the entry names no way to get the server; add --bundle and --bundle-url, or --remote-url"
                    .to_owned(),
            );
        }
        out
    }
}

/// Writes the program, the payload and the trailer.
fn write_executable(out: &mut File, server: &PackagedServer, args: &PackArgs) -> anyhow::Result<()> {
    let path = match &args.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("cannot find the path of this program")?,
    };
    let mut program = File::open(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    if args.program.is_some() && !trailer::has_magic(&mut program)? {
        bail!("`{}` is not a build of spile that supports packing", path.display());
    }
    // Drop the payload of a program that is packed already.
    let length = match Trailer::read(&mut program)? {
        Some(trailer) => trailer.start,
        None => program.metadata()?.len(),
    };
    program.rewind()?;
    let data: u64 =
        server.files.iter().filter_map(|file| Some(std::fs::metadata(&file.path).ok()?.len())).sum();
    let bar = ProgressBar::new("packing", length + data);
    io::copy(&mut bar.count_reads((&mut program).take(length)), out)?;
    let start = out.stream_position()?;
    write_payload(out, server, &bar)?;
    let end = out.seek(SeekFrom::End(0))?;
    let digest = sha256_from(out, start)?;
    out.seek(SeekFrom::Start(end))?;
    Trailer { digest, start, length: end - start }.write(out)?;
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
    if let Some(folder) = &server.folder {
        member(metadata::LINKS, &folder.links)?;
        for (inside, path) in &folder.files {
            let bytes = std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            member(&format!("{}/{inside}", metadata::FOLDER), &bytes)?;
        }
    }
    for file in &server.files {
        let shown = file.path.display();
        let copy = tempfile::tempdir()?;
        // The newest rows of a database may be in its write-ahead log; a copy is one file.
        let path = match file.kind {
            SourceKind::Sqlite => {
                let to = copy.path().join("copy.db");
                source::sqlite::copy(&file.path, &to).with_context(|| format!("cannot copy `{shown}`"))?;
                to
            }
            _ => file.path.clone(),
        };
        let mut data = File::open(&path).with_context(|| format!("cannot read `{shown}`"))?;
        archive.start_file(
            &*file.archive_path,
            options.large_file(data.metadata()?.len() >= u64::from(u32::MAX)),
        )?;
        io::copy(&mut bar.count_reads(&mut data), &mut archive)?;
    }
    archive.finish()?;
    Ok(())
}

fn sha256_from(file: &mut File, start: u64) -> io::Result<[u8; 32]> {
    file.seek(SeekFrom::Start(start))?;
    sha256(file)
}

fn sha256(reader: &mut impl Read) -> io::Result<[u8; 32]> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            count => context.update(&buffer[..count]),
        }
    }
    Ok(context.finish().as_ref().try_into().unwrap_or_default())
}

/// The metadata of a packed executable; `None` for any other file.
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

/// Reads a small member of the archive.
fn read_member(archive: &mut ZipArchive<FileSection<'_>>, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    archive.by_name(name)?.take(metadata::BYTES_MAX * 8).read_to_end(&mut bytes)?;
    Ok(bytes)
}
