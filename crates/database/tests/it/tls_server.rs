//! A server with TLS and an authority of its own.

use std::net::TcpListener;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use test_databases::{Kind, Server, TestDatabase};

/// A server that trusts only encrypted connections of the role `secure`, with a table `t` of one row.
pub struct TlsServer {
    pub place: TestDatabase,
    port: u16,
    /// The certificate of its authority. Its own is for `localhost`.
    pub authority: String,
}

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

/// An authority that nobody knows.
pub fn other_authority() -> String {
    certificates("localhost").authority
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

impl TlsServer {
    pub fn start(kind: Kind) -> Self {
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
        Self { place, port, authority: made.authority }
    }

    /// The URL at a name of this machine.
    pub fn url(&self, host: &str) -> String {
        let scheme = if self.place.server.kind == Kind::Postgres { "postgres" } else { "mysql" };
        format!("{scheme}://secure@{host}:{}/{}", self.port, self.place.name)
    }
}
