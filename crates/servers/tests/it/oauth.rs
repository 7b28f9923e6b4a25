//! Signing in at an authorization server, and keeping its tokens, over real HTTP.

use std::sync::{Arc, Mutex};

use json::Json;
use os_keyring::OsKeyring;
use outbound::{Lookup, NameSource, Names, NetworkZone, OutboundOptions};
use ring::digest;
use servers::config::OAuthSettings;
use servers::decisions::Permission;
use servers::manager::state::Status;
use servers::manager::{Manager, ManagerHost, ServerCallError};
use servers::oauth::{
    Authorizer, AuthorizerClient, Challenge, ClientProof, CredentialStore, LoginError, MachineClient,
    MachineGrant, PendingLogin, SIGN_INS_MAX, TokenError, resource_of,
};
use spile_core::Platform;
use url::Url;

use crate::authority::{Authority, Dpop, get, location};
use crate::harness::User;
use crate::manager::{HELPER, options};

/// Time stands still unless a test moves it; randomness counts.
#[derive(Default)]
pub struct TestPlatform {
    now_ms: Mutex<u64>,
    drawn: Mutex<u64>,
}

impl Platform for TestPlatform {
    fn now_ms(&self) -> u64 {
        *self.now_ms.lock().expect("no panic")
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let mut drawn = self.drawn.lock().expect("no panic");
        *drawn += 1;
        let seed = digest::digest(&digest::SHA256, &drawn.to_be_bytes());
        bytes.iter_mut().zip(seed.as_ref().iter().cycle()).for_each(|(byte, random)| *byte = *random);
    }
}

pub struct Setup {
    pub user: User,
    pub authority: Arc<Authority>,
    platform: Arc<TestPlatform>,
    /// The keyring of each process.
    pub keyring: Option<OsKeyring>,
    /// Where names lead.
    pub names: NameSource,
}

/// All names lead to one address.
struct OneAddress(std::net::IpAddr);

impl Names for OneAddress {
    fn look_up(&self, _: String) -> Lookup {
        let address = (self.0, 0).into();
        Box::pin(async move { Ok(vec![address]) })
    }
}

pub fn all_names_lead_to(address: &str) -> NameSource {
    NameSource::new(OneAddress(address.parse().expect("an address")))
}

impl Setup {
    pub async fn new() -> Self {
        let authority = Authority::start().await;
        let (user, names) = (User::new(&[]), NameSource::default());
        Self { user, authority, platform: Arc::default(), keyring: None, names }
    }

    /// The store of one process.
    pub fn store(&self) -> CredentialStore {
        let folder = self.user.path("home/state/oauth");
        let store = CredentialStore::new(folder, self.platform.clone(), self.outbound());
        match &self.keyring {
            Some(keyring) => store.with_keyring(keyring.clone()),
            None => store,
        }
    }

    pub fn outbound(&self) -> OutboundOptions {
        OutboundOptions { names: self.names.clone(), ..OutboundOptions::default() }
    }

    pub fn resource(&self) -> String {
        resource_of(&self.authority.server())
    }

    async fn start(
        &self,
        challenge: Option<&Challenge>,
        settings: &OAuthSettings,
    ) -> Result<PendingLogin, LoginError> {
        PendingLogin::start(&self.authority.server(), challenge, settings, None, &self.store()).await
    }

    /// Signs in with a browser that follows the redirect.
    pub async fn sign_in(
        &self,
        challenge: Option<&Challenge>,
        settings: &OAuthSettings,
    ) -> Result<(), LoginError> {
        let login = self.start(challenge, settings).await?;
        let back = location(&get(login.url()).await);
        let browser = tokio::spawn(async move { get(&back).await });
        let server = self.authority.server();
        login.finish(&server, None, &self.store()).await?;
        assert!(browser.await.expect("no panic").contains("You are signed in"));
        Ok(())
    }

    pub fn pass_time(&self, ms: u64) {
        *self.platform.now_ms.lock().expect("no panic") += ms;
    }
}

fn challenge(error: &str, scope: &str) -> Challenge {
    Challenge::parse(&format!(r#"Bearer error="{error}", scope="{scope}""#)).expect("a challenge")
}

#[tokio::test]
async fn a_user_signs_in_and_the_token_is_kept_for_this_user_only() {
    let setup = Setup::new().await;
    assert_eq!(setup.store().access_token(&setup.resource(), None).await.expect("no error"), None);
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    assert_eq!(
        setup.authority.log(),
        ["register", r#"authorize scope=Some("read") resource=/mcp"#, "authorization_code"]
    );
    let token = setup.store().access_token(&setup.resource(), None).await.expect("no error");
    assert_eq!(token.as_deref(), Some("access-3"));
    #[cfg(unix)]
    for entry in std::fs::read_dir(setup.user.path("home/state/oauth")).expect("a folder") {
        use std::os::unix::fs::PermissionsExt;
        let mode = entry.expect("an entry").metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
    // The next sign-in uses the same registration.
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    assert_eq!(
        setup.authority.log().first().map(String::as_str),
        Some(r#"authorize scope=Some("read") resource=/mcp"#)
    );
    assert!(setup.store().remove(&setup.resource()).expect("removed"));
    assert!(!setup.store().remove(&setup.resource()).expect("nothing is left"));
    assert_eq!(setup.store().access_token(&setup.resource(), None).await.expect("no error"), None);
}

#[tokio::test]
async fn a_redirect_can_be_pasted() {
    let setup = Setup::new().await;
    let login = setup.start(None, &OAuthSettings::default()).await.expect("it starts");
    let back = location(&get(login.url()).await);
    let mut lines =
        vec![back.to_string(), "https://example.com/?code=x&state=wrong".to_owned(), "nonsense".to_owned()];
    let server = setup.authority.server();
    let (pasted, mut receiver) = tokio::sync::mpsc::channel(8);
    while let Some(line) = lines.pop() {
        pasted.send(line).await.expect("there is room");
    }
    login.finish(&server, Some(&mut receiver), &setup.store()).await.expect("signed in");
    assert!(setup.store().access_token(&setup.resource(), None).await.expect("no error").is_some());
}

/// One pasted line.
async fn pasted(line: &Url) -> tokio::sync::mpsc::Receiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(line.to_string()).await.expect("there is room");
    receiver
}

#[tokio::test]
async fn redirects_that_do_not_belong_here_are_refused() {
    let setup = Setup::new().await;
    let server = setup.authority.server();
    for (change, expected) in [
        (("iss", "https://evil.test"), "it comes from another authorization server"),
        (("iss", ""), "it does not name the authorization server"),
        (("code", ""), "it has no code"),
    ] {
        let login = setup.start(None, &OAuthSettings::default()).await.expect("it starts");
        let back = location(&get(login.url()).await);
        let mut changed = back.clone();
        changed.query_pairs_mut().clear().extend_pairs(back.query_pairs().filter_map(|(key, value)| match (
            key == change.0,
            change.1,
        ) {
            (true, "") => None,
            (true, new) => Some((key.into_owned(), new.to_owned())),
            (false, _) => Some((key.into_owned(), value.into_owned())),
        }));
        let mut pasted = pasted(&changed).await;
        let error = login.finish(&server, Some(&mut pasted), &setup.store()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("the redirect is not valid: {expected}"));
    }
    let login = setup.start(None, &OAuthSettings::default()).await.expect("it starts");
    let mut back = location(&get(login.url()).await);
    back.query_pairs_mut().append_pair("error", "access_denied").append_pair("error_description", "not you");
    let mut pasted = pasted(&back).await;
    let error = login.finish(&server, Some(&mut pasted), &setup.store()).await.unwrap_err();
    assert_eq!(error.to_string(), "you were not signed in: access_denied (not you)");
    assert_eq!(setup.store().access_token(&setup.resource(), None).await.expect("no error"), None);
}

#[tokio::test]
async fn an_expired_token_is_refreshed_and_a_refused_refresh_asks_the_user() {
    let setup = Setup::new().await;
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    let (store, resource) = (setup.store(), setup.resource());
    setup.authority.log();
    setup.pass_time(3_600_000 - 30_001);
    assert_eq!(store.access_token(&resource, None).await.expect("no error").as_deref(), Some("access-3"));
    setup.pass_time(1);
    assert_eq!(store.access_token(&resource, None).await.expect("no error").as_deref(), Some("access-5"));
    // A token that the server rejects is replaced, whatever its time.
    let token = store.access_token(&resource, Some("access-5")).await.expect("no error");
    assert_eq!(token.as_deref(), Some("access-7"));
    // The authorization server is down: the refresh token is still there afterwards.
    setup.pass_time(4_000_000);
    setup.authority.token_failures.lock().expect("no panic").push(503);
    let error = store.access_token(&resource, None).await.unwrap_err();
    assert!(matches!(error, TokenError::NoToken { status: 503 }), "{error}");
    assert_eq!(store.access_token(&resource, None).await.expect("no error").as_deref(), Some("access-9"));
    // Revoked.
    *setup.authority.refresh_token.lock().expect("no panic") = None;
    setup.pass_time(4_000_000);
    assert_eq!(store.access_token(&resource, None).await.expect("no error"), None);
    assert_eq!(store.access_token(&resource, None).await.expect("no error"), None);
    assert_eq!(setup.authority.log().iter().filter(|line| *line == "refresh refused").count(), 1);
}

/// The document that named the token endpoint was as far away as the zone says, and a name leads somewhere else today.
#[tokio::test]
async fn a_refresh_goes_no_nearer_than_the_document_that_named_its_endpoint() {
    use NetworkZone::{Private, Public, ThisMachine};
    for (named_from, endpoint, expected) in [
        (Public, "https://login.test:PORT/token", "127.0.0.1 is not an address"),
        (Private, "https://login.test:PORT/token", "127.0.0.1 is not an address"),
        (Public, "https://127.0.0.1:PORT/token", "is on this machine"),
        (Public, "https://10.0.0.1/token", "is in a private network"),
        (Public, "http://login.test:PORT/token", "does not use https:"),
        (ThisMachine, "http://127.0.0.1:PORT/token", ""),
    ] {
        let mut setup = Setup::new().await;
        setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
        setup.names = all_names_lead_to("127.0.0.1");
        setup.authority.log();
        let (store, resource) = (setup.store(), setup.resource());
        let port = setup.authority.server().port().expect("a port").to_string();
        let mut kept = store.load(&resource).expect("readable").expect("kept");
        kept.named_from = named_from;
        kept.token_endpoint = endpoint.replace("PORT", &port);
        store.save(&kept).expect("saved");
        setup.pass_time(4_000_000);
        match store.access_token(&resource, None).await {
            Ok(token) => assert!(expected.is_empty() && token.is_some(), "{endpoint}"),
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{error}"),
        }
        assert_eq!(setup.authority.log().is_empty(), !expected.is_empty(), "{endpoint}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotating_refresh_token_is_used_once_whoever_asks() {
    let setup = Setup::new().await;
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    setup.authority.log();
    // Three stores are what three processes have: they share nothing but the files.
    let stores = [setup.store(), setup.store(), setup.store()];
    for round in 0..12 {
        setup.pass_time(4_000_000);
        let mut tasks = tokio::task::JoinSet::new();
        for store in stores.iter().cycle().take(9) {
            let (store, resource) = (store.clone(), setup.resource());
            tasks.spawn(async move { store.access_token(&resource, None).await });
        }
        let tokens: Vec<Option<String>> =
            tasks.join_all().await.into_iter().map(|token| token.expect("no error")).collect();
        assert!(tokens[0].is_some() && tokens.iter().all(|token| *token == tokens[0]), "{round}: {tokens:?}");
    }
    assert_eq!(setup.authority.log(), vec!["refresh_token"; 12]);
}

/// How many tokens each process wants; `cargo xtask judges` sets 1,000.
fn refreshes() -> usize {
    std::env::var("SPILE_REFRESHES").map_or(25, |count| count.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_share_a_rotating_refresh_token_and_none_loses_it() {
    let setup = Setup::new().await;
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    setup.authority.log();
    let folder = setup.user.path("home/state/oauth");
    let start = |_| {
        std::process::Command::new(HELPER)
            .arg("refresh")
            .arg(&folder)
            .args([&setup.resource(), &refreshes().to_string()])
            .spawn()
            .expect("it starts")
    };
    let processes: Vec<_> = (0..3).map(start).collect();
    for mut process in processes {
        let ended = tokio::task::spawn_blocking(move || process.wait()).await.expect("no panic");
        assert!(ended.expect("it ends").success());
    }
    let log = setup.authority.log();
    // Each process wanted so many different tokens; they share those that another one got in between.
    assert!(log.len() + 1 >= refreshes() && log.iter().all(|line| line == "refresh_token"), "{}", log.len());
    assert!(setup.store().access_token(&setup.resource(), Some("none")).await.expect("no error").is_some());
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_lose_a_refresh() {
    let setup = Setup::new().await;
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    setup.pass_time(4_000_000);
    let store = setup.store();
    {
        let resource = setup.resource();
        let asking = store.access_token(&resource, None);
        tokio::pin!(asking);
        // The refresh starts, and then its caller does not wait for it any more.
        assert!(futures_poll_once(asking.as_mut()).await.is_none());
    }
    let token = store.access_token(&setup.resource(), None).await.expect("no error");
    assert!(token.is_some());
    assert!(!setup.authority.log().contains(&"refresh refused".to_owned()));
}

async fn futures_poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(move |context| {
        let polled = future.take().map(|future| future.poll(context));
        std::task::Poll::Ready(match polled {
            Some(std::task::Poll::Ready(output)) => Some(output),
            Some(std::task::Poll::Pending) | None => None,
        })
    })
    .await
}

#[tokio::test]
async fn more_scopes_do_not_lose_those_that_were_granted() {
    let setup = Setup::new().await;
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    setup.authority.log();
    setup
        .sign_in(Some(&challenge("insufficient_scope", "write")), &OAuthSettings::default())
        .await
        .expect("signed in");
    assert_eq!(setup.authority.log()[0], r#"authorize scope=Some("write read") resource=/mcp"#);
    // Scopes of the entry are the ones that are asked for, with a registration of their own.
    let pinned = OAuthSettings { scopes: Some(vec!["only".to_owned()]), ..OAuthSettings::default() };
    setup.sign_in(Some(&challenge("invalid_token", "write")), &pinned).await.expect("signed in");
    assert_eq!(setup.authority.log()[1], r#"authorize scope=Some("only") resource=/mcp"#);
}

#[tokio::test]
async fn hostile_or_broken_documents_end_the_sign_in() {
    for (member, value, expected) in [
        ("resource", Some(r#""https://other.test/mcp""#), "the metadata is for `https://other.test/mcp`"),
        ("authorization_servers", Some(r#"["http://login.test"]"#), "does not use https:"),
        ("authorization_servers", None, "`authorization_servers` is missing"),
        ("issuer", Some(r#""https://evil.test""#), "calls itself `https://evil.test`"),
        ("code_challenge_methods_supported", None, "does not support PKCE"),
        ("token_endpoint", Some(r#""http://evil.test/token""#), "does not use https:"),
        ("registration_endpoint", None, "does not register clients itself"),
    ] {
        let setup = Setup::new().await;
        setup.authority.change(member, value);
        let error = setup.start(None, &OAuthSettings::default()).await.err().expect("an error");
        assert!(error.to_string().contains(expected), "{member}: {error}");
        assert!(setup.authority.log().is_empty());
    }
}

#[tokio::test]
async fn a_client_that_is_registered_already_needs_no_registration() {
    let setup = Setup::new().await;
    setup.authority.change("registration_endpoint", None);
    let settings = OAuthSettings { client_id: Some("mine".to_owned()), ..OAuthSettings::default() };
    setup.sign_in(None, &settings).await.expect("signed in");
    assert!(!setup.authority.log().contains(&"register".to_owned()));
}

#[tokio::test]
async fn a_server_of_2025_03_26_is_its_own_authorization_server() {
    let setup = Setup::new().await;
    *setup.authority.has_resource_metadata.lock().expect("no panic") = false;
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    assert_eq!(setup.authority.log()[1], "authorize scope=None resource=/mcp");
}

/// The tokens of a store, for a manager.
pub struct TokenHost {
    pub store: CredentialStore,
}

impl ManagerHost for TokenHost {
    fn env(&self, _: &str) -> Option<String> {
        None
    }

    fn credentials(&self) -> Option<CredentialStore> {
        Some(self.store.clone())
    }
}

/// A manager of the one server that the authority protects.
async fn guarded(setup: &Setup) -> Manager {
    let entry = format!(r#"{{"mcpServers": {{"guarded": {{"url": "{}"}}}}}}"#, setup.authority.server());
    setup.user.write("home/.config/spile/servers.json", &entry);
    let server = setup.user.load().servers.remove(0);
    let host = Arc::new(TokenHost { store: setup.store() });
    Manager::start([(server, Permission::Allowed)], options(), host)
}

#[tokio::test]
async fn a_server_that_needs_a_sign_in_waits_for_it_and_then_works() {
    let setup = Setup::new().await;
    let manager = guarded(&setup).await;
    manager.wait_for("guarded", Status::NeedsAuth).await.expect("it is there");
    let params = || Json::parse(r#"{"name":"whoami","arguments":{}}"#).expect("JSON");
    let call = || manager.request("guarded", wire::method::Method::ToolsCall, params(), None);
    assert!(matches!(call().await, Err(ServerCallError::NeedsAuth { .. })));
    setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
    manager.signed_in("guarded").await.expect("it is there");
    manager.wait_for("guarded", Status::Connected).await.expect("it is there");
    assert!(call().await.expect("a result").as_str().contains("you"));
    // The server forgets the token: the next call refreshes it without an error.
    setup.authority.access_tokens.lock().expect("no panic").clear();
    assert!(call().await.expect("a result").as_str().contains("you"));
    // It forgets both: the user must sign in again.
    setup.authority.access_tokens.lock().expect("no panic").clear();
    *setup.authority.refresh_token.lock().expect("no panic") = None;
    assert!(matches!(call().await, Err(ServerCallError::NeedsAuth { .. })));
    manager.wait_for("guarded", Status::NeedsAuth).await.expect("it is there");
    manager.close().await;
}

#[tokio::test]
async fn tokens_are_bound_to_a_key_where_the_authorization_server_does_that() {
    for nonce in [None, Some("n-1")] {
        let setup = Setup::new().await;
        *setup.authority.dpop.lock().expect("no panic") = Some(Dpop { nonce, ..Dpop::default() });
        setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
        let manager = guarded(&setup).await;
        manager.wait_for("guarded", Status::Connected).await.expect("it is there");
        let call = async || manager.call_tool("mcp__guarded__whoami", &Json::object(|_| {}), None).await;
        assert!(call().await.expect("a result").as_str().contains("you"));
        // The server changes its nonce, and forgets the token: a refresh with the same key.
        if let Some(dpop) = &mut *setup.authority.dpop.lock().expect("no panic") {
            dpop.nonce = nonce.map(|_| "n-2");
        }
        setup.authority.access_tokens.lock().expect("no panic").clear();
        assert!(call().await.expect("a result").as_str().contains("you"));
        manager.close().await;
        // A process that starts later has the key as well.
        let manager = guarded(&setup).await;
        manager.wait_for("guarded", Status::Connected).await.expect("it is there");
        manager.close().await;
        let seen = setup.authority.dpop.lock().expect("no panic").as_ref().map_or(0, |dpop| dpop.seen.len());
        assert!(seen > 8, "{seen}");
    }
}

#[tokio::test]
async fn a_server_that_wants_bound_tokens_gets_no_others() {
    let required = ("dpop_bound_access_tokens_required", "true");
    for (change, has_dpop, expected) in [
        (("issuer_is_right", "1"), false, None),
        (required, true, None),
        (required, false, Some("does not issue them; ask its operator to enable DPoP")),
    ] {
        let setup = Setup::new().await;
        setup.authority.change(change.0, Some(change.1));
        *setup.authority.dpop.lock().expect("no panic") = has_dpop.then(Dpop::default);
        let signed_in = setup.sign_in(None, &OAuthSettings::default()).await;
        match (signed_in, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (signed_in, expected) => panic!("{signed_in:?}, expected {expected:?}"),
        }
    }
}

const USER: AuthorizerClient = AuthorizerClient::User { client_secret: None };

/// Plays the user: follows the redirect of the authorization server.
async fn browse(url: &Url) {
    let back = location(&get(url).await);
    get(&back).await;
}

#[tokio::test]
async fn a_refused_request_refreshes_first_then_signs_in_then_gives_up() {
    let setup = Setup::new().await;
    let settings = OAuthSettings::default();
    let mut authorizer =
        Authorizer::new(setup.authority.server(), settings, USER, setup.store()).await.expect("it starts");
    assert_eq!(authorizer.token().text(), None);
    let refused = Some("Bearer");
    authorizer.on_refused(refused, browse).await.expect("signed in");
    let first = authorizer.token().text();
    assert!(first.is_some());
    setup.authority.log();

    // The token has expired at the server: no user is needed.
    authorizer.on_accepted();
    authorizer.on_refused(refused, browse).await.expect("refreshed");
    assert_eq!(setup.authority.log(), ["refresh_token"]);
    assert_ne!(authorizer.token().text(), first);
    // The new one is refused, too: the user signs in, a limited number of times.
    for _ in 0..SIGN_INS_MAX {
        authorizer.on_refused(refused, browse).await.expect("signed in");
        let log = setup.authority.log();
        assert!(log.last().is_some_and(|last| last == "authorization_code"), "{log:?}");
    }
    let error = authorizer.on_refused(refused, browse).await.expect_err("too often").to_string();
    assert_eq!(error, "the server still refuses the request after 3 sign-ins");
    assert!(setup.authority.log().is_empty());
    authorizer.on_accepted();
    authorizer.on_refused(refused, browse).await.expect("a request that succeeds resets the count");
}

#[tokio::test]
async fn an_operation_that_needs_more_scopes_keeps_those_that_were_granted() {
    let setup = Setup::new().await;
    let (server, store) = (setup.authority.server(), setup.store());
    let mut authorizer =
        Authorizer::new(server, OAuthSettings::default(), USER, store).await.expect("it starts");
    authorizer.on_refused(Some("Bearer"), browse).await.expect("signed in");
    setup.authority.log();
    let refused = r#"Bearer error="insufficient_scope", scope="write""#;
    authorizer.on_refused(Some(refused), browse).await.expect("signed in");
    assert_eq!(
        setup.authority.log(),
        [r#"authorize scope=Some("write read") resource=/mcp"#, "authorization_code"],
        "a refresh would not add a scope"
    );
}

#[tokio::test]
async fn a_server_that_offers_refresh_tokens_for_a_scope_is_asked_for_it() {
    for (supported, expected) in [
        (r#"["read","offline_access"]"#, r#"authorize scope=Some("read offline_access") resource=/mcp"#),
        (r#"["read"]"#, r#"authorize scope=Some("read") resource=/mcp"#),
    ] {
        let setup = Setup::new().await;
        setup.authority.change("as_scopes_supported", Some(supported));
        setup.sign_in(None, &OAuthSettings::default()).await.expect("signed in");
        assert!(setup.authority.log().iter().any(|line| line == expected), "{supported}");
    }
}

/// A client that is known to the authorization server gets a token without a user, and no other way is tried if it fails.
#[tokio::test]
async fn a_program_gets_a_token_without_a_user() {
    let setup = Setup::new().await;
    let machine = |assertion: &str| {
        let grant = MachineGrant::WorkloadIdentity { assertion: assertion.to_owned() };
        AuthorizerClient::Machine(Box::new(MachineClient {
            client_id: "job".to_owned(),
            proof: ClientProof::None,
            grant,
        }))
    };
    let authorizer = async |client| {
        let (server, store) = (setup.authority.server(), setup.store());
        Authorizer::new(server, OAuthSettings::default(), client, store).await.expect("it starts")
    };
    let no_browser = async |_: &Url| panic!("no user is asked");
    let mut wrong = authorizer(machine("expired")).await;
    let error = wrong.on_refused(Some("Bearer"), no_browser).await.expect_err("refused").to_string();
    assert_eq!(error, "the authorization server refused: invalid_grant");
    assert!(setup.authority.log().is_empty(), "neither registered nor authorized");
    let mut right = authorizer(machine("workload")).await;
    right.on_refused(Some("Bearer"), no_browser).await.expect("a token");
    assert!(right.token().text().is_some());
    assert_eq!(setup.authority.log(), ["urn:ietf:params:oauth:grant-type:jwt-bearer"]);
}
