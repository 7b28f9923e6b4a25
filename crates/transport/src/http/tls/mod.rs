//! TLS for HTTP: the current certificate and the handshake configuration.
//!
//! A new connection reads the two files again, at most once a second, so that a renewed certificate needs no
//! restart. If the files are incomplete or do not match, the last good pair stays in use. [`stream`](self::stream)
//! moves the bytes between the socket and rustls.

mod certificate;
pub(crate) mod stream;
mod validity;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::ring::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};

pub use certificate::CertificateFileError;
use certificate::{CertificateBytes, ContentDigest};

/// Minimum time between two reads of the files.
const RELOAD_INTERVAL_MS: u64 = 1000;

/// The TLS configuration of a service.
pub struct Tls {
    config: Arc<ServerConfig>,
    certificate: Arc<CurrentCertificate>,
    files: CertificateFiles,
    started_at: Instant,
    last_checked_ms: AtomicU64,
    /// The last content that was read, good or bad: each is tried and logged once.
    last_read: Mutex<FilesState>,
}

/// The paths of the certificate and its key.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(PartialEq, Eq)]
enum FilesState {
    Read(ContentDigest),
    /// The files cannot be read.
    Unreadable(CertificateFileError),
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Tls {
    /// Reads the files. Also returns warnings.
    pub fn load(
        files: CertificateFiles,
        now: SystemTime,
    ) -> Result<(Self, Vec<String>), CertificateFileError> {
        let read = CertificateBytes::read(&files)?;
        let digest = read.content_digest();
        let mut warnings = read.warnings(&files);
        let key = read.parse(&files)?;
        warnings.extend(certificate::validity_warning(&files, &key, now));
        let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(key))));
        let tls = Self {
            config: Arc::new(server_config(current.clone())),
            certificate: current,
            files,
            started_at: Instant::now(),
            last_checked_ms: AtomicU64::new(0),
            last_read: Mutex::new(FilesState::Read(digest)),
        };
        Ok((tls, warnings))
    }

    /// A new connection, before its first byte.
    pub(crate) fn new_connection(&self) -> Option<ServerConnection> {
        ServerConnection::new(self.config.clone())
            .inspect_err(|error| tracing::error!(%error, "cannot create a TLS session"))
            .ok()
    }

    /// Whether the files are due for a check. Only one caller per interval gets `true`.
    fn is_reload_due(&self) -> bool {
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last_checked_ms = self.last_checked_ms.load(Ordering::Relaxed);
        now_ms >= last_checked_ms.saturating_add(RELOAD_INTERVAL_MS)
            && self
                .last_checked_ms
                .compare_exchange(last_checked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Reads the files and uses a new, valid pair. Blocks on file I/O.
    fn reload(&self, now: SystemTime) -> ReloadResult {
        let (current, read) = match CertificateBytes::read(&self.files) {
            Ok(read) => (FilesState::Read(read.content_digest()), Ok(read)),
            Err(error) => (FilesState::Unreadable(error.clone()), Err(error)),
        };
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        if *last_read == current {
            return ReloadResult::Unchanged;
        }
        *last_read = current;
        match read.and_then(|read| read.parse(&self.files)) {
            Err(error) => ReloadResult::Invalid(error),
            Ok(key) => {
                let warning = certificate::validity_warning(&self.files, &key, now);
                *self.certificate.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                ReloadResult::Reloaded(warning)
            }
        }
    }

    fn reload_and_log(&self) {
        match self.reload(SystemTime::now()) {
            ReloadResult::Unchanged => {}
            ReloadResult::Invalid(error) => tracing::warn!("{error}; keeping the current certificate"),
            ReloadResult::Reloaded(warning) => {
                tracing::info!(cert = %self.files.cert.display(), "reloaded the certificate");
                if let Some(warning) = warning {
                    tracing::warn!("{warning}");
                }
            }
        }
    }
}

/// The result of reading the files again.
#[derive(Debug, PartialEq, Eq)]
enum ReloadResult {
    Unchanged,
    /// A new pair is in use; possibly with a warning.
    Reloaded(Option<String>),
    /// The files changed and are not valid.
    Invalid(CertificateFileError),
}

/// How long a reload may delay the connection that triggers it.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Reloads the files if it is time, on a blocking thread.
pub(crate) async fn reload_if_due(tls: &Arc<Tls>) {
    if tls.is_reload_due() {
        let tls = tls.clone();
        let task = tokio::task::spawn_blocking(move || tls.reload_and_log());
        // A hanging file system must not block connections: go on with the current certificate.
        let _ = tokio::time::timeout(RELOAD_TIMEOUT, task).await;
    }
}

/// TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. No early data, because it can be replayed.
fn server_config(current: Arc<CurrentCertificate>) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring knows ciphers for both versions")
        .with_no_client_auth()
        .with_cert_resolver(current);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The pair in use. A change applies from the next handshake on.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateParams, KeyPair};

    use super::{CertificateFiles, ReloadResult, Tls};

    /// A certificate and its key.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    /// Each case writes the two files, or removes them with `None`; every reload is followed by one that finds no
    /// change.
    #[test]
    fn reload_uses_valid_pairs_and_reports_each_invalid_one_once() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let files =
            CertificateFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let write = |path: &Path, text: Option<&str>| match text {
            Some(text) => std::fs::write(path, text).expect("a file can be written"),
            None => std::fs::remove_file(path).expect("a file can be removed"),
        };
        let [first, second, third] = [pair(), pair(), pair()];
        write(&files.cert, Some(&first.0));
        write(&files.key, Some(&first.1));
        let now = SystemTime::now();
        let (tls, warnings) = Tls::load(files.clone(), now).expect("a pair");
        assert!(warnings.len() <= 1, "at most about who can read the key: {warnings:?}");
        let in_use = || tls.certificate.0.read().expect("no thread panics with the lock").cert[0].clone();
        let mut before = in_use();
        assert_eq!(tls.reload(now), ReloadResult::Unchanged);
        for (case, cert, key, expected) in [
            ("half of a new certificate", Some(&second.0[..200]), Some(&*first.1), "cut short"),
            ("the key is not there yet", Some(&second.0), Some(&first.1), "does not belong"),
            ("all of it", Some(&second.0), Some(&second.1), ""),
            ("an empty key", Some(&second.0), Some(""), "the file is empty"),
            ("no key", Some(&second.0), None, "key file not found"),
            ("nothing", None, None, "certificate file not found"),
            ("the old pair again", Some(&second.0), Some(&second.1), ""),
            ("the other way round", Some(&third.1), Some(&third.0), "swapped"),
            ("and right again", Some(&third.0), Some(&third.1), ""),
        ] {
            for (path, text) in [(&files.cert, cert), (&files.key, key)] {
                if text.is_some() || path.exists() {
                    write(path, text);
                }
            }
            match tls.reload(now) {
                ReloadResult::Invalid(error) if !expected.is_empty() => {
                    assert!(error.to_string().contains(expected), "{case}: {error}");
                    assert_eq!(in_use(), before, "{case}");
                }
                ReloadResult::Reloaded(None) if expected.is_empty() => before = in_use(),
                other => panic!("{case}: {other:?}"),
            }
            assert_eq!(tls.reload(now), ReloadResult::Unchanged, "{case}: reported once");
        }
        write(&files.cert, Some(&first.0));
        write(&files.key, Some(&first.1));
        let ReloadResult::Reloaded(Some(warning)) = tls.reload(now + Duration::from_secs(1 << 40)) else {
            panic!("it has expired by then, and is taken all the same");
        };
        assert!(warning.contains("expired on 4096-01-01"), "{warning}");
    }
}
