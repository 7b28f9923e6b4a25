//! Databases behind a URL, with the whole program.

use test_databases::{Kind, TestDatabase};

use crate::database_tls_server::{TlsServer, other_authority};
use crate::harness::{CommandOutput, HttpServer, TestProject};

const PASSWORD: &str = "hunter2";

/// What a command said, without its command line.
fn said(output: &CommandOutput) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

fn shop(kind: Kind) -> (TestDatabase, String) {
    let place = TestDatabase::new(kind);
    place.run(
        "CREATE TABLE customers (id integer PRIMARY KEY, email varchar(80) NOT NULL UNIQUE, country char(2));
         CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer NOT NULL, total decimal(12, 2) NOT NULL,
           FOREIGN KEY (customer_id) REFERENCES customers (id));
         INSERT INTO customers VALUES (1, 'ann@example.com', 'DE'), (2, 'bob@example.com', 'FR');
         INSERT INTO orders VALUES (10, 1, 12.50), (11, 1, 0.10), (12, 2, 99999999.99);",
    );
    let role = format!("shop_{}", place.name);
    place.run(&match kind {
        Kind::Postgres => {
            format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT, UPDATE ON customers, orders TO {role};")
        }
        Kind::MariaDb => format!(
            "CREATE USER {role}@localhost IDENTIFIED BY '{PASSWORD}'; GRANT SELECT, UPDATE, CREATE ON {}.* TO {role}@localhost;",
            place.name
        ),
    });
    let url = place.url_as(&role).replace(&format!("{role}@"), &format!("{role}:{PASSWORD}@"));
    (place, url)
}

#[test]
fn a_url_is_served_without_a_manifest_and_its_password_is_never_shown() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let (_place, url) = shop(kind);
        let project = TestProject::new(&[]);
        let calls: [(&[&str], &str); 6] = [
            (&["check", &url], "orders: 3 rows, 3 columns, key id, links customer"),
            (&["tools", "--from", &url], "aggregate_orders"),
            (&["call", "get_customers", "id=2", "--from", &url], "bob@example.com"),
            (&["call", "list_orders", "customer.country=DE", "--from", &url], "12.50"),
            (
                &["call", "aggregate_orders", "--args", r#"{"measures": ["sum_total"]}"#, "--from", &url],
                "100000012.59",
            ),
            (&["init", &url], "wrote"),
        ];
        for (args, expected) in calls {
            let output = said(&project.run(args));
            assert!(output.to_lowercase().contains(&expected.to_lowercase()), "{kind:?} {args:?}\n{output}");
            assert!(!output.contains(PASSWORD), "{kind:?} {args:?}\n{output}");
        }
        for (file, bytes) in project.files() {
            assert!(
                !String::from_utf8_lossy(&bytes).contains(PASSWORD),
                "{kind:?}: {} has the password",
                file.display()
            );
        }
    }
}

#[test]
fn a_manifest_takes_the_password_from_a_variable_or_a_file_and_allows_writes() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let (_place, url) = shop(kind);
        let without = url.replace(&format!(":{PASSWORD}@"), "@");
        for password in ["password = \"${SHOP_PASSWORD}\"", "password_file = \"secret\""] {
            let manifest = format!(
                "[sources.shop]\nurl = \"{without}\"\n{password}\n\n[collections.customers]\noperations = [\"get\", \"update\"]\n"
            );
            let project = TestProject::new(&[("spile.toml", manifest.as_bytes()), ("secret", b"hunter2\n")]);
            let args = ["call", "update_customers", "id=1", "country=US", "--yes", "--from", "."];
            let output = said(&project.run_with(&args, &[("SHOP_PASSWORD", PASSWORD)]));
            assert!(output.contains("US"), "{kind:?} {password}\n{output}");
            assert!(!output.contains(PASSWORD), "{kind:?} {password}\n{output}");
            let get = project
                .run_with(&["call", "get_customers", "id=1", "--from", "."], &[("SHOP_PASSWORD", PASSWORD)]);
            assert!(get.to_string().contains("US"), "{kind:?}\n{get}");
        }
    }
}

#[test]
fn a_database_that_cannot_be_reached_is_an_error_that_says_so() {
    let project = TestProject::new(&[]);
    for url in ["postgres://eve:hunter2@127.0.0.1:1/shop", "mysql://eve:hunter2@127.0.0.1:1/shop"] {
        let output = said(&project.run(&["check", url]));
        assert!(output.contains("the database cannot be reached now"), "{output}");
        assert!(!output.contains(PASSWORD), "{output}");
    }
}

#[test]
fn tools_run_statements_of_the_manifest() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = TestDatabase::new(kind);
        place.run(
            "CREATE TABLE orders (id integer PRIMARY KEY, city varchar(20), total decimal(12, 2) NOT NULL);
             INSERT INTO orders VALUES (1, 'Bonn', 1.10), (2, 'Bonn', 2.20), (3, 'Ulm', 5)",
        );
        let manifest = format!(
            r#"
[sources.shop]
url = "{}"

[collections.orders]

[tools.totals]
source = "shop"
sql = "SELECT city, sum(total) AS total FROM orders WHERE total >= :least GROUP BY city ORDER BY city"
arguments.least = {{ type = "decimal" }}

[tools.raise]
source = "shop"
sql = "UPDATE orders SET total = total + :by WHERE city = :city"
writes = true
changes_max = 2
arguments.by = {{ type = "decimal" }}
arguments.city = {{ type = "string" }}
"#,
            place.url()
        );
        let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
        let calls: [(&[&str], &str); 6] = [
            (&["check"], "totals"),
            (&["call", "totals", "least=0.5", "--from", "."], "3.30"),
            (&["call", "totals", "least=x' OR 1=1 --", "--from", "."], "least"),
            (&["call", "raise", "by=1", "city=Ulm", "--yes", "--from", "."], "1"),
            (&["call", "totals", "least=3", "--from", "."], "6.00"),
            (&["call", "raise", "by=1", "city=%' OR '1'='1", "--yes", "--from", "."], "0"),
        ];
        for (args, expected) in calls {
            let output = said(&project.run(args));
            assert!(output.contains(expected), "{kind:?} {args:?}\n{output}");
        }
        let broken = manifest.replace("sum(total)", "sum(totl)");
        let project = TestProject::new(&[("spile.toml", broken.as_bytes())]);
        let output = said(&project.run(&["check"]));
        assert!(output.contains("the database rejects the statement") && output.contains("totl"), "{output}");
    }
}

#[test]
fn keys_of_a_role_that_may_create_nothing_are_remembered_by_this_user() {
    let place = TestDatabase::new(Kind::Postgres);
    let role = format!("writer_{}", place.name);
    place.run(&format!(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE TABLE notes (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL);
         CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT ON notes TO {role};"
    ));
    let manifest = format!(
        "[sources.s]\nurl = \"{}\"\n[collections.notes]\noperations = [\"get\", \"list\", \"create\"]\n",
        place.url_as(&role)
    );
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
    // Each is a process of its own.
    for _ in 0..3 {
        let args = ["call", "create_notes", "note=once", "idempotency_key=k1", "--yes", "--from", "."];
        let output = said(&project.run(&args));
        assert!(output.contains("once"), "{output}");
    }
    let listed = said(&project.run(&["call", "list_notes", "--from", "."]));
    assert_eq!(listed.matches("once").count(), 1, "{listed}");
}

#[test]
fn a_role_with_more_rights_than_it_is_needed_for_is_a_warning_that_serving_prints_too() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let (place, url) = shop(kind);
        let without = url.replace(&format!(":{PASSWORD}@"), "@");
        let writes = "\n[collections.customers]\noperations = [\"get\", \"update\"]\n";
        let manifest =
            |more: &str| format!("[sources.shop]\nurl = \"{without}\"\npassword = \"{PASSWORD}\"\n{more}");
        let superuser = format!("[sources.shop]\nurl = \"{}\"\n{writes}", place.url());
        let reads = "\n[collections.customers]\n";
        let only = format!("require_readonly_role = true\n{reads}");
        for (manifest, expected) in [
            (manifest(reads), Some("can do more than it is needed for: it may write to")),
            // It may do what is served.
            (manifest(writes), None),
            (
                superuser,
                Some(if kind == Kind::Postgres {
                    "it is a superuser"
                } else {
                    "it has rights on the whole server"
                }),
            ),
        ] {
            let project = TestProject::new(&[("spile.toml", manifest.as_bytes())]);
            let checked = said(&project.run(&["check"]));
            let mut server = HttpServer::start(&mut project.spile(&["serve", ".", "--bind", "0"]));
            let status = server.get("/status").1;
            server.wait_for("://");
            let (_, stderr, _) = server.stop();
            for output in [&checked, &stderr] {
                let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
                assert_eq!(
                    words.contains(expected.unwrap_or("more than it is needed for")),
                    expected.is_some(),
                    "{kind:?} {manifest}\n{output}"
                );
                assert!(!output.contains(PASSWORD), "{kind:?}\n{output}");
            }
            assert!(!status.contains(PASSWORD), "{kind:?}\n{status}");
            project.run(&["compile"]);
            let lock = std::fs::read_to_string(project.folder.join("spile.lock")).expect("a lock file");
            assert!(lock.contains("customers") && !lock.contains(PASSWORD), "{kind:?}\n{lock}");
        }
        let project = TestProject::new(&[("spile.toml", manifest(&only).as_bytes())]);
        let refused = said(&project.run(&["check"]));
        assert!(refused.contains("must only be able to read"), "{kind:?}\n{refused}");
    }
}

#[test]
fn the_keyring_of_the_desktop_has_the_password() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_place, url) = shop(Kind::MariaDb);
    let without = url.replace(&format!(":{PASSWORD}@"), "@");
    let manifest = format!(
        "[sources.shop]\nurl = \"{without}\"\npassword_keyring = \"NAME\"\n[collections.customers]\n"
    );
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = \"lookup application spile name shop\" ] && printf '%s' '{PASSWORD}'\n"
    );
    for (name, bus, expected) in [
        ("shop", "unix:path=/x", "ann@example.com"),
        ("other", "unix:path=/x", "the keyring has no password `other`: run `secret-tool store"),
        ("shop", "", "there is no keyring for the password `shop`"),
    ] {
        let project = TestProject::new(&[
            ("spile.toml", manifest.replace("NAME", name).as_bytes()),
            ("bin/secret-tool", script.as_bytes()),
        ]);
        let program = project.folder.join("bin/secret-tool");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let path = format!("{}:/usr/bin:/bin", project.folder.join("bin").display());
        let environment = [("PATH", path.as_str()), ("DBUS_SESSION_BUS_ADDRESS", bus)];
        let output = said(&project.run_with(&["call", "get_customers", "id=1", "--from", "."], &environment));
        assert!(output.contains(expected), "{name} {bus}\n{output}");
        assert!(!output.contains(PASSWORD), "{output}");
    }
    let both = format!(
        "{}\npassword = \"x\"\n[collections.customers]\n",
        manifest.split("\n[coll").next().unwrap_or_default()
    );
    let project = TestProject::new(&[("spile.toml", both.as_bytes())]);
    let refused = said(&project.run(&["check"]));
    assert!(refused.contains("`password` and `password_keyring` exclude each other"), "{refused}");
}

#[test]
fn the_authorities_of_the_system_are_those_that_are_trusted() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let server = TlsServer::start(kind);
        let mode = if kind == Kind::Postgres { "sslmode=require" } else { "ssl-mode=required" };
        let url = format!("{}?{mode}", server.url("localhost"));
        let project = TestProject::new(&[
            ("own.pem", server.authority.as_bytes()),
            ("other.pem", other_authority().as_bytes()),
        ]);
        for (file, is_trusted) in [("own.pem", true), ("other.pem", false)] {
            let path = project.folder.join(file);
            let system =
                [("SSL_CERT_FILE", path.to_str().expect("a path")), ("SSL_CERT_DIR", "/nonexistent")];
            let output = project.run_with(&["call", "list_t", "--from", &url], &system);
            let shown = output.to_string();
            assert_eq!(
                (output.code == Some(0), shown.contains("total")),
                (is_trusted, is_trusted),
                "{kind:?} {file}\n{shown}"
            );
        }
    }
}
