//! Verifies server certificates, and explains why one is not trusted.
//!
//! The operating system's store and the CA file decide. A server certificate that is itself in the CA file needs no
//! issuer: `openssl req -x509` creates a CA certificate, which webpki does not accept as a server's own.

use std::error::Error;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

#[derive(Debug)]
pub(crate) struct CertificateVerifier {
    platform_verifier: rustls_platform_verifier::Verifier,
    extra_certificates: Vec<CertificateDer<'static>>,
}

impl CertificateVerifier {
    pub(crate) fn new(
        extra_certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, rustls::Error> {
        let inner =
            rustls_platform_verifier::Verifier::new_with_extra_roots(extra_certificates.clone(), provider)?;
        Ok(Self { platform_verifier: inner, extra_certificates })
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.platform_verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The verifier checks dates before the issuer, so an expired certificate never gets here.
            Err(error) if self.extra_certificates.contains(end_entity) && !is_expired_or_revoked(&error) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.platform_verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.platform_verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.platform_verifier.supported_verify_schemes()
    }
}

fn is_expired_or_revoked(error: &rustls::Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext, Revoked};
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } | Revoked
        )
    )
}

/// The text of an error without its causes.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return describe_tls_error(tls);
    }
    // An `io::Error` displays its inner error, but does not return it as `source`.
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(inner) => describe(inner),
        None => error.to_string(),
    }
}

fn describe_tls_error(error: &rustls::Error) -> String {
    use CertificateError as Bad;
    let rustls::Error::InvalidCertificate(bad) = error else { return error.to_string() };
    let what = match bad {
        Bad::UnknownIssuer => "has an unknown issuer".to_owned(),
        Bad::Expired | Bad::ExpiredContext { .. } => "has expired".to_owned(),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => "is not valid yet".to_owned(),
        Bad::Revoked => "was revoked".to_owned(),
        Bad::BadSignature => "has an invalid signature".to_owned(),
        Bad::BadEncoding => "cannot be read".to_owned(),
        Bad::NotValidForName => "is not valid for this name".to_owned(),
        Bad::NotValidForNameContext { expected, presented } => {
            let name = expected.to_str();
            match presented.is_empty() {
                true => format!("is not valid for `{name}`: it has no subjectAltName at all"),
                false => format!("is not valid for `{name}`, only for {}", presented.join(", ")),
            }
        }
        // webpki's error type is not public here, and its text is not helpful.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is a CA certificate, used as a server certificate".to_owned()
        }
        other => format!("is not valid: {other}"),
    };
    format!("the server's certificate {what}")
}
