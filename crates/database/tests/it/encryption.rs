//! TLS to real servers, with an authority of their own.

use std::net::TcpListener;
use std::path::Path;

use contract::source::{Source, SourceError};
use database::Options;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use test_databases::{Kind, Server};

use crate::kit::{KINDS, open_with, reader, rows};

/// The authority, and a certificate and key for a name.
struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

fn certificates(name: &str) -> Certificates {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    Certificates { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
}

fn arguments(kind: Kind, folder: &Path, port: u16) -> String {
    let folder = folder.display();
    match kind {
        Kind::Postgres => format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on -c ssl_cert_file={folder}/cert.pem -c ssl_key_file={folder}/key.pem"
        ),
        Kind::MariaDb => format!(
            "--skip-networking=0 --bind-address=127.0.0.1 --port={port} --ssl-cert={folder}/cert.pem --ssl-key={folder}/key.pem \
             --ssl-ca={folder}/ca.pem"
        ),
    }
}

#[test]
fn a_server_is_trusted_if_its_authority_and_its_name_are() {
    for kind in KINDS {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let made = certificates("localhost");
        let files = [
            ("cert.pem", &*made.certificate),
            ("key.pem", &*made.key),
            ("ca.pem", &*made.authority),
            ("port", &port.to_string()),
        ];
        let place = Server::start_private_with(kind, &files, |folder| arguments(kind, folder, port));
        let place = place.create_database();
        place.run("CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)");
        place.run(match kind {
            Kind::Postgres => "CREATE ROLE secure LOGIN; GRANT SELECT ON t TO secure;",
            Kind::MariaDb => "CREATE USER secure@'%' REQUIRE SSL; GRANT SELECT ON *.* TO secure@'%';",
        });
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own.pem"), folder.path().join("other.pem"));
        std::fs::write(&own, &made.authority).unwrap();
        std::fs::write(&other, certificates("localhost").authority).unwrap();
        let scheme = if kind == Kind::Postgres { "postgres" } else { "mysql" };
        let open = |host: &str, ca_file: &Path| {
            let url = format!("{scheme}://secure@{host}:{port}/{}", place.name);
            open_with(kind, Options { ca_file: Some(ca_file.to_path_buf()), ..Options::new(url) })
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
