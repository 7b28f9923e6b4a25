//! `spile login` and `spile logout`: signing in to a configured server with OAuth.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use servers::config::{ConfiguredServer, EntryTransport, OAuthSettings};
use servers::oauth::{Challenge, PendingLogin, resource_of};
use upstream::{Connection, ConnectionOptions, NoopClientHandler, OpenError, Target};
use url::Url;
use wire::client::ClientError;

use super::connect::credential_store;
use super::context::{ServerContext, refusal};
use super::show::notice;
use crate::client::terminal::spawn_stdin_reader;

#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The server's name
    name: String,
    /// Ask for these scopes as well, separated by spaces
    #[arg(long, value_name = "SCOPES")]
    oauth_scope: Option<String>,
    /// Only print the address to open, and do not start a browser
    #[arg(long)]
    no_browser: bool,
}

#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// The server's name
    name: String,
}

/// A server that one can sign in to, with everything that its entry says about it.
struct LoginTarget {
    url: Url,
    settings: OAuthSettings,
    client_secret: Option<String>,
}

impl LoginTarget {
    fn new(context: &ServerContext, server: &ConfiguredServer) -> anyhow::Result<Self> {
        if let Some((reason, help)) = refusal(server, context.permission(server)) {
            bail!("{reason}; {help}");
        }
        let env = |name: &str| std::env::var(name).ok();
        let resolved = server.resolve(&env, context.home())?;
        let Some(url) = resolved.url().cloned() else {
            bail!(
                "server `{}` is not at an http: or https: address, so there is nothing to sign in to",
                server.name
            );
        };
        let entry = server.entry.as_ref().ok().context("the entry is invalid")?;
        let EntryTransport::Remote(remote) = &entry.transport else { bail!("the server is a command") };
        if remote.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            bail!(
                "server `{}` of {} sends an Authorization header of its own; remove it there to sign in instead",
                server.name,
                server.source.path.display()
            );
        }
        let secret = remote.oauth.client_secret.as_ref();
        let client_secret = secret.map(|secret| server.expand(secret, &env, context.home())).transpose()?;
        Ok(Self { url, settings: remote.oauth.clone(), client_secret })
    }
}

pub fn login(args: &LoginArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
    let server = context.find(&args.name)?;
    let target = LoginTarget::new(&context, server)?;
    let store = credential_store().context("neither XDG_STATE_HOME nor HOME is set; set one of them")?;
    crate::serve::start_client_logging(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let challenge = with_scopes(probe(&target.url).await?, args.oauth_scope.as_deref());
        let login = PendingLogin::start(
            &target.url,
            challenge.as_ref(),
            &target.settings,
            target.client_secret.clone(),
            &store,
        )
        .await?;
        notice(&format!("sign in to `{}` at {}:", server.name, login.issuer()));
        crate::print(&format!("{}\n", login.url()))?;
        if !args.no_browser && std::io::stderr().is_terminal() {
            open_browser(login.url());
        }
        notice("if the browser is on another machine, paste the address that it ends at here");
        let mut lines = spawn_stdin_reader();
        tokio::select! {
            finished = login.finish(&target.url, async || lines.recv().await, &store) => finished?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; you are not signed in"),
        }
        Ok(())
    });
    // A thread may still be blocked on stdin, and nothing can end that read.
    runtime.shutdown_background();
    result?;
    notice(&format!("signed in to `{}`", server.name));
    Ok(ExitCode::SUCCESS)
}

pub fn logout(args: &LogoutArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&[])?;
    let server = context.find(&args.name)?;
    let env = |name: &str| std::env::var(name).ok();
    let resolved = server.resolve(&env, context.home())?;
    let resource = resolved.url().map(resource_of);
    let store = credential_store().context("neither XDG_STATE_HOME nor HOME is set; set one of them")?;
    match resource {
        Some(resource) if store.remove(&resource)? => {
            notice(&format!("signed out of `{}`; its tokens are deleted", server.name));
        }
        _ => notice(&format!("you are not signed in to `{}`", server.name)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds scopes to those that the server asks for. What was granted before is kept, as after a refused operation.
fn with_scopes(challenge: Option<Challenge>, more: Option<&str>) -> Option<Challenge> {
    let Some(more) = more else { return challenge };
    let mut challenge = challenge.unwrap_or_default();
    let scopes = challenge.scopes.get_or_insert_default();
    scopes.extend(more.split_whitespace().map(str::to_owned));
    challenge.error = Some("insufficient_scope".to_owned());
    Some(challenge)
}

/// Asks the server without a token: its answer says where to sign in.
async fn probe(url: &Url) -> anyhow::Result<Option<Challenge>> {
    let target = Target::Http(url.clone());
    let opened =
        Connection::open(&target, ConnectionOptions::default(), std::sync::Arc::new(NoopClientHandler));
    match opened.await {
        Ok(connection) => {
            connection.close().await;
            Ok(None)
        }
        Err(OpenError::Failed(ClientError::Unauthorized { challenge, .. })) => {
            Ok(challenge.as_deref().and_then(Challenge::parse))
        }
        Err(error) => Err(error.into()),
    }
}

/// The address is an argument, never part of a command line.
fn open_browser(url: &Url) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if cfg!(windows) {
        return;
    }
    let null = std::process::Stdio::null;
    // Without a browser the address on the screen is enough.
    let _ = std::process::Command::new(program)
        .arg(url.as_str())
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .spawn();
}
