//! What the gateway answers in place of the caller's client: `roots/list` of a server whose entry declares roots, and
//! `sampling/createMessage` where a model is configured and the client has none.
//!
//! A person must allow each sampling: the user of the calling client by elicitation, or whoever operates the gateway. Only
//! a server that the settings name is answered without asking.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use json::{Json, Node};
use servers::config::SamplingSettings;
use servers::manager::{Manager, ManagerHost};
use servers::sampling::{Sampler, review_request};
use spile_core::{ClientCapabilities, ElicitResult, InputRequest, InputResponse, Platform};
use upstream::process::ProcessOptions;
use wire::client::InputReply;

use crate::samplings::{AllowedBy, RunningSampling, SamplingCaller, SamplingObserver, SamplingStatus};

/// Somebody other than the user of the calling client, who can be asked whether a model may answer a server.
pub trait SamplingApprover: Send + Sync + 'static {
    /// Whether somebody can be asked now.
    fn is_available(&self) -> bool;

    /// The question ends when the future is dropped.
    fn ask(&self, question: SamplingQuestion) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// What a person decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingQuestion {
    pub server: String,
    /// Who calls; empty for an anonymous caller.
    pub principal: String,
    /// What the server asks, safe to print.
    pub request: String,
}

pub(crate) struct LocalAnswers {
    manager: Arc<Manager>,
    host: Arc<dyn ManagerHost>,
    process: ProcessOptions,
    model: RwLock<Option<ConfiguredModel>>,
    approver: OnceLock<Arc<dyn SamplingApprover>>,
    observer: OnceLock<Arc<dyn SamplingObserver>>,
    platform: Arc<dyn Platform>,
}

struct ConfiguredModel {
    settings: SamplingSettings,
    sampler: Arc<Sampler>,
}

/// Who must allow a sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhoAllows {
    /// The settings did.
    Settings,
    Caller,
    Approver,
    Nobody,
}

/// What becomes of a sampling.
pub(crate) enum Answered {
    Result(Json),
    /// The caller must be asked with this form first.
    Ask(InputRequest),
}

/// What becomes of a question of a server.
pub(crate) enum Answerer {
    /// The caller's client.
    Client,
    Roots,
    Model,
}

const ALLOW: &str = "allow";
const NOT_ALLOWED: &str = "the user did not allow it";
const NO_MODEL: &str = "this client has no model";

impl LocalAnswers {
    pub(crate) fn new(
        manager: Arc<Manager>,
        host: Arc<dyn ManagerHost>,
        process: ProcessOptions,
        platform: Arc<dyn Platform>,
    ) -> Self {
        Self {
            manager,
            host,
            process,
            model: RwLock::default(),
            approver: OnceLock::new(),
            observer: OnceLock::new(),
            platform,
        }
    }

    /// Set once.
    pub(crate) fn set_approver(&self, approver: Arc<dyn SamplingApprover>) {
        let _ = self.approver.set(approver);
    }

    /// Set once.
    pub(crate) fn set_observer(&self, observer: Arc<dyn SamplingObserver>) {
        let _ = self.observer.set(observer);
    }

    fn begin<'a>(
        &'a self,
        server: &'a str,
        caller: &'a SamplingCaller,
        params: &Json,
    ) -> RunningSampling<'a> {
        let observer = self.observer.get().cloned();
        RunningSampling::begin(observer, &*self.platform, server, caller, params.as_str().len())
    }

    /// From the next question on. Settings that cannot be used are none.
    pub(crate) fn set_model(&self, settings: Option<&SamplingSettings>) {
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        if model.as_ref().map(|model| &model.settings) == settings {
            return;
        }
        *model = settings.and_then(|settings| {
            match Sampler::new(settings, &|name| self.host.env(name), self.process.clone()) {
                Ok(sampler) => {
                    Some(ConfiguredModel { settings: settings.clone(), sampler: Arc::new(sampler) })
                }
                Err(error) => {
                    tracing::warn!("no model answers servers: {error}");
                    None
                }
            }
        });
    }

    fn sampler(&self) -> Option<Arc<Sampler>> {
        let model = self.model.read().unwrap_or_else(PoisonError::into_inner);
        model.as_ref().map(|model| model.sampler.clone())
    }

    /// What is declared to a server: what the caller's client can do, and what is answered here.
    pub(crate) fn capabilities(&self, server: &str, caller: ClientCapabilities) -> ClientCapabilities {
        let mut declared = caller;
        if self.manager.declares_roots(server) {
            declared = declared.with(ClientCapabilities::ROOTS);
        }
        if self.who_allows(server, caller) != WhoAllows::Nobody {
            declared = declared.with(ClientCapabilities::SAMPLING);
        }
        declared
    }

    /// Whether a request of the server may be answered by the model for this caller.
    fn who_allows(&self, server: &str, caller: ClientCapabilities) -> WhoAllows {
        let Some(sampler) = self.sampler().filter(|_| !caller.has(ClientCapabilities::SAMPLING)) else {
            return WhoAllows::Nobody;
        };
        if sampler.allows(server) {
            WhoAllows::Settings
        } else if caller.has(ClientCapabilities::ELICITATION_FORM) {
            WhoAllows::Caller
        } else if self.approver.get().is_some_and(|approver| approver.is_available()) {
            WhoAllows::Approver
        } else {
            WhoAllows::Nobody
        }
    }

    pub(crate) fn answerer(
        &self,
        server: &str,
        caller: ClientCapabilities,
        request: &InputRequest,
    ) -> Answerer {
        match request {
            InputRequest::Roots if self.manager.declares_roots(server) => Answerer::Roots,
            InputRequest::Sampling { .. } if !caller.has(ClientCapabilities::SAMPLING) => Answerer::Model,
            InputRequest::Roots
            | InputRequest::Sampling { .. }
            | InputRequest::Form { .. }
            | InputRequest::Url { .. } => Answerer::Client,
        }
    }

    pub(crate) fn roots(&self, server: &str) -> InputReply {
        let gone = || InputReply::Declined("the roots of this client are not available".to_owned());
        self.manager.roots_reply(server).unwrap_or_else(gone)
    }

    /// Asks whoever is not the caller, if somebody must be, and then the model. `Err` is for the server.
    pub(crate) async fn answer(
        &self,
        server: &str,
        caller: &SamplingCaller,
        capabilities: ClientCapabilities,
        params: &Json,
    ) -> Result<Answered, &'static str> {
        let mut sampling = self.begin(server, caller, params);
        let allowed_by = match self.who_allows(server, capabilities) {
            WhoAllows::Caller => {
                sampling.leave();
                return Ok(Answered::Ask(approval_form(server, params)));
            }
            WhoAllows::Settings => AllowedBy::Settings,
            WhoAllows::Approver => {
                let question = SamplingQuestion {
                    server: server.to_owned(),
                    principal: caller.principal.id().to_owned(),
                    request: review_request(params),
                };
                let approver = self.approver.get().ok_or(NO_MODEL)?;
                if !approver.ask(question).await {
                    sampling.finish(SamplingStatus::Refused(NOT_ALLOWED), 0);
                    return Err(NOT_ALLOWED);
                }
                AllowedBy::Operator
            }
            WhoAllows::Nobody => {
                sampling.finish(SamplingStatus::Refused(NO_MODEL), 0);
                return Err(NO_MODEL);
            }
        };
        sampling.allowed_by = Some(allowed_by);
        self.sample(server, params, sampling).await.map(Answered::Result)
    }

    /// The same after the caller was asked with the form.
    pub(crate) async fn answer_if_allowed(
        &self,
        server: &str,
        caller: &SamplingCaller,
        params: &Json,
        allowed: Result<(), &'static str>,
    ) -> Result<Json, &'static str> {
        let mut sampling = self.begin(server, caller, params);
        if let Err(reason) = allowed {
            sampling.finish(SamplingStatus::Refused(reason), 0);
            return Err(reason);
        }
        sampling.allowed_by = Some(AllowedBy::User);
        self.sample(server, params, sampling).await
    }

    /// For a question on the connection that all callers share: nobody can be asked, so the settings must allow it.
    pub(crate) async fn answer_for_all(&self, server: &str, params: &Json) -> InputReply {
        let nobody = SamplingCaller::default();
        let mut sampling = self.begin(server, &nobody, params);
        let answer = match self.who_allows(server, ClientCapabilities::NONE) {
            WhoAllows::Settings => {
                sampling.allowed_by = Some(AllowedBy::Settings);
                self.sample(server, params, sampling).await
            }
            WhoAllows::Caller | WhoAllows::Approver | WhoAllows::Nobody => {
                sampling.finish(SamplingStatus::Refused(NO_MODEL), 0);
                Err(NO_MODEL)
            }
        };
        answer.map_or_else(|reason| InputReply::Declined(reason.to_owned()), InputReply::Result)
    }

    /// The result of `sampling/createMessage`, after it was allowed.
    async fn sample(
        &self,
        server: &str,
        params: &Json,
        sampling: RunningSampling<'_>,
    ) -> Result<Json, &'static str> {
        let Some(sampler) = self.sampler() else {
            sampling.finish(SamplingStatus::Failed(NO_MODEL), 0);
            return Err(NO_MODEL);
        };
        match sampler.answer(params).await {
            Ok(result) => {
                sampling.finish(SamplingStatus::Answered, result.as_str().len());
                Ok(result)
            }
            Err(error) => {
                tracing::warn!(server, %error, "no model answers a server");
                sampling.finish(SamplingStatus::Failed(error.for_server()), 0);
                Err(error.for_server())
            }
        }
    }
}

fn approval_form(server: &str, params: &Json) -> InputRequest {
    let server = spile_core::text::escape_line(server);
    let message = format!(
        "The server {server} asks a model. The gateway can answer with its own.\n\n{}",
        review_request(params)
    );
    let schema = Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object(ALLOW, |allow| {
                allow.str("type", "boolean").str("title", "Let the model answer?").bool("default", false);
            });
        });
    });
    InputRequest::Form { message, schema }
}

/// Whether the user allowed it. A box that is not ticked, or left out, is a no.
pub(crate) fn is_allowed(response: &InputResponse) -> Result<(), &'static str> {
    match response.elicit_result() {
        Some(ElicitResult::Accepted(content)) if content.is_some_and(is_ticked) => Ok(()),
        _ => Err(NOT_ALLOWED),
    }
}

/// The same for the reply to a form that was sent to the client directly.
pub(crate) fn is_reply_allowed(reply: &InputReply) -> Result<(), &'static str> {
    let InputReply::Result(result) = reply else { return Err(NOT_ALLOWED) };
    let doc = result.to_doc();
    let is_accepted = doc.root().get("action").is_some_and(|action| action.eq_str("accept"));
    match is_accepted && doc.root().get("content").is_some_and(is_ticked) {
        true => Ok(()),
        false => Err(NOT_ALLOWED),
    }
}

fn is_ticked(content: Node<'_>) -> bool {
    content.get(ALLOW).and_then(|allow| allow.bool()).unwrap_or(false)
}
