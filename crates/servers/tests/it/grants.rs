//! Tokens without a browser: clients that the entry describes, and a sign-in on another device.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::Json;
use outbound::Reach;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use servers::config::{ConfigScope, ConfigSource, ConfiguredServer, OAuthSettings};
use servers::decisions::{Decisions, Permission};
use servers::manager::state::Status;
use servers::manager::{CallFailure, CallerConnection, Manager, ManagerOptions, ServerCallError};
use servers::oauth::{DeviceLogin, LoginError, ServerSignIn};
use spile_core::ClientCapabilities;
use upstream::NoopClientHandler;
use wire::client::ClientCall;
use wire::method::Method;

use crate::manager::options;
use crate::oauth::{Setup, TokenHost, all_names_lead_to};

/// The guarded server with this `oauth` in the user's own file.
fn server_with(setup: &Setup, oauth: &str) -> ConfiguredServer {
    let url = setup.authority.server();
    let text = format!(r#"{{"mcpServers": {{"guarded": {{"url": "{url}", "oauth": {oauth}}}}}}}"#);
    setup.user.write("home/.config/spile/servers.json", &text);
    setup.user.load().servers.remove(0)
}

async fn token(setup: &Setup, server: &ConfiguredServer) -> Result<Option<String>, LoginError> {
    let url = setup.authority.server();
    let env = |name: &str| (name == "JOB_SECRET").then(|| "s3cret".to_owned());
    let sign_in = ServerSignIn { server, url: &url, env: &env, home: None };
    Ok(sign_in.token(None, &setup.store()).await?.map(|token| token.text().to_owned()))
}

fn write_key(setup: &Setup) {
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    let body = STANDARD.encode(der.expect("a key").as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    setup.user.write("home/.config/spile/key.pem", &pem);
}

/// What the entry says, and the grant that the authorization server saw; or the error.
#[tokio::test]
async fn an_entry_describes_a_client_that_signs_in_by_itself() {
    const JWT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
    for (oauth, expected) in [
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecret":"${JOB_SECRET}"}"#,
            Ok("client_credentials"),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecretFile":"secret"}"#,
            Ok("client_credentials"),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecretFile":"ROOT/home/.config/spile/secret"}"#,
            Ok("client_credentials"),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","privateKeyFile":"key.pem"}"#,
            Ok("client_credentials"),
        ),
        (r#"{"grant":"workload_identity","clientId":"job","assertionFile":"assertion"}"#, Ok(JWT)),
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecret":"${OTHER}"}"#,
            Err(
                "oauth.clientSecret: the environment variable `OTHER` is not set; set it, or write `${OTHER:-default}`",
            ),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecretFile":"gone"}"#,
            Err("oauth.clientSecretFile: cannot read `/home/.config/spile/gone`: file not found"),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecretFile":"empty"}"#,
            Err("oauth.clientSecretFile: `/home/.config/spile/empty` is empty"),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","privateKeyFile":"secret"}"#,
            Err("the private key is not a PEM file with `BEGIN PRIVATE KEY` (PKCS #8)"),
        ),
        (
            r#"{"grant":"client_credentials","clientId":"job","clientSecret":"wrong"}"#,
            Err("the authorization server refused: invalid_client"),
        ),
        (
            r#"{"grant":"enterprise","clientId":"job","idpTokenEndpoint":"http://idp.test/t","idTokenFile":"assertion"}"#,
            Err("the address `http://idp.test/t` is not allowed: it does not use https:"),
        ),
    ] {
        let setup = Setup::new().await;
        setup.user.write("home/.config/spile/secret", "s3cret\n");
        setup.user.write("home/.config/spile/assertion", "workload\n");
        setup.user.write("home/.config/spile/empty", "\n");
        write_key(&setup);
        let server = server_with(&setup, oauth);
        match (token(&setup, &server).await, expected) {
            (Ok(token), Ok(grant)) => {
                assert!(token.is_some());
                assert_eq!(setup.authority.log(), [grant], "{oauth}");
            }
            (Err(error), Err(expected)) => {
                assert_eq!(setup.user.normalize(&error.to_string()), expected, "{oauth}");
            }
            (found, expected) => panic!("{oauth}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn entries_with_grants_that_cannot_be_used() {
    use servers::config::{Dialect, Section};
    for (oauth, expected) in [
        (
            r#"{"grant":"password"}"#,
            "unknown grant `password`; supported: client_credentials, workload_identity, enterprise",
        ),
        (
            r#"{"grant":"client_credentials","clientId":"a"}"#,
            "the grant `client_credentials` needs `clientSecret`, `clientSecretFile` or `privateKeyFile`",
        ),
        (
            r#"{"grant":"client_credentials","clientSecret":"a"}"#,
            "a `grant` needs the `clientId` that is registered for it",
        ),
        (
            r#"{"grant":"workload_identity","clientId":"a"}"#,
            "the grant `workload_identity` needs `assertionFile`",
        ),
        (
            r#"{"grant":"enterprise","clientId":"a","idTokenFile":"b"}"#,
            "the grant `enterprise` needs `idpTokenEndpoint`",
        ),
        (r#"{"assertionFile":"a"}"#, r#"`assertionFile` needs "grant": "workload_identity""#),
        (r#"{"privateKeyFile":"a"}"#, "`privateKeyFile` needs a `grant`"),
        (
            r#"{"clientId":"a","clientSecret":"a","clientSecretFile":"b"}"#,
            "`clientSecret`, `clientSecretFile` and `privateKeyFile` exclude each other; keep one",
        ),
    ] {
        let text = format!(r#"{{"mcpServers":{{"s":{{"type":"http","url":"https://a","oauth":{oauth}}}}}}}"#);
        let parsed = Dialect::ClaudeCode.parse(&text, Section::Top).expect("a file").remove(0);
        assert_eq!(parsed.entry.expect_err("an error").to_string(), expected, "{oauth}");
    }
}

#[tokio::test]
async fn an_approval_covers_the_files_of_a_grant() {
    let setup = Setup::new().await;
    let entry = |file: &str| {
        let oauth = format!(r#"{{"grant":"workload_identity","clientId":"job","assertionFile":"{file}"}}"#);
        let url = setup.authority.server();
        let text =
            format!(r#"{{"mcpServers": {{"s": {{"type": "http", "url": "{url}", "oauth": {oauth}}}}}}}"#);
        setup.user.write("project/.mcp.json", &text);
        setup.user.load().servers.remove(0)
    };
    let mut decisions = Decisions::default();
    let first = entry("token");
    assert_eq!(decisions.permission(&first), Permission::NeedsApproval);
    decisions.approve(&first);
    assert_eq!(decisions.permission(&first), Permission::Allowed);
    assert_eq!(decisions.permission(&entry("../.ssh/id_ed25519")), Permission::Changed);
}

#[tokio::test]
async fn the_manager_signs_in_by_itself_and_renews_the_token_before_it_expires_and_after_a_refusal() {
    let setup = Setup::new().await;
    // One second longer than the margin before the end.
    *setup.authority.expires_in_s.lock().expect("no panic") = Some(31);
    let oauth = r#"{"grant":"client_credentials","clientId":"job","clientSecret":"s3cret"}"#;
    let server = server_with(&setup, oauth);
    let url = setup.authority.server();
    let account = ServerSignIn { server: &server, url: &url, env: &|_| None, home: None }.account();
    let host = Arc::new(TokenHost { store: setup.store() });
    let manager = Manager::start([(server, Permission::Allowed)], options(), host);
    manager.wait_for("guarded", Status::Connected).await.expect("it is there");
    assert_eq!(setup.authority.log(), ["client_credentials"], "once, whoever needs it");
    setup.authority.issuing.notified().await;
    setup.pass_time(2000);
    setup.authority.issuing.notified().await;
    assert_eq!(setup.authority.log(), ["client_credentials"], "before it expires");
    let call = async || manager.call_tool("mcp__guarded__whoami", &Json::object(|_| {}), None).await;
    assert!(call().await.expect("a result").as_str().contains("you"));
    setup.authority.access_tokens.lock().expect("no panic").clear();
    let (one, other) = tokio::join!(call(), call());
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(setup.authority.log(), ["client_credentials"], "once for both");
    manager.close().await;
    let kept = setup.store().load(&account).expect("readable").expect("kept");
    assert_eq!(kept.client.client_secret, None, "the secret stays where it was");
}

/// Nobody can help by signing in while the authorization server is down.
#[tokio::test]
async fn an_authorization_server_that_is_down_for_a_moment_is_asked_again() {
    let setup = Setup::new().await;
    setup.authority.token_failures.lock().expect("no panic").extend([503, 429]);
    let oauth = r#"{"grant":"client_credentials","clientId":"job","clientSecret":"s3cret"}"#;
    let server = server_with(&setup, oauth);
    let host = Arc::new(TokenHost { store: setup.store() });
    let manager = Manager::start([(server, Permission::Allowed)], options(), host);
    manager.wait_for("guarded", Status::Connected).await.expect("it is there");
    // The server forgets the token while no other can be had.
    setup.authority.access_tokens.lock().expect("no panic").clear();
    setup.authority.token_failures.lock().expect("no panic").push(503);
    let call = async || manager.call_tool("mcp__guarded__whoami", &Json::object(|_| {}), None).await;
    let error = call().await.expect_err("no token").to_string();
    assert_eq!(
        error,
        "server `guarded` is not available: cannot get a token: the authorization server answered HTTP 503 without a token"
    );
    assert!(call().await.expect("a result").as_str().contains("you"));
    manager.close().await;
}

/// The same for the calls of a gateway's callers.
#[tokio::test]
async fn a_call_of_a_caller_needs_no_sign_in_while_the_authorization_server_is_down() {
    let setup = Setup::new().await;
    let oauth = r#"{"grant":"client_credentials","clientId":"job","clientSecret":"s3cret"}"#;
    let server = server_with(&setup, oauth);
    let host = Arc::new(TokenHost { store: setup.store() });
    let manager = Manager::start([(server, Permission::Allowed)], options(), host);
    manager.wait_for("guarded", Status::Connected).await.expect("it is there");
    setup.authority.access_tokens.lock().expect("no panic").clear();
    setup.authority.token_failures.lock().expect("no panic").push(503);
    let shared = manager.shared_connection("guarded", None).await.expect("connected");
    let own = manager.open_connection("guarded", ClientCapabilities::NONE, Arc::new(NoopClientHandler));
    let unavailable = "cannot get a token: the authorization server answered HTTP 503 without a token";
    let call = async |connection: &CallerConnection| {
        let call = ClientCall::new(Method::ToolsCall, Json::parse(r#"{"name":"whoami"}"#).expect("JSON"));
        connection.start_call(call, None).result().await
    };
    let refused = call(&shared).await.expect_err("the token is not valid");
    match shared.call_failed(refused).await {
        CallFailure::Final(error @ ServerCallError::Unavailable { .. }) => {
            assert_eq!(error.to_string(), format!("server `guarded` is not available: {unavailable}"));
        }
        failure => panic!("{failure:?}"),
    }
    assert_eq!(manager.status("guarded").expect("known").status, Status::Connected);
    // A moment later the caller's own connection gets a token, and the shared one the same.
    let own = own.await.expect("connected");
    assert!(call(&own).await.is_ok());
    let refused = call(&shared).await.expect_err("it still sends the old token");
    assert!(matches!(shared.call_failed(refused).await, CallFailure::TokenRefused(_)));
    assert!(call(&shared).await.is_ok());
    manager.close().await;
}

/// Somebody else than the user of this machine chose its address.
#[tokio::test]
async fn signing_in_to_a_registered_server_reaches_nothing_that_the_server_must_not_be_at() {
    for (host, names, reach) in [
        ("127.0.0.1", "127.0.0.1", Reach::Public),
        ("localhost", "127.0.0.1", Reach::Public),
        ("mcp.test", "127.0.0.1", Reach::Public),
        ("mcp.test", "10.0.0.1", Reach::Public),
        ("mcp.test", "169.254.169.254", Reach::NotLinkLocal),
        ("mcp.test", "100.100.100.200", Reach::NotLinkLocal),
    ] {
        let mut setup = Setup::new().await;
        setup.names = all_names_lead_to(names);
        let origin = setup.authority.origin().replace("127.0.0.1", host);
        *setup.authority.origin.lock().expect("no panic") = origin;
        let oauth = r#"{"grant":"client_credentials","clientId":"job","clientSecret":"s3cret"}"#;
        let mut server = server_with(&setup, oauth);
        let source = ConfigSource { scope: ConfigScope::Dynamic, ..(*server.source).clone() };
        server.source = Arc::new(source);
        let url = setup.authority.server();
        let store = setup.store().within(reach);
        let sign_in = ServerSignIn { server: &server, url: &url, env: &|_| None, home: None };
        let error = sign_in.token(None, &store).await.expect_err("not reached").to_string();
        assert!(error.contains(&format!("{names} is not an address")), "{host}: {error}");
        let mut options = ManagerOptions { registered_reach: reach, ..options() };
        options.connection.outbound = setup.outbound();
        let host = Arc::new(TokenHost { store: setup.store() });
        let manager = Manager::start([(server, Permission::Allowed)], options, host);
        manager.wait_for("guarded", Status::Error).await.expect("it is there");
        manager.close().await;
        assert_eq!(setup.authority.requests(), 0, "{url}");
    }
}

#[tokio::test]
async fn entries_at_one_address_share_no_credentials_unless_they_sign_in_alike() {
    let setup = Setup::new().await;
    let job =
        server_with(&setup, r#"{"grant":"client_credentials","clientId":"job","clientSecret":"s3cret"}"#);
    assert!(token(&setup, &job).await.expect("no error").is_some());
    for (oauth, is_shared) in [
        // Where the secret is kept does not matter.
        (r#"{"grant":"client_credentials","clientId":"job","clientSecret":"${OTHER}"}"#, true),
        (r#"{"clientId":"job"}"#, false),
        (r#"{"clientId":"other"}"#, false),
        (r#"{"scopes":"write"}"#, false),
        ("{}", false),
    ] {
        let found = token(&setup, &server_with(&setup, oauth)).await.expect("no error");
        assert_eq!(found.is_some(), is_shared, "{oauth}");
    }
}

#[tokio::test]
async fn a_user_signs_in_on_another_device() {
    let setup = Setup::new().await;
    let (server, store) = (setup.authority.server(), setup.store());
    *setup.authority.device_answers.lock().expect("no panic") = vec!["authorization_pending"];
    let start = async || DeviceLogin::start(&server, None, &OAuthSettings::default(), None, &store).await;
    let login = start().await.expect("it starts");
    assert_eq!(login.user_code(), "WDJB-MJHT");
    assert_eq!(login.url().path(), "/activate");
    login.finish(&server, &store).await.expect("signed in");
    assert_eq!(
        setup.authority.log(),
        [
            "register",
            r#"device scope=Some("read") client=client-1"#,
            "urn:ietf:params:oauth:grant-type:device_code"
        ]
    );
    assert!(store.access_token(&setup.resource(), None).await.expect("no error").is_some());
    // The registration is used again, and the user declines.
    *setup.authority.device_answers.lock().expect("no panic") = vec!["access_denied"];
    let login = start().await.expect("it starts");
    assert_eq!(setup.authority.log(), [r#"device scope=Some("read") client=client-1"#]);
    let error = login.finish(&server, &store).await.expect_err("declined").to_string();
    assert_eq!(error, "you were not signed in: access_denied");
}

#[tokio::test]
async fn a_sign_in_on_another_device_needs_a_server_that_offers_it_safely() {
    for (member, value, expected) in [
        ("device_authorization_endpoint", None, "has no sign-in with a code on another device"),
        ("device_authorization_endpoint", Some(r#""http://evil.test/device""#), "does not use https:"),
        ("verification_uri", Some(r#""javascript:alert(1)""#), "does not use https:"),
        ("user_code", None, "answered HTTP 200 without a token"),
        ("error", Some(r#""unauthorized_client""#), "unauthorized_client"),
    ] {
        let setup = Setup::new().await;
        setup.authority.change(member, value);
        let (server, store) = (setup.authority.server(), setup.store());
        let started = DeviceLogin::start(&server, None, &OAuthSettings::default(), None, &store).await;
        let error = started.err().expect("an error").to_string();
        assert!(error.contains(expected), "{member}: {error}");
    }
}

#[test]
fn the_examples_of_the_documentation_are_entries_that_work() {
    use servers::config::{Dialect, Section};
    let page = include_str!("../../../../docs/servers.md");
    let examples: Vec<&str> =
        page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        for server in Dialect::Spile.parse(example, Section::Top).expect("a file") {
            assert!(server.entry.is_ok(), "{}: {:?}", server.name, server.entry);
        }
    }
}
