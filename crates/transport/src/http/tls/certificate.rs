//! A certificate and its key, from two PEM files, or what is wrong with them.

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
use super::validity::{Validity, format_date};

/// Chains are a few kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no pair.
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

fn file_error(file: &Path, why: impl Into<String>) -> CertificateFileError {
    CertificateFileError { file: file.into(), reason: why.into() }
}

/// Tells one content of the two files from another.
pub(super) type ContentDigest = [u8; 32];

/// The two files as they were read.
pub(super) struct CertificateBytes {
    cert: Vec<u8>,
    key: Vec<u8>,
    /// Whether everybody on this machine may read the key.
    world_readable_mode: Option<u32>,
}

impl CertificateBytes {
    pub(super) fn read(files: &CertificateFiles) -> Result<Self, CertificateFileError> {
        let (cert, _) = read_file(&files.cert, "certificate")?;
        let (key, mode) = read_file(&files.key, "key")?;
        Ok(Self { cert, key, world_readable_mode: Some(mode).filter(|mode| mode & 0o004 != 0) })
    }

    pub(super) fn content_digest(&self) -> ContentDigest {
        let mut whole = digest::Context::new(&SHA256);
        whole.update(&(self.cert.len() as u64).to_be_bytes());
        whole.update(&self.cert);
        whole.update(&self.key);
        let mut out = [0; 32];
        out.copy_from_slice(whole.finish().as_ref());
        out
    }

    pub(super) fn warnings(&self, files: &CertificateFiles) -> Vec<String> {
        let key = files.key.display();
        let exposed = self.world_readable_mode.map(|mode| {
            format!(
                "`{key}`: everybody on this machine can read the key (mode {mode:04o}); \
                 `chmod 600 {key}` keeps it to its owner"
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
            Error::InvalidCertificate(why) => {
                file_error(&files.cert, format!("not a usable certificate: {why:?}"))
            }
            _ => file_error(&files.key, "not a usable key: damaged, or neither RSA nor ECDSA nor Ed25519"),
        })
    }
}

/// What the dates of a pair say about it now.
pub(super) fn validity_warning(
    files: &CertificateFiles,
    pair: &CertifiedKey,
    now: SystemTime,
) -> Option<String> {
    let validity = Validity::from_der(pair.cert.first()?)?;
    let now_s = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let cert = files.cert.display();
    if now_s > validity.not_after_s {
        let until = format_date(validity.not_after_s);
        Some(format!("`{cert}`: the certificate expired on {until}; clients will not accept it"))
    } else if now_s < validity.not_before_s {
        let from = format_date(validity.not_before_s);
        Some(format!("`{cert}`: the certificate is not valid before {from}; clients will not accept it"))
    } else {
        None
    }
}

fn read_file(path: &Path, what: &str) -> Result<(Vec<u8>, u32), CertificateFileError> {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let unreadable = |error: std::io::Error| {
        file_error(
            path,
            match error.kind() {
                NotFound => format!("there is no such {what} file"),
                PermissionDenied => format!("the {what} file may not be read by this user"),
                _ => format!("the {what} file cannot be read: {error}"),
            },
        )
    };
    // Looked at before it is opened: opening a pipe would wait for somebody at its other end.
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(file_error(path, format!("expected a {what} file, and this is none")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(file_error(
            path,
            format!("too long for a {what} file: more than {FILE_BYTES_MAX} bytes"),
        ));
    }
    Ok((bytes, file_mode(&about)))
}

#[cfg(unix)]
fn file_mode(about: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(about) & 0o7777
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
    let has = |text: &str| contains_bytes(bytes, text.as_bytes());
    if has("BEGIN ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED") {
        let name = path.display();
        let why = format!(
            "the key is encrypted, and nobody is here to type its passphrase; \
             decrypt it with `openssl pkey -in {name} -out NEW`"
        );
        return Err(file_error(path, why));
    }
    match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            Err(file_error(path, describe_missing(bytes, "private key", "PRIVATE KEY", "pkey")))
        }
        Err(error) => Err(file_error(path, describe_pem_error(&error))),
    }
}

/// A PEM file that holds nothing of the kind, or no PEM file.
fn describe_missing(bytes: &[u8], what: &str, label: &str, tool: &str) -> String {
    if bytes.is_empty() {
        return "the file is empty".into();
    }
    let other = <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes).next();
    match other {
        Some(Ok((SectionKind::Certificate, _))) => {
            format!("a certificate, where a {what} is expected; are the two files swapped?")
        }
        Some(Ok((SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey, _))) => {
            format!("a private key, where a {what} is expected; are the two files swapped?")
        }
        _ if bytes[0] == 0x30 => format!(
            "binary (DER), where PEM is expected; convert it with `openssl {tool} -inform der -in FILE -out NEW`"
        ),
        _ => format!("not PEM with a {what}: there is no line `-----BEGIN {label}-----`"),
    }
}

fn describe_pem_error(error: &pem::Error) -> String {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "it has a beginning and no end; was it cut short?".into(),
        pem::Error::Base64Decode(_) => "what stands between the marks is no base64".into(),
        other => other.to_string(),
    };
    format!("damaged PEM: {why}")
}

fn contains_bytes(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
