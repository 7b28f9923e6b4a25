//! TLS to real servers, with an authority of their own.

use std::path::Path;

use contract::source::{Source, SourceError};
use database::Options;

use crate::kit::{KINDS, open_with, reader, rows};
use crate::tls_server::{TlsServer, other_authority};

#[test]
fn a_server_is_trusted_if_its_authority_and_its_name_are() {
    for kind in KINDS {
        let server = TlsServer::start(kind);
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own.pem"), folder.path().join("other.pem"));
        std::fs::write(&own, &server.authority).unwrap();
        std::fs::write(&other, other_authority()).unwrap();
        let open = |host: &str, ca_file: &Path| {
            open_with(
                kind,
                Options { ca_file: Some(ca_file.to_path_buf()), ..Options::new(server.url(host)) },
            )
        };
        let trusted = open("localhost", &own);
        assert_eq!(rows(&*reader(&trusted, "t")).unwrap().len(), 1, "{kind:?}");
        // Another authority, and a name that the certificate does not have.
        for distrusted in [open("localhost", &other), open("127.0.0.1", &own)] {
            let error = distrusted.introspect().unwrap_err();
            assert!(matches!(error, SourceError::Unavailable { .. }), "{kind:?} {error:?}");
        }
    }
}
