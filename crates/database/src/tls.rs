//! TLS to a database: certificates of the system, or of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;

/// A configuration that verifies certificates and names.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = match ca_file {
        Some(file) => builder.with_root_certificates(read_roots(file)?).with_no_client_auth(),
        None => {
            let verifier = Verifier::new(provider).map_err(|error| error.to_string())?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

/// The certificates of the system's authorities, for a driver that verifies certificates itself. Those that nobody can read are left
/// out: systems have some.
pub(crate) fn system_roots() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let usable: Vec<_> = found.certs.into_iter().filter(|one| roots.add(one.clone()).is_ok()).collect();
    if usable.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let errors = errors.join(", ");
        return Err(format!("the system has no certificates of authorities; set `ca_file`: {errors}"));
    }
    Ok(usable)
}

fn read_roots(file: &Path) -> Result<RootCertStore, String> {
    let shown = file.display();
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("cannot read the certificates in `{shown}`: {error}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| format!("cannot use a certificate in `{shown}`: {error}"))?;
    }
    if roots.is_empty() {
        return Err(format!("`{shown}` has no certificate"));
    }
    Ok(roots)
}
