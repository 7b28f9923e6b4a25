//! Certificates for tests: made anew, signed by themselves, in files of their own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use transport::http::{CertificateFileError, CertificateFiles, Tls};

/// A certificate and its key as text, and what a client has to trust.
pub(crate) struct TestCertificate {
    pub(crate) cert: String,
    pub(crate) key: String,
    pub(crate) der: CertificateDer<'static>,
}

impl TestCertificate {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).expect("names");
        let cert = params.self_signed(&key).expect("a certificate");
        Self { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().clone() }
    }
}

/// A folder with `cert.pem` and `key.pem`.
pub(crate) struct CertificateFolder {
    folder: TempDir,
    pub(crate) certificate: TestCertificate,
}

impl CertificateFolder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let keys = Self { folder, certificate: TestCertificate::new() };
        keys.write_files(&keys.certificate.cert, &keys.certificate.key);
        keys
    }

    pub(crate) fn files(&self) -> CertificateFiles {
        CertificateFiles {
            cert: self.folder.path().join("cert.pem"),
            key: self.folder.path().join("key.pem"),
        }
    }

    pub(crate) fn write_files(&self, cert: &str, key: &str) {
        let files = self.files();
        write(&files.cert, cert);
        write(&files.key, key);
    }

    pub(crate) fn load(&self) -> Result<(Tls, Vec<String>), CertificateFileError> {
        Tls::load(self.files(), SystemTime::now())
    }

    /// A client that trusts this certificate and no other.
    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        trusting_client_config(&[&self.certificate], rustls::ALL_VERSIONS, &["http/1.1"])
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file can be written");
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
}

pub(crate) fn trusting_client_config(
    pairs: &[&TestCertificate],
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pair in pairs {
        roots.add(pair.der.clone()).expect("a certificate");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .expect("ring knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A client that resumes a TLS session is not shown a certificate.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}
