//! The tool `sign_in`: the user signs in to a server behind the gateway while a model waits.
//!
//! The address goes to the user: by elicitation where the client can open addresses, otherwise in the result. The redirect
//! comes back to a port of this machine, or as the argument `redirect_url`. Tokens are kept where `spile login` keeps them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use servers::manager::Manager;
use servers::oauth::{CredentialStore, PendingLogin};
use spile_core::{
    Call, CallContext, ClientCapabilities, ElicitResult, InputRequest, InputRequests, Outcome, Run,
    ToolError, ToolErrorCode, ToolResult,
};
use tokio::sync::{mpsc, watch};

use super::tools::SIGN_IN;
use crate::mcp::{LoginTarget, probe};

/// Sign-ins that have started and not ended, by server.
pub(super) struct SignIns {
    manager: Arc<Manager>,
    store: CredentialStore,
    home: Option<PathBuf>,
    running: Mutex<HashMap<String, RunningSignIn>>,
}

#[derive(Clone)]
struct RunningSignIn {
    url: String,
    issuer: String,
    pasted: mpsc::Sender<String>,
    state: watch::Receiver<SignInState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SignInState {
    Waiting,
    SignedIn,
    Failed(String),
}

/// How long a call waits for the browser before it says that the user is not done.
const BROWSER_WAIT: Duration = Duration::from_secs(25);
const ENDED_MEMORY: Duration = Duration::from_secs(60);
const QUESTION: &str = "sign_in";

impl SignIns {
    pub(super) fn new(manager: Arc<Manager>, store: CredentialStore, home: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { manager, store, home, running: Mutex::default() })
    }

    pub(super) fn run(self: &Arc<Self>, call: &Call, cx: &CallContext<'_>) -> Run {
        let text = |name: &str| call.text_argument(name).map(|text| text.into_owned());
        let server = text("server").unwrap_or_default();
        let pasted = text("redirect_url");
        let can_open = cx.caller.capabilities.has(ClientCapabilities::ELICITATION_URL);
        let answer = cx
            .journal
            .response(QUESTION)
            .map(|answer| matches!(answer.elicit_result(), Some(ElicitResult::Accepted(_))));
        let sign_ins = self.clone();
        Run::later(async move { sign_ins.sign_in(server, pasted, can_open, answer).await })
    }

    /// `answer` is what the user said when they were asked to open the address.
    async fn sign_in(
        self: Arc<Self>,
        server: String,
        pasted: Option<String>,
        can_open: bool,
        answer: Option<bool>,
    ) -> Outcome {
        if answer == Some(false) {
            let message = format!("the user does not want to sign in to `{server}` now");
            return ToolError::new(ToolErrorCode::InputRefused, message).into();
        }
        let known = self.lock().get(&server).cloned();
        if let Some(ended) = known.as_ref().map(|known| known.state.borrow().clone())
            && ended != SignInState::Waiting
        {
            self.lock().remove(&server);
            return outcome(&server, &ended);
        }
        let is_new = known.is_none();
        let mut running = match known {
            Some(running) => running,
            None => match self.start(&server).await {
                Ok(Some(running)) => running,
                Ok(None) => return signed_in(&server),
                Err(error) => {
                    let message = format!("cannot sign in to `{server}`: {error:#}");
                    return ToolError::new(ToolErrorCode::SourceUnavailable, message).into();
                }
            },
        };
        if is_new && pasted.is_none() {
            return if can_open { ask_to_open(&server, &running) } else { show_address(&server, &running) };
        }
        if let Some(pasted) = pasted {
            // Full only if several were pasted at once.
            let _ = running.pasted.try_send(pasted);
        }
        let ended = running.state.wait_for(|state| *state != SignInState::Waiting);
        let state = match tokio::time::timeout(BROWSER_WAIT, ended).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) => SignInState::Failed("it was interrupted".to_owned()),
            Err(_) => SignInState::Waiting,
        };
        if state == SignInState::Waiting {
            return show_address(&server, &running);
        }
        self.lock().remove(&server);
        outcome(&server, &state)
    }

    /// `None` if no user was needed.
    async fn start(self: &Arc<Self>, name: &str) -> anyhow::Result<Option<RunningSignIn>> {
        let configured = self.manager.configured(name);
        let configured = configured.ok_or_else(|| anyhow::anyhow!("no server has this name"))?;
        let target = LoginTarget::of_server(&configured, self.home.as_deref())?;
        let reach = self.manager.reach_of(&configured);
        let store = self.store.within(reach);
        let challenge = probe(&target.url, reach).await?;
        if target.sign_in().sign_in_as_machine(challenge.as_ref(), &store).await? {
            self.finished(name).await;
            return Ok(None);
        }
        let secret = target.sign_in().client_secret()?;
        let login =
            PendingLogin::start(&target.url, challenge.as_ref(), &target.settings, secret, &store).await?;
        let (pasted, mut lines) = mpsc::channel(4);
        let (sender, state) = watch::channel(SignInState::Waiting);
        let running =
            RunningSignIn { url: login.url().to_string(), issuer: login.issuer().to_owned(), pasted, state };
        self.lock().insert(name.to_owned(), running.clone());
        let ended_state = running.state.clone();
        let (sign_ins, name, url) = (self.clone(), name.to_owned(), target.url.clone());
        // Ends by itself: a sign-in has a time limit.
        tokio::spawn(async move {
            let finished = login.finish(&url, Some(&mut lines), &store).await;
            let ended = match finished {
                Ok(()) => {
                    sign_ins.finished(&name).await;
                    SignInState::SignedIn
                }
                Err(error) => SignInState::Failed(error.to_string()),
            };
            let _ = sender.send(ended);
            // Whoever asks in the meantime is told how it ended.
            tokio::time::sleep(ENDED_MEMORY).await;
            let mut running = sign_ins.lock();
            if running.get(&name).is_some_and(|one| one.state.same_channel(&ended_state)) {
                running.remove(&name);
            }
        });
        Ok(Some(running))
    }

    async fn finished(&self, name: &str) {
        // A server that was removed meanwhile needs no connection.
        let _ = self.manager.signed_in(name).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RunningSignIn>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For a sign-in that has ended.
fn outcome(server: &str, state: &SignInState) -> Outcome {
    match state {
        SignInState::SignedIn => signed_in(server),
        SignInState::Waiting => ToolResult::text(format!("The sign-in to `{server}` has not ended.")).into(),
        SignInState::Failed(reason) => {
            let message =
                format!("not signed in to `{server}`: {reason}; call `{SIGN_IN}` again for another attempt");
            ToolError::new(ToolErrorCode::Forbidden, message).into()
        }
    }
}

fn signed_in(server: &str) -> Outcome {
    ToolResult::text(format!("Signed in to `{server}`. Its tools are listed as soon as it is connected."))
        .into()
}

fn ask_to_open(server: &str, running: &RunningSignIn) -> Outcome {
    let message = format!("Sign in to the server {server} at {}.", running.issuer);
    let request = InputRequest::Url { message, url: running.url.clone() };
    Outcome::InputRequired(InputRequests::single(QUESTION, request))
}

fn show_address(server: &str, running: &RunningSignIn) -> Outcome {
    let RunningSignIn { url, issuer, .. } = running;
    ToolResult::text(format!(
        "The user must open this address in a browser to sign in to `{server}` at {issuer}:\n\n{url}\n\nThen call \
         `{SIGN_IN}` again. If the browser is on another machine and ends at an address that does not open, pass that \
         address as `redirect_url`."
    ))
    .into()
}
