//! Why a connection could not be made, as a type: the causes that a person can do something about.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use rustls::CertificateError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The unix socket does not exist.
    SocketNotFound,
    /// No server listens at the address.
    Refused,
    NameNotResolved,
    /// The certificate's issuer is not trusted.
    UnknownIssuer,
    /// The server does not speak TLS.
    NotTls,
    Other,
}

impl ConnectFailure {
    /// Finds the cause in an error or in the errors below it.
    pub fn classify(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let found = Self::of(error);
            if found != Self::Other {
                return found;
            }
            // The source of an I/O error is that of the error inside it, so the inner one has to be visited first.
            next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        Self::Other
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        if error.is::<NameResolutionError>() {
            return Self::NameNotResolved;
        }
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return match error {
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => Self::UnknownIssuer,
                rustls::Error::InvalidMessage(_) => Self::NotTls,
                _ => Self::Other,
            };
        }
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(ErrorKind::NotFound) => Self::SocketNotFound,
            Some(ErrorKind::ConnectionRefused) => Self::Refused,
            Some(_) | None => Self::Other,
        }
    }
}

/// The operating system reports a failed lookup as an I/O error of no particular kind.
#[derive(Debug)]
pub(crate) struct NameResolutionError(pub(crate) io::Error);

impl fmt::Display for NameResolutionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Error for NameResolutionError {}

#[cfg(test)]
mod tests {
    use super::{ConnectFailure, NameResolutionError};
    use std::io;

    #[test]
    fn the_cause_is_found_at_any_depth() {
        let tls = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let issuer = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let message = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        for (error, expected) in [
            (io::Error::from(io::ErrorKind::ConnectionRefused), ConnectFailure::Refused),
            (io::Error::from(io::ErrorKind::NotFound), ConnectFailure::SocketNotFound),
            (io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused)), ConnectFailure::Refused),
            (
                io::Error::other(NameResolutionError(io::Error::other("no such host"))),
                ConnectFailure::NameNotResolved,
            ),
            (tls(issuer), ConnectFailure::UnknownIssuer),
            (tls(message), ConnectFailure::NotTls),
            (tls(expired), ConnectFailure::Other),
            (io::Error::other("connection refused, no such file, dns"), ConnectFailure::Other),
        ] {
            assert_eq!(ConnectFailure::classify(&error), expected, "{error}");
        }
    }
}
