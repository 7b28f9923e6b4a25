//! `--tls-cert` and `--tls-key`: what a person reads when they are right, and when they are not.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

use crate::harness::{HttpServer, TestProject};

/// A certificate that holds from one year to the other, and its key.
fn certificate_pair(from: i32, until: i32) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

/// A folder with data, a good pair, and every kind of bad file.
fn project() -> TestProject {
    let (cert, key) = certificate_pair(2020, 4000);
    let (expired, expired_key) = certificate_pair(2020, 2021);
    let (early, early_key) = certificate_pair(3000, 4000);
    let (_, other_key) = certificate_pair(2020, 4000);
    let sealed = |label: &str, first: &str| {
        format!(
            "-----BEGIN {label}-----\n{first}MIIBvTBXBgkqhkiG9w0BBQ0wSjApBgkqhkiG\n-----END {label}-----\n"
        )
    };
    let place = TestProject::new(&[("people.csv", b"id,name\n1,Ada\n2,Bea\n")]);
    for (name, text) in [
        ("cert.pem", &cert),
        ("key.pem", &key),
        ("both.pem", &format!("{key}{cert}")),
        ("open.pem", &key),
        ("expired.pem", &expired),
        ("expired-key.pem", &expired_key),
        ("early.pem", &early),
        ("early-key.pem", &early_key),
        ("other-key.pem", &other_key),
        ("empty.pem", &String::new()),
        ("text.pem", &"not what you are looking for\n".to_owned()),
        ("half.pem", &cert[..200].to_owned()),
        ("half-key.pem", &key[..60].to_owned()),
        ("damaged.pem", &cert.replace("MII", "!!!")),
        ("nonsense.pem", &sealed("CERTIFICATE", "")),
        ("nonsense-key.pem", &sealed("PRIVATE KEY", "")),
        ("encrypted.pem", &sealed("ENCRYPTED PRIVATE KEY", "")),
        (
            "encrypted-old.pem",
            &sealed("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n"),
        ),
        ("public.pem", &sealed("PUBLIC KEY", "")),
    ] {
        place.write(name, text.as_bytes());
        let mode = if name == "open.pem" { 0o644 } else { 0o600 };
        let path = place.folder.join(name);
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }
    place.write("cert.der", &[0x30, 0x82, 1, 2, 3]);
    place.write("folder/file", b"");
    place
}

/// Serves, stops, and snapshots stderr.
#[test]
fn the_banner_over_https() {
    let place = project();
    for (name, cert, key) in [
        ("tls", "cert.pem", "key.pem"),
        ("tls_in_one_file", "both.pem", "both.pem"),
        ("tls_key_is_open_to_all", "cert.pem", "open.pem"),
        ("tls_expired", "expired.pem", "expired-key.pem"),
        ("tls_not_yet_valid", "early.pem", "early-key.pem"),
    ] {
        let args = ["serve", "people.csv", "--bind", "0", "--tls-cert", cert, "--tls-key", key];
        let served = HttpServer::start(&mut place.spile(&args));
        let port = format!(":{}", served.address.port());
        let (stdout, stderr, code) = served.stop();
        assert_eq!((code, &*stdout), (Some(0), ""), "{name}: stdout stays empty");
        insta::assert_snapshot!(name, place.normalize(stderr.replace(&port, ":PORT").as_bytes()));
    }
    let by_environment = [("SPILE_TLS_CERT", "cert.pem"), ("SPILE_TLS_KEY", "key.pem")];
    let mut command = place.spile(&["serve", "people.csv", "--bind", "0"]);
    let (_, stderr, code) = HttpServer::start(command.envs(by_environment)).stop();
    assert_eq!((code, stderr.contains("https://127.0.0.1:")), (Some(0), true), "{stderr}");
}

/// Refuses to start; all messages are in one snapshot, to be compared.
#[test]
fn unusable_certificate_and_key_files() {
    let place = project();
    let mut all = Vec::new();
    for (cert, key) in [
        ("gone.pem", "key.pem"),
        ("cert.pem", "gone.pem"),
        ("folder", "key.pem"),
        ("empty.pem", "key.pem"),
        ("cert.pem", "empty.pem"),
        ("text.pem", "key.pem"),
        ("cert.pem", "text.pem"),
        ("cert.der", "key.pem"),
        ("cert.pem", "cert.der"),
        ("key.pem", "cert.pem"),
        ("cert.pem", "cert.pem"),
        ("half.pem", "key.pem"),
        ("cert.pem", "half-key.pem"),
        ("damaged.pem", "key.pem"),
        ("nonsense.pem", "key.pem"),
        ("cert.pem", "nonsense-key.pem"),
        ("cert.pem", "public.pem"),
        ("cert.pem", "encrypted.pem"),
        ("cert.pem", "encrypted-old.pem"),
        ("cert.pem", "other-key.pem"),
    ] {
        let output = place.run(&["serve", "people.csv", "--http", "--tls-cert", cert, "--tls-key", key]);
        assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output}");
        all.push(output.to_string());
    }
    insta::assert_snapshot!("tls_bad_files", all.join("\n\n"));
}

#[test]
fn tls_options_that_do_not_go_together() {
    let place = project();
    let mut all = Vec::new();
    for (args, env) in [
        (&["--bind", "0", "--tls-cert", "cert.pem"][..], &[][..]),
        (&["--bind", "0", "--tls-key", "key.pem"], &[]),
        (&["--bind", "0"], &[("SPILE_TLS_CERT", "cert.pem")]),
        (&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], &[]),
        (&["--bind", "0.0.0.0:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"], &[]),
    ] {
        let args = [&["serve", "people.csv"], args].concat();
        let output = place.run_with(&args, env);
        assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output}");
        all.push(output.to_string());
    }
    insta::assert_snapshot!("tls_options", all.join("\n\n"));
}

/// As `openssl req -x509` makes one: its own authority, for this name.
fn self_signed(name: &str, until: i32) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

#[test]
fn a_client_trusts_a_given_certificate_and_explains_others() {
    let place = TestProject::new(&[("people.csv", b"id,name\n1,Ada\n")]);
    for (name, (cert, key)) in [
        ("good", self_signed("localhost", 4000)),
        ("old", self_signed("localhost", 2021)),
        ("elsewhere", self_signed("example.com", 4000)),
        ("other", self_signed("localhost", 4000)),
    ] {
        for (end, text) in [("", cert), ("-key", key)] {
            place.write(&format!("{name}{end}.pem"), text.as_bytes());
            let path = place.folder.join(format!("{name}{end}.pem"));
            std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
        }
    }
    for (server, trusted, code, reply) in [
        ("good", "good", 0, ""),
        ("good", "other", 3, "the server's certificate "),
        ("good", "people", 3, "the server's certificate "),
        ("old", "old", 3, "the server's certificate has expired"),
        ("elsewhere", "elsewhere", 3, "the server's certificate is not valid for `localhost`"),
    ] {
        let (cert, key) = (format!("{server}.pem"), format!("{server}-key.pem"));
        let args = ["serve", "people.csv", "--bind", "0", "--tls-cert", &cert, "--tls-key", &key];
        let served = HttpServer::start(&mut place.spile(&args));
        for scheme in ["https", "wss"] {
            let url = format!("{scheme}://localhost:{}/mcp", served.address.port());
            let ca = format!("{trusted}.pem");
            let args = ["ping", "--url", &url, "--cacert", &ca];
            let output = place.run(if trusted == "people" { &args[..3] } else { &args[..] });
            assert_eq!(output.code, Some(code), "{output}");
            assert!(output.stderr.contains(reply), "{output}");
            for dump in ["{", "UnknownIssuer", "CaUsed", "NotValid"] {
                assert!(!output.stderr.contains(dump), "{output}");
            }
        }
        served.stop();
    }
}
