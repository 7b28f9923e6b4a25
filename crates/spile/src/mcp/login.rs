//! `spile login` and `spile logout`: signing in to a configured server with OAuth.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use outbound::Reach;
use servers::config::{ConfiguredServer, EntryTransport, OAuthSettings};
use servers::oauth::{Challenge, CredentialStore, DeviceLogin, PendingLogin, ServerSignIn};
use upstream::{Connection, ConnectionOptions, NoopClientHandler, OpenError, Target};
use url::Url;
use wire::client::ClientError;

use super::ConfigArgs;
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
    /// Sign in on another device: print a short code to type there, and wait
    #[arg(long, conflicts_with = "no_browser")]
    device: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// The server's name
    name: String,
    #[command(flatten)]
    config: ConfigArgs,
}

/// A server that one can sign in to, with everything that its entry says about it.
pub(crate) struct LoginTarget<'a> {
    server: &'a ConfiguredServer,
    pub(crate) url: Url,
    pub(crate) settings: OAuthSettings,
    home: Option<&'a Path>,
}

impl<'a> LoginTarget<'a> {
    fn new(context: &'a ServerContext, server: &'a ConfiguredServer) -> anyhow::Result<Self> {
        if let Some((reason, help)) = refusal(server, context.permission(server)) {
            bail!("{reason}; {help}");
        }
        Self::of_server(server, context.home())
    }

    /// For a server that may be connected to.
    pub(crate) fn of_server(server: &'a ConfiguredServer, home: Option<&'a Path>) -> anyhow::Result<Self> {
        let env = |name: &str| std::env::var(name).ok();
        let resolved = server.resolve(&env, home)?;
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
        Ok(Self { server, url, settings: remote.oauth.clone(), home })
    }

    pub(crate) fn sign_in(&self) -> ServerSignIn<'_> {
        let env = &|name: &str| std::env::var(name).ok();
        ServerSignIn { server: self.server, url: &self.url, env, home: self.home }
    }
}

pub fn login(args: &LoginArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    let server = context.find(&args.name)?;
    let target = LoginTarget::new(&context, server)?;
    let store = credential_store()?.context("neither XDG_STATE_HOME nor HOME is set; set one of them")?;
    crate::serve::start_client_logging(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let challenge = with_scopes(probe(&target.url, Reach::Anywhere).await?, args.oauth_scope.as_deref());
        if target.sign_in().sign_in_as_machine(challenge.as_ref(), &store).await? {
            return Ok(());
        }
        let client_secret = target.sign_in().client_secret()?;
        if args.device {
            return login_on_device(&target, challenge.as_ref(), client_secret, &store).await;
        }
        let login =
            PendingLogin::start(&target.url, challenge.as_ref(), &target.settings, client_secret, &store)
                .await?;
        notice(&format!("sign in to `{}` at {}:", server.name, login.issuer()));
        crate::print(&format!("{}\n", login.url()))?;
        if !args.no_browser && std::io::stderr().is_terminal() {
            open_browser(login.url());
        }
        notice("if the browser is on another machine, paste the address that it ends at here");
        let mut lines = spawn_stdin_reader();
        tokio::select! {
            finished = login.finish(&target.url, Some(&mut lines), &store) => finished?,
            _ = tokio::signal::ctrl_c() => bail!("interrupted; you are not signed in"),
        }
        Ok(())
    });
    // A thread may still be blocked on stdin, and nothing can end that read.
    runtime.shutdown_background();
    result?;
    // Gateways that run connect again, or use the new token.
    context.decision_file()?.update(|decisions| decisions.retry(server))?;
    notice(&format!("signed in to `{}`", server.name));
    Ok(ExitCode::SUCCESS)
}

async fn login_on_device(
    target: &LoginTarget<'_>,
    challenge: Option<&Challenge>,
    client_secret: Option<String>,
    store: &CredentialStore,
) -> anyhow::Result<()> {
    let login = DeviceLogin::start(&target.url, challenge, &target.settings, client_secret, store).await?;
    notice(&format!(
        "to sign in to `{}` at {}, open this address on any device:",
        target.server.name,
        login.issuer()
    ));
    crate::print(&format!("{}\n", login.url()))?;
    notice(&format!("and type the code {}", login.user_code()));
    tokio::select! {
        finished = login.finish(&target.url, store) => Ok(finished?),
        _ = tokio::signal::ctrl_c() => bail!("interrupted; you are not signed in"),
    }
}

pub fn logout(args: &LogoutArgs) -> anyhow::Result<ExitCode> {
    let context = ServerContext::load(&args.config.files)?;
    let server = context.find(&args.name)?;
    let env = |name: &str| std::env::var(name).ok();
    let resolved = server.resolve(&env, context.home())?;
    let account =
        resolved.url().map(|url| ServerSignIn { server, url, env: &env, home: context.home() }.account());
    let store = credential_store()?.context("neither XDG_STATE_HOME nor HOME is set; set one of them")?;
    match account {
        Some(account) if store.remove(&account)? => {
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
pub(crate) async fn probe(url: &Url, reach: Reach) -> anyhow::Result<Option<Challenge>> {
    let target = Target::Http(url.clone());
    let mut options = ConnectionOptions::default();
    options.outbound.reach = reach;
    let opened = Connection::open(&target, options, std::sync::Arc::new(NoopClientHandler));
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
