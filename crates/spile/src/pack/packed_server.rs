//! Running as a packed server.
//!
//! What is packed is laid out as files, because that is what sources read: once, in a folder that is named by the
//! payload's digest and private to this user. Data that callers may write to lives in a folder of its own that
//! outlasts the program, and is never overwritten by what is packed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{CommandFactory, FromArgMatches, Parser};
use contract::diagnostic::Diagnostic;
use spile_core::text::hex;
use zip::ZipArchive;

use super::metadata::{self, PackMetadata};
use super::trailer::{FileSection, Trailer};
use super::{read_member, read_metadata, sha256};
use crate::atomic_file::{self, FileMode};
use crate::project::Project;
use crate::serve::{ServeArgs, Service, serve, start_logging};

/// How a packed server is started. Without a bind address or a socket: on stdin and stdout.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    /// Where its data is kept (or SPILE_DATA)
    #[arg(long, value_name = "FOLDER", env = "SPILE_DATA")]
    data: Option<PathBuf>,
}

/// Serves what is packed into this program, if something is.
pub fn run_if_packed() -> Option<anyhow::Result<ExitCode>> {
    let own = std::env::current_exe().ok()?;
    let mut file = File::open(&own).ok()?;
    match Trailer::read(&mut file) {
        Ok(None) => None,
        Ok(Some(trailer)) => Some(run(&own, &mut file, trailer)),
        Err(error) => Some(Err(error.into())),
    }
}

fn run(own: &Path, file: &mut File, trailer: Trailer) -> anyhow::Result<ExitCode> {
    let about = {
        let mut archive = ZipArchive::new(FileSection::new(file, trailer)?)?;
        read_metadata(&mut archive)?
    };
    let args = parse_args(own, &about);
    start_logging(&args.serve);
    let laid_out = extract(file, trailer, &about)?;
    let (project, kept) = packed_project(own, &about, &laid_out, args.data.as_deref())?;
    let (service, mut found) = Service::from_packed(&project)?;
    if let (Some(kept), None) = (&kept, &service) {
        let why = format!(
            "its data is in `{}`, from before; what is packed now was not laid over it",
            kept.display()
        );
        found.push(Diagnostic::note(why).help("choose another folder with --data, or move that one away"));
    }
    crate::print_diagnostics(&found);
    let Some(service) = service else { return Ok(ExitCode::FAILURE) };
    if let Some(kept) = kept {
        crate::banner::print_stderr(&format!("its data is in {}, as it was left", kept.display()));
    }
    if !about.sources.is_empty() && !about.is_writable && service.version != about.version {
        bail!("what is packed does not make {} {} any more; get the file again", about.name, about.version);
    }
    serve(vec![service], &args.serve)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments, under the name that the program has now.
fn parse_args(own: &Path, about: &PackMetadata) -> Cli {
    let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = format!("{}, an MCP server", about.name);
    let version = format!("{} (packed with spile {})", about.version, env!("CARGO_PKG_VERSION"));
    let command = Cli::command().name(name).about(words).version(version);
    let found = command.get_matches();
    Cli::from_arg_matches(&found).unwrap_or_else(|error| error.exit())
}

/// Lays the payload out, or finds it laid out already.
fn extract(file: &mut File, trailer: Trailer, about: &PackMetadata) -> anyhow::Result<PathBuf> {
    let shelf = extract_root()?;
    let name = format!("{}-{}", safe_name(&about.name), &hex(&trailer.digest)[..32]);
    let folder = shelf.join(&name);
    if is_private_dir(&folder) {
        return Ok(folder);
    }
    ensure!(
        sha256(&mut FileSection::new(file, trailer)?)? == trailer.digest,
        "this file is damaged; get it again"
    );
    let making = tempfile::Builder::new().prefix(".making-").tempdir_in(&shelf)?;
    let mut archive = ZipArchive::new(FileSection::new(file, trailer)?)?;
    atomic_file::write(
        &making.path().join(metadata::MANIFEST),
        &read_member(&mut archive, metadata::MANIFEST)?,
        FileMode::Umask,
    )?;
    if archive.index_for_name(metadata::LOCK).is_some() {
        atomic_file::write(
            &making.path().join(metadata::LOCK),
            &read_member(&mut archive, metadata::LOCK)?,
            FileMode::Umask,
        )?;
    }
    for (_, place) in &about.sources {
        let to = making.path().join(archive_relative_path(place)?);
        std::fs::create_dir_all(to.parent().unwrap_or(making.path()))?;
        io::copy(&mut archive.by_name(place)?, &mut File::create(&to)?)?;
    }
    let made = making.keep();
    match std::fs::rename(&made, &folder) {
        Ok(()) => Ok(folder),
        // Somebody else was faster, with the same.
        Err(_) if is_private_dir(&folder) => {
            let _ = std::fs::remove_dir_all(&made);
            Ok(folder)
        }
        // Something that is not ours has the name: this run has its own.
        Err(_) => Ok(made),
    }
}

/// Where packed servers are laid out: a cache if there is a home, else a private folder for temporary files.
fn extract_root() -> anyhow::Result<PathBuf> {
    let cache = env_dir("XDG_CACHE_HOME").or_else(|| home_dir().map(|home| home.join(".cache")));
    if let Some(cache) = cache {
        let shelf = cache.join("spile").join("packed");
        if create_private_dir(&shelf).is_ok() && is_private_dir(&shelf) {
            return Ok(shelf);
        }
    }
    #[cfg(unix)]
    let name = format!("spile-packed-{}", rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    let name = "spile-packed".to_owned();
    let shelf = std::env::temp_dir().join(name);
    let _ = create_private_dir(&shelf);
    if is_private_dir(&shelf) {
        return Ok(shelf);
    }
    // Somebody else has the name.
    let own = tempfile::Builder::new().prefix("spile-packed-").tempdir().with_context(|| {
        let folder = std::env::temp_dir();
        format!("there is nowhere to unpack: `{}` cannot be written to; set TMPDIR", folder.display())
    })?;
    Ok(own.keep())
}

fn create_private_dir(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Whether it is a folder that only this user can have made.
fn is_private_dir(folder: &Path) -> bool {
    let Ok(what) = std::fs::symlink_metadata(folder) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        what.is_dir() && what.uid() == rustix::process::getuid().as_raw() && what.mode() & 0o022 == 0
    }
    #[cfg(not(unix))]
    what.is_dir()
}

/// What is served, and the folder of data that was there before.
fn packed_project(
    own: &Path,
    about: &PackMetadata,
    laid_out: &Path,
    data: Option<&Path>,
) -> anyhow::Result<(Project, Option<PathBuf>)> {
    let mut kept = None;
    let manifest = laid_out.join(metadata::MANIFEST);
    let beside = own.parent().unwrap_or(Path::new("")).to_owned();
    let mut moved = BTreeMap::new();
    if about.is_writable && !about.sources.is_empty() {
        let folder = match data {
            Some(folder) => folder.to_owned(),
            None => data_dir(own, about)?,
        };
        for (name, place) in &about.sources {
            let to =
                folder.join(archive_relative_path(place)?.strip_prefix("data").unwrap_or(Path::new(place)));
            if to.exists() {
                kept = Some(folder.clone());
            } else {
                let seed = std::fs::read(laid_out.join(archive_relative_path(place)?))?;
                create_private_dir(to.parent().unwrap_or(&folder))
                    .and_then(|()| atomic_file::create_new(&to, &seed, FileMode::Umask))
                    .with_context(|| {
                        format!(
                            "its data cannot be kept in `{}`; choose a folder with --data",
                            folder.display()
                        )
                    })?;
            }
            moved.insert(name.clone(), to);
        }
    } else {
        for (name, place) in &about.sources {
            moved.insert(name.clone(), laid_out.join(archive_relative_path(place)?));
        }
    }
    let folder = data.map_or(beside, Path::to_owned);
    Ok((Project::from_packed(&about.name, folder, manifest, moved), kept))
}

/// Two servers of one name are two: they are told apart by what was made when they were first packed.
fn data_dir_name(about: &PackMetadata) -> String {
    match &about.id {
        Some(id) => format!("{}-{}", safe_name(&about.name), safe_name(id)),
        None => safe_name(&about.name),
    }
}

/// Where data that is written to lives.
fn data_dir(own: &Path, about: &PackMetadata) -> anyhow::Result<PathBuf> {
    let share = env_dir("XDG_DATA_HOME").or_else(|| home_dir().map(|home| home.join(".local/share")));
    if let Some(share) = share {
        return Ok(share.join("spile").join(data_dir_name(about)));
    }
    let name = own.file_name().context("this program has no name")?;
    let mut beside = OsString::from(name);
    beside.push("-data");
    Ok(own.with_file_name(beside))
}

fn env_dir(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())
}

fn home_dir() -> Option<PathBuf> {
    // Not what the user database says: a service account's home is often not there.
    let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    env_dir(name)
}

fn safe_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(64).collect()
}

/// A place in the archive as a path that leads nowhere else.
fn archive_relative_path(place: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(place);
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_inside, "this file is damaged; get it again");
    Ok(path)
}
