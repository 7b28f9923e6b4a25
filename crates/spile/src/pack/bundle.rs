//! MCPB bundles, and `server.json` for registries.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use json::Json;
use spile_core::text::hex;
use upstream::redact::is_secret_name;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{PackArgs, PackagedServer, sha256, write_executable};
use crate::atomic_file::{self, FileMode};

/// The version of the bundle format.
const MANIFEST_VERSION: &str = "0.3";
const SERVER_SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";
/// The limit of the registry.
const DESCRIPTION_CHARS_MAX: usize = 100;

/// Writes a zip archive with the executable and a manifest that tells clients how to start it.
pub(super) fn write_mcpb(output: &Path, server: &PackagedServer, args: &PackArgs) -> anyhow::Result<()> {
    let name = bundle_name(&server.metadata.name);
    let is_windows = match &args.program {
        Some(program) => program.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("exe")),
        None => cfg!(windows),
    };
    let entry = format!("server/{name}{}", if is_windows { ".exe" } else { "" });
    let mut program = tempfile::tempfile()?;
    write_executable(&mut program, server, args)?;
    program.rewind()?;
    let manifest = mcpb_manifest(server, &name, &entry, args);
    atomic_file::write_with(output, FileMode::Umask, |file| {
        let mut archive = ZipWriter::new(file.as_file_mut());
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        archive.start_file("manifest.json", options.unix_permissions(0o644))?;
        archive.write_all(manifest.as_str().as_bytes())?;
        // A higher level takes many seconds more and saves little.
        archive.start_file(&*entry, options.unix_permissions(0o755).compression_level(Some(2)))?;
        io::copy(&mut program, &mut archive)?;
        archive.finish()?;
        Ok(())
    })
}

fn mcpb_manifest(server: &PackagedServer, name: &str, entry: &str, args: &PackArgs) -> Json {
    let metadata = &server.metadata;
    Json::object(|manifest| {
        manifest.str("manifest_version", MANIFEST_VERSION).str("name", name);
        manifest.str("display_name", &metadata.name).str("version", &to_semver(&metadata.version));
        manifest.str("description", &server.description);
        manifest.object("author", |author| {
            author.str("name", args.author.as_deref().unwrap_or(&metadata.name));
        });
        manifest.object("server", |run| {
            run.str("type", "binary").str("entry_point", entry);
            run.object("mcp_config", |config| {
                config.str("command", &format!("${{__dirname}}/{entry}")).raw("args", "[]");
                config.object("env", |env| {
                    for variable in &metadata.variables {
                        env.str(variable, &format!("${{user_config.{}}}", variable.to_ascii_lowercase()));
                    }
                });
            });
        });
        manifest.array("tools", &server.tools, |out, (name, description)| {
            let tool = Json::object(|tool| {
                tool.str("name", name).str("description", description);
            });
            out.extend_from_slice(tool.as_str().as_bytes());
        });
        if args.program.is_none() {
            manifest.object("compatibility", |compatibility| {
                let platform = match std::env::consts::OS {
                    "macos" => "darwin",
                    "windows" => "win32",
                    other => other,
                };
                compatibility.array("platforms", [platform], json::write::string);
            });
        }
        if !metadata.variables.is_empty() {
            manifest.object("user_config", |config| {
                for variable in &metadata.variables {
                    config.object(&variable.to_ascii_lowercase(), |one| {
                        one.str("type", "string").str("title", variable);
                        one.str("description", "Environment variable that the server reads.");
                        one.bool("required", true).bool("sensitive", is_secret_name(variable));
                    });
                }
            });
        }
    })
}

/// The name of a server in a registry.
pub(super) fn parse_id(text: &str) -> Result<String, String> {
    let is_part = |part: &str, extra: &[char]| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || extra.contains(&c);
        !part.is_empty() && part.chars().all(is_allowed)
    };
    let is_id = text.split_once('/').is_some_and(|(space, name)| {
        space.contains('.') && is_part(space, &['.', '-']) && is_part(name, &['.', '-', '_'])
    });
    match is_id {
        true => Ok(text.to_owned()),
        false => Err("expected NAMESPACE/NAME, such as io.github.acme/customers".to_owned()),
    }
}

/// Writes the entry of the server in a registry.
pub(super) fn write_server_json(
    output: &Path,
    server: &PackagedServer,
    args: &PackArgs,
) -> anyhow::Result<()> {
    let Some(id) = &args.id else {
        bail!("a registry entry needs a name; give --id, e.g. --id io.github.acme/customers");
    };
    let bundle = match (&args.bundle, &args.bundle_url) {
        (Some(file), Some(url)) => {
            ensure!(url.starts_with("https://"), "--bundle-url: expected an https URL");
            let mut file = File::open(file).with_context(|| format!("cannot read `{}`", file.display()))?;
            Some((url, hex(&sha256(&mut file)?)))
        }
        _ => None,
    };
    let metadata = &server.metadata;
    let mut description: String = server.description.chars().take(DESCRIPTION_CHARS_MAX).collect();
    if description.len() < server.description.len() {
        description.pop();
        description.push('…');
    }
    let json = Json::object(|json| {
        json.str("$schema", SERVER_SCHEMA).str("name", id).str("title", &metadata.name);
        json.str("description", &description).str("version", &to_semver(&metadata.version));
        if let Some((url, digest)) = &bundle {
            let package = Json::object(|package| {
                package.str("registryType", "mcpb").str("identifier", url);
                package.str("version", &to_semver(&metadata.version)).str("fileSha256", digest);
                package.object("transport", |transport| {
                    transport.str("type", "stdio");
                });
                if !metadata.variables.is_empty() {
                    package.array("environmentVariables", &metadata.variables, |out, name| {
                        let variable = Json::object(|variable| {
                            variable
                                .str("name", name)
                                .bool("isRequired", true)
                                .bool("isSecret", is_secret_name(name));
                        });
                        out.extend_from_slice(variable.as_str().as_bytes());
                    });
                }
            });
            json.raw("packages", &format!("[{}]", package.as_str()));
        }
        if let Some(url) = &args.remote_url {
            let remote = Json::object(|remote| {
                remote.str("type", "streamable-http").str("url", url);
            });
            json.raw("remotes", &format!("[{}]", remote.as_str()));
        }
    });
    atomic_file::write(output, json.as_str().as_bytes(), FileMode::Umask)
}

/// The version of a server without a lock file, `0+1a2b3c4d`, is not a semantic version; `0.0.0+1a2b3c4d` is.
fn to_semver(version: &str) -> String {
    match version.split_once('+') {
        Some(("0", build)) => format!("0.0.0+{build}"),
        _ => version.to_owned(),
    }
}

fn bundle_name(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    match plain.trim_matches('-') {
        "" => "server".to_owned(),
        plain => plain.to_owned(),
    }
}
