//! Reads a certificate chain and its key from two PEM files, with errors for people.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ring::digest::{self, SHA256};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys};

use super::CertificateFiles;
use super::validity::Validity;

/// Certificate chains are a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why the certificate or the key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFileError {
    file: PathBuf,
    reason: String,
}

impl fmt::Display for CertificateFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.file.display(), self.reason)
    }
}

impl std::error::Error for CertificateFileError {}

fn file_error(file: &Path, reason: impl Into<String>) -> CertificateFileError {
    CertificateFileError { file: file.into(), reason: reason.into() }
}

/// Identifies the content of the two files.
pub(super) type ContentDigest = [u8; 32];

/// The content of the two files.
pub(super) struct CertificateBytes {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// The mode of the key file, if every user may read it.
    world_readable_mode: Option<u32>,
}

impl CertificateBytes {
    pub(super) fn read(files: &CertificateFiles) -> Result<Self, CertificateFileError> {
        let (cert, _) = read_file(&files.cert, "certificate")?;
        let (key, mode) = read_file(&files.key, "key")?;
        Ok(Self { cert, key, world_readable_mode: Some(mode).filter(|mode| mode & 0o004 != 0) })
    }

    pub(super) fn content_digest(&self) -> ContentDigest {
        let mut context = digest::Context::new(&SHA256);
        context.update(&(self.cert.len() as u64).to_be_bytes());
        context.update(&self.cert);
        context.update(&self.key);
        let mut out = [0; 32];
        out.copy_from_slice(context.finish().as_ref());
        out
    }

    pub(super) fn warnings(&self, files: &CertificateFiles) -> Vec<String> {
        let key = files.key.display();
        let exposed = self.world_readable_mode.map(|mode| {
            format!(
                "`{key}`: every user of this machine can read the key (mode {mode:04o}); \
                 restrict it with `chmod 600 {key}`"
            )
        });
        exposed.into_iter().collect()
    }

    pub(super) fn parse(self, files: &CertificateFiles) -> Result<CertifiedKey, CertificateFileError> {
        let chain = parse_chain(&files.cert, &self.cert)?;
        let key = parse_key(&files.key, &self.key)?;
        CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let cert = files.cert.display();
                file_error(&files.key, format!("this key does not belong to the certificate in `{cert}`"))
            }
            Error::InvalidCertificate(CertificateError::BadEncoding) => {
                file_error(&files.cert, "the certificate is damaged; have it issued again")
            }
            Error::InvalidCertificate(reason) => {
                file_error(&files.cert, format!("not a usable certificate: {reason}"))
            }
            _ => file_error(&files.key, "not a usable key: damaged, or neither RSA nor ECDSA nor Ed25519"),
        })
    }
}

/// A warning if the certificate is expired or not valid yet.
pub(super) fn validity_warning(
    files: &CertificateFiles,
    pair: &CertifiedKey,
    now: SystemTime,
) -> Option<String> {
    let validity = Validity::from_der(pair.cert.first()?)?;
    let now_s = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let cert = files.cert.display();
    if now_s > validity.not_after.sort_key().0 {
        let until = validity.not_after.date;
        Some(format!("`{cert}`: the certificate expired on {until}; clients will not accept it"))
    } else if now_s < validity.not_before.sort_key().0 {
        let from = validity.not_before.date;
        Some(format!("`{cert}`: the certificate is not valid before {from}; clients will not accept it"))
    } else {
        None
    }
}

fn read_file(path: &Path, kind: &str) -> Result<(Vec<u8>, u32), CertificateFileError> {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let unreadable = |error: std::io::Error| {
        file_error(
            path,
            match error.kind() {
                NotFound => format!("{kind} file not found"),
                PermissionDenied => format!("this user has no permission to read the {kind} file"),
                _ => format!("the {kind} file cannot be read: {error}"),
            },
        )
    };
    // Check before opening: opening a named pipe would block until a writer opens it.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(file_error(path, format!("expected a {kind} file, but this is not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(file_error(path, format!("the {kind} file exceeds the limit of {FILE_BYTES_MAX} bytes")));
    }
    Ok((bytes, file_mode(&metadata)))
}

#[cfg(unix)]
fn file_mode(metadata: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o7777
}

#[cfg(not(unix))]
fn file_mode(_: &std::fs::Metadata) -> u32 {
    0
}

fn parse_chain(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(file_error(path, describe_missing(bytes, "certificate", "CERTIFICATE", "x509"))),
        Err(error) => Err(file_error(path, describe_pem_error(&error))),
    }
}

fn parse_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateFileError> {
    let contains = |text: &str| contains_bytes(bytes, text.as_bytes());
    if contains("BEGIN ENCRYPTED PRIVATE KEY") || contains("Proc-Type: 4,ENCRYPTED") {
        let name = path.display();
        let reason = format!(
            "the key is encrypted, and the server cannot ask for its passphrase; \
             decrypt it with `openssl pkey -in {name} -out NEW`"
        );
        return Err(file_error(path, reason));
    }
    match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            Err(file_error(path, describe_missing(bytes, "private key", "PRIVATE KEY", "pkey")))
        }
        Err(error) => Err(file_error(path, describe_pem_error(&error))),
    }
}

/// Explains a file without the expected PEM section.
fn describe_missing(bytes: &[u8], kind: &str, label: &str, tool: &str) -> String {
    if bytes.is_empty() {
        return "the file is empty".into();
    }
    let other = <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes).next();
    match other {
        Some(Ok((SectionKind::Certificate, _))) => {
            format!("found a certificate, expected a {kind}; are the two files swapped?")
        }
        Some(Ok((SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey, _))) => {
            format!("found a private key, expected a {kind}; are the two files swapped?")
        }
        _ if bytes[0] == 0x30 => format!(
            "found binary DER, expected PEM; convert it with `openssl {tool} -inform der -in FILE -out NEW`"
        ),
        _ => format!("no {kind} found: the file has no line `-----BEGIN {label}-----`"),
    }
}

fn describe_pem_error(error: &pem::Error) -> String {
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => "the END line is missing; was the file cut short?".into(),
        pem::Error::Base64Decode(_) => "the content between the BEGIN and END lines is not base64".into(),
        other => other.to_string(),
    };
    format!("damaged PEM: {reason}")
}

fn contains_bytes(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
