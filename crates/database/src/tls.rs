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
