//! Running as a packed server.
//!
//! Sources read files, so the payload is extracted once, into a folder that is private to this user and named after
//! the digest of the payload. Data that tools write to is copied to a folder of its own, which outlives the program and
//! is never overwritten by packed data.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{CommandFactory, FromArgMatches, Parser};
use contract::diagnostic::Diagnostic;
use contract::source::SourceLocation;
use script::ModuleLinks;
use spile_core::text::hex;
use zip::ZipArchive;

use super::metadata::{self, PackMetadata};
use super::trailer::{FileSection, Trailer};
use super::{read_member, read_metadata, sha256};
use crate::atomic_file::{self, FileMode};
use crate::author_folder::AuthorFolder;
use crate::project::Project;
use crate::serve::{ServeArgs, Service, serve, start_logging};

/// The options of a packed server. Without a bind address or a socket, it serves on stdin and stdout.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
    /// Folder for the data (or SPILE_DATA)
    #[arg(long, value_name = "FOLDER", env = "SPILE_DATA")]
    data: Option<PathBuf>,
}

/// Serves the payload of this program; `None` if it has no payload.
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
    let packed = {
        let mut archive = ZipArchive::new(FileSection::new(file, trailer)?)?;
        read_metadata(&mut archive)?
    };
    let args = parse_args(own, &packed);
    start_logging(&args.serve);
    let extracted = extract(file, trailer, &packed)?;
    let (project, existing_data) = packed_project(own, &packed, &extracted, args.data.as_deref())?;
    let (service, mut diagnostics) = Service::from_packed(
        &project.with_source_failures(args.serve.source_failures()),
        &args.serve.state()?,
    )?;
    if let (Some(existing_data), None) = (&existing_data, &service) {
        let message = format!(
            "the server uses the existing data in `{}`, not the packed data",
            existing_data.display()
        );
        let help = "choose another folder with --data, or move that one away";
        diagnostics.push(Diagnostic::note(message).help(help));
    }
    let Some(service) = service else {
        crate::print_diagnostics(&diagnostics);
        return Ok(ExitCode::FAILURE);
    };
    if let Some(existing_data) = existing_data {
        crate::notice::info(&format!("using the existing data in {}", existing_data.display()));
    }
    if !packed.sources.is_empty() && !packed.is_writable && service.version != packed.version {
        bail!(
            "the packed data does not match {} {}; download or copy the file again",
            packed.name,
            packed.version
        );
    }
    serve(vec![service], &diagnostics, &args.serve)?;
    Ok(ExitCode::SUCCESS)
}

/// Parses the arguments; help and version use the current name of the executable.
fn parse_args(own: &Path, packed: &PackMetadata) -> Cli {
    let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let description = format!("{}, an MCP server", packed.name);
    let version = format!("{} (packed with spile {})", packed.version, env!("CARGO_PKG_VERSION"));
    let command = Cli::command().name(name).about(description).version(version);
    let found = command.get_matches();
    Cli::from_arg_matches(&found).unwrap_or_else(|error| error.exit())
}

/// Extracts the payload, unless that was done before.
fn extract(file: &mut File, trailer: Trailer, packed: &PackMetadata) -> anyhow::Result<PathBuf> {
    let root = extract_root()?;
    let name = format!("{}-{}", safe_name(&packed.name), &hex(&trailer.digest)[..32]);
    let folder = root.join(&name);
    if is_private_dir(&folder) {
        close_to_others(&folder)?;
        return Ok(folder);
    }
    ensure!(
        sha256(&mut FileSection::new(file, trailer)?)? == trailer.digest,
        "this file is damaged; download or copy it again"
    );
    let temporary = private_tempdir_builder().prefix(".extracting-").tempdir_in(&root)?;
    let mut archive = ZipArchive::new(FileSection::new(file, trailer)?)?;
    atomic_file::write(
        &temporary.path().join(metadata::MANIFEST),
        &read_member(&mut archive, metadata::MANIFEST)?,
        FileMode::Umask,
    )?;
    if archive.index_for_name(metadata::LOCK).is_some() {
        atomic_file::write(
            &temporary.path().join(metadata::LOCK),
            &read_member(&mut archive, metadata::LOCK)?,
            FileMode::Umask,
        )?;
    }
    if archive.index_for_name(metadata::LINKS).is_some() {
        let mut links = Vec::new();
        archive.by_name(metadata::LINKS)?.read_to_end(&mut links)?;
        std::fs::write(temporary.path().join(metadata::LINKS), links)?;
    }
    let prefix = format!("{}/", metadata::FOLDER);
    let names: Vec<String> =
        archive.file_names().map(|name| name.map(|name| name.into_owned())).collect::<Result<_, _>>()?;
    let in_folder: Vec<String> = names.into_iter().filter(|name| name.starts_with(&prefix)).collect();
    let of_sources = packed.sources.iter().map(|(_, archive_path)| archive_path);
    for archive_path in of_sources.chain(&in_folder) {
        let to = temporary.path().join(archive_relative_path(archive_path)?);
        std::fs::create_dir_all(to.parent().unwrap_or(temporary.path()))?;
        io::copy(&mut archive.by_name(archive_path)?, &mut File::create(&to)?)?;
    }
    let kept = temporary.keep();
    match std::fs::rename(&kept, &folder) {
        Ok(()) => Ok(folder),
        // Another process extracted the same payload at the same time.
        Err(_) if is_private_dir(&folder) => {
            let _ = std::fs::remove_dir_all(&kept);
            Ok(folder)
        }
        // The name is taken by something else: this run uses a folder of its own.
        Err(_) => Ok(kept),
    }
}

/// The folder for extracted payloads: the cache of the user, or a private folder below the temporary one.
fn extract_root() -> anyhow::Result<PathBuf> {
    let cache = env_dir("XDG_CACHE_HOME").or_else(|| home_dir().map(|home| home.join(".cache")));
    if let Some(cache) = cache {
        let root = cache.join("spile").join("packed");
        if create_private_dir(&root).is_ok() && is_private_dir(&root) {
            return Ok(root);
        }
    }
    #[cfg(unix)]
    let name = format!("spile-packed-{}", rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    let name = "spile-packed".to_owned();
    let root = std::env::temp_dir().join(name);
    let _ = create_private_dir(&root);
    if is_private_dir(&root) {
        return Ok(root);
    }
    // Another user has taken the name.
    let private = private_tempdir_builder().prefix("spile-packed-").tempdir().with_context(|| {
        let folder = std::env::temp_dir();
        format!("cannot extract the payload: `{}` is not writable; set TMPDIR", folder.display())
    })?;
    Ok(private.keep())
}

/// Temporary folders that only this user can enter: by default they get the umask, and the data in them is as private as
/// its owner keeps it.
fn private_tempdir_builder() -> tempfile::Builder<'static, 'static> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "permissions are set on unix only"))]
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder
}

/// Takes away what other users may do in a folder. Earlier versions created it with the umask.
#[cfg(unix)]
fn close_to_others(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::metadata(folder)?.permissions();
    if permissions.mode() & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))
}

#[cfg(not(unix))]
fn close_to_others(_: &Path) -> io::Result<()> {
    Ok(())
}

fn create_private_dir(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Whether it is a folder of this user that no other user can write to.
fn is_private_dir(folder: &Path) -> bool {
    let Ok(found) = std::fs::symlink_metadata(folder) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o022 == 0
    }
    #[cfg(not(unix))]
    found.is_dir()
}

/// The project to serve, and the data folder if it existed before.
fn packed_project(
    own: &Path,
    packed: &PackMetadata,
    extracted: &Path,
    data: Option<&Path>,
) -> anyhow::Result<(Project, Option<PathBuf>)> {
    let mut existing_data = None;
    let manifest = extracted.join(metadata::MANIFEST);
    let executable_dir = own.parent().unwrap_or(Path::new("")).to_owned();
    let mut relocated = BTreeMap::new();
    if packed.is_writable && !packed.sources.is_empty() {
        let folder = match data {
            Some(folder) => folder.to_owned(),
            None => data_dir(own, packed)?,
        };
        for (name, archive_path) in &packed.sources {
            let to = folder.join(
                archive_relative_path(archive_path)?.strip_prefix("data").unwrap_or(Path::new(archive_path)),
            );
            if to.exists() {
                existing_data = Some(folder.clone());
            } else {
                let initial = std::fs::read(extracted.join(archive_relative_path(archive_path)?))?;
                create_private_dir(to.parent().unwrap_or(&folder))
                    .and_then(|()| atomic_file::create_new(&to, &initial, FileMode::Umask))
                    .with_context(|| {
                        format!(
                            "cannot create the data folder `{}`; choose another with --data",
                            folder.display()
                        )
                    })?;
            }
            relocated.insert(name.clone(), SourceLocation::File(to));
        }
    } else {
        for (name, archive_path) in &packed.sources {
            let file = extracted.join(archive_relative_path(archive_path)?);
            relocated.insert(name.clone(), SourceLocation::File(file));
        }
    }
    let folder = data.map_or(executable_dir, Path::to_owned);
    let links = match std::fs::read(extracted.join(metadata::LINKS)) {
        Ok(bytes) => {
            Some(ModuleLinks::from_json(&bytes).context("this file is damaged; download or copy it again")?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let author =
        links.map(|links| AuthorFolder::packed(extracted.join(metadata::FOLDER), links)).transpose()?;
    Ok((Project::from_packed(&packed.name, folder, manifest, relocated, author), existing_data))
}

/// The id keeps apart the data of two projects with the same name.
fn data_dir_name(packed: &PackMetadata) -> String {
    match &packed.id {
        Some(id) => format!("{}-{}", safe_name(&packed.name), safe_name(id)),
        None => safe_name(&packed.name),
    }
}

/// The default folder for data that tools write to.
fn data_dir(own: &Path, packed: &PackMetadata) -> anyhow::Result<PathBuf> {
    let share = env_dir("XDG_DATA_HOME").or_else(|| home_dir().map(|home| home.join(".local/share")));
    if let Some(share) = share {
        return Ok(share.join("spile").join(data_dir_name(packed)));
    }
    let name = own.file_name().context("the path of this program has no file name")?;
    let mut data_name = OsString::from(name);
    data_name.push("-data");
    Ok(own.with_file_name(data_name))
}

fn env_dir(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())
}

fn home_dir() -> Option<PathBuf> {
    // Not from the user database: the home folder of a service account often does not exist.
    let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    env_dir(name)
}

fn safe_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(64).collect()
}

/// A path in the archive that cannot lead out of the folder it is extracted to.
fn archive_relative_path(archive_path: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(archive_path);
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_inside, "this file is damaged; download or copy it again");
    Ok(path)
}
