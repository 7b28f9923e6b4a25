//! TLS in front of HTTP: the certificate as it is now, and the terms of a handshake.
//!
//! The two files are read again when a connection comes, at most once a second, so that a renewed certificate
//! needs no restart. What is half-written or does not fit together changes nothing: the last good pair stays.
//! rustls speaks; bytes in and out are [`stream`](self::stream)'s.

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

/// Between two looks at the files.
const RELOAD_INTERVAL_MS: u64 = 1000;

/// What a door needs to speak TLS.
pub struct Tls {
    config: Arc<ServerConfig>,
    certificate: Arc<CurrentCertificate>,
    files: CertificateFiles,
    started_at: Instant,
    last_checked_ms: AtomicU64,
    /// What the last look saw, good or bad: it is tried, and told, once.
    last_read: Mutex<FilesState>,
}

/// Where the certificate and its key are.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(PartialEq, Eq)]
enum FilesState {
    Read(ContentDigest),
    /// They could not even be read.
    Unreadable(CertificateFileError),
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Tls {
    /// Reads the files; also says what is allowed but deserves a word.
    pub fn load(
        files: CertificateFiles,
        now: SystemTime,
    ) -> Result<(Self, Vec<String>), CertificateFileError> {
        let read = CertificateBytes::read(&files)?;
        let stamp = read.content_digest();
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
            last_read: Mutex::new(FilesState::Read(stamp)),
        };
        Ok((tls, warnings))
    }

    /// A new connection, before its first byte.
    pub(crate) fn new_connection(&self) -> Option<ServerConnection> {
        ServerConnection::new(self.config.clone())
            .inspect_err(|error| tracing::error!(%error, "a TLS connection could not be made"))
            .ok()
    }

    /// Whether it is this caller's turn to look at the files.
    fn is_reload_due(&self) -> bool {
        let now_ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked_ms = self.last_checked_ms.load(Ordering::Relaxed);
        now_ms >= looked_ms.saturating_add(RELOAD_INTERVAL_MS)
            && self
                .last_checked_ms
                .compare_exchange(looked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Looks at the files, and takes what is new and sound. Blocks as files do.
    fn reload(&self, now: SystemTime) -> ReloadResult {
        let (saw, read) = match CertificateBytes::read(&self.files) {
            Ok(read) => (FilesState::Read(read.content_digest()), Ok(read)),
            Err(bad) => (FilesState::Unreadable(bad.clone()), Err(bad)),
        };
        let mut seen = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == saw {
            return ReloadResult::Unchanged;
        }
        *seen = saw;
        match read.and_then(|read| read.parse(&self.files)) {
            Err(bad) => ReloadResult::Invalid(bad),
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
            ReloadResult::Invalid(bad) => tracing::warn!("{bad}; the certificate that is in use stays"),
            ReloadResult::Reloaded(warning) => {
                tracing::info!(cert = %self.files.cert.display(), "the certificate is a new one");
                if let Some(warning) = warning {
                    tracing::warn!("{warning}");
                }
            }
        }
    }
}

/// What a look came to.
#[derive(Debug, PartialEq, Eq)]
enum ReloadResult {
    Unchanged,
    /// Taken; perhaps with a word of warning.
    Reloaded(Option<String>),
    /// Something else than before, and no good.
    Invalid(CertificateFileError),
}

/// How long a look may hold up the one connection that does it.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Looks at the files if it is time, away from those that must not wait.
pub(crate) async fn reload_if_due(tls: &Arc<Tls>) {
    if tls.is_reload_due() {
        let tls = tls.clone();
        let look = tokio::task::spawn_blocking(move || tls.reload_and_log());
        // A file system that hangs must not hang the door: then the certificate at hand will do.
        let _ = tokio::time::timeout(RELOAD_TIMEOUT, look).await;
    }
}

/// TLS 1.2 and 1.3, HTTP/2 before HTTP/1.1. No early data: what is sent there can be sent again by others.
fn server_config(current: Arc<CurrentCertificate>) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("ring knows ciphers for both versions")
        .with_no_client_auth()
        .with_cert_resolver(current);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The pair in use. A handshake takes it as it is; a change shows in the next.
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

    /// Files are given what they hold next, and `None` takes them away; each look is followed by one that finds
    /// nothing new.
    #[test]
    fn what_is_new_and_sound_is_taken_and_all_else_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let files =
            CertificateFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let put = |path: &Path, text: Option<&str>| match text {
            Some(text) => std::fs::write(path, text).expect("a file can be written"),
            None => std::fs::remove_file(path).expect("a file can be removed"),
        };
        let [first, second, third] = [pair(), pair(), pair()];
        put(&files.cert, Some(&first.0));
        put(&files.key, Some(&first.1));
        let now = SystemTime::now();
        let (tls, warnings) = Tls::load(files.clone(), now).expect("a pair");
        assert!(warnings.len() <= 1, "at most about who can read the key: {warnings:?}");
        let in_use = || tls.certificate.0.read().expect("nobody panics").cert[0].clone();
        let mut before = in_use();
        assert_eq!(tls.reload(now), ReloadResult::Unchanged);
        for (what, cert, key, expected) in [
            ("half of a new certificate", Some(&second.0[..200]), Some(&*first.1), "cut short"),
            ("the key is not there yet", Some(&second.0), Some(&first.1), "does not belong"),
            ("all of it", Some(&second.0), Some(&second.1), ""),
            ("an empty key", Some(&second.0), Some(""), "the file is empty"),
            ("no key", Some(&second.0), None, "no such key file"),
            ("nothing", None, None, "no such certificate file"),
            ("the old pair again", Some(&second.0), Some(&second.1), ""),
            ("the other way round", Some(&third.1), Some(&third.0), "swapped"),
            ("and right again", Some(&third.0), Some(&third.1), ""),
        ] {
            for (path, text) in [(&files.cert, cert), (&files.key, key)] {
                if text.is_some() || path.exists() {
                    put(path, text);
                }
            }
            match tls.reload(now) {
                ReloadResult::Invalid(bad) if !expected.is_empty() => {
                    assert!(bad.to_string().contains(expected), "{what}: {bad}");
                    assert_eq!(in_use(), before, "{what}");
                }
                ReloadResult::Reloaded(None) if expected.is_empty() => before = in_use(),
                other => panic!("{what}: {other:?}"),
            }
            assert_eq!(tls.reload(now), ReloadResult::Unchanged, "{what}: told once");
        }
        put(&files.cert, Some(&first.0));
        put(&files.key, Some(&first.1));
        let ReloadResult::Reloaded(Some(warning)) = tls.reload(now + Duration::from_secs(1 << 40)) else {
            panic!("it has expired by then, and is taken all the same");
        };
        assert!(warning.contains("expired on 4096-01-01"), "{warning}");
    }
}
