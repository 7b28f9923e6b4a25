//! All configured servers together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use servers::config::{Configuration, ConfiguredServer, SamplingSettings};
use servers::decisions::{Decisions, Permission};
use servers::definitions::DefinitionPins;
use servers::manager::{Manager, ManagerHost, ManagerOptions, ServerChange, ServerStatus};
use servers::oauth::CredentialStore;
use spile_core::{CatalogChange, ClientCapabilities, INSTRUCTIONS_BYTES_MAX, Platform};
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions, OpenError};
use wire::client::{IncomingInputRequest, InputReply, InputRequestKind};

use crate::connections::{CallerConnections, ConnectionPoolLimits};
use crate::local_answers::{LocalAnswers, SamplingApprover};
use crate::parked::{ParkedCalls, ParkedLimits};
use crate::provider::{Naming, RemoteProvider};
use crate::remote_server::RemoteServer;
use crate::samplings::SamplingObserver;

#[derive(Clone)]
pub struct GatewayOptions {
    pub manager: ManagerOptions,
    pub connections: ConnectionPoolLimits,
    /// Calls that wait for an answer of their caller: how many in all, how many of one principal, and for how long.
    pub waiting_calls_max: usize,
    pub waiting_calls_per_principal_max: usize,
    pub waiting_call_age_ms_max: u64,
    /// Longer instructions of a server are cut where they stand beside those of others.
    pub instructions_bytes_max: usize,
    /// What answers servers that ask for a model, where the caller's client cannot.
    pub sampling: Option<SamplingSettings>,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            manager: ManagerOptions::default(),
            connections: ConnectionPoolLimits::default(),
            waiting_calls_max: 1024,
            waiting_calls_per_principal_max: 32,
            waiting_call_age_ms_max: 600_000,
            instructions_bytes_max: INSTRUCTIONS_BYTES_MAX,
            sampling: None,
        }
    }
}

/// Connections and providers of all configured servers.
pub struct Gateway {
    manager: Arc<Manager>,
    servers: RwLock<BTreeMap<String, Arc<ServedRemote>>>,
    connections: Arc<CallerConnections>,
    parked: Arc<ParkedCalls>,
    local: Arc<LocalAnswers>,
    host: Arc<GatewayHost>,
    instructions_bytes_max: usize,
    is_stopping: Arc<AtomicBool>,
    tasks: Vec<tokio::task::AbortHandle>,
}

struct ServedRemote {
    server: Arc<RemoteServer>,
    own: Arc<RemoteProvider>,
    public: Arc<RemoteProvider>,
}

/// How often idle connections and old calls are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

impl Gateway {
    /// Starts connecting to every server that may be started, and returns at once.
    pub fn start(
        configured: Vec<(ConfiguredServer, Permission)>,
        options: GatewayOptions,
        host: Arc<dyn ManagerHost>,
        platform: Arc<dyn Platform>,
    ) -> Arc<Self> {
        let entries: Vec<(String, bool)> =
            configured.iter().map(|(server, _)| (server.name.clone(), wants_sharing(server))).collect();
        let host = Arc::new(GatewayHost {
            inner: host,
            gateway: OnceLock::new(),
            sampling_servers: RwLock::new(allowed_servers(options.sampling.as_ref())),
        });
        let process = options.manager.connection.process.clone();
        let manager = Arc::new(Manager::start(configured, options.manager.clone(), host.clone()));
        let local = Arc::new(LocalAnswers::new(manager.clone(), host.clone(), process, platform.clone()));
        local.set_model(options.sampling.as_ref());
        let parked = Arc::new(ParkedCalls::new(ParkedLimits {
            total_max: options.waiting_calls_max,
            per_principal_max: options.waiting_calls_per_principal_max,
            age_ms_max: options.waiting_call_age_ms_max,
        }));
        let gateway = Arc::new_cyclic(|weak: &Weak<Self>| {
            let tasks = vec![
                tokio::spawn(follow_lists(weak.clone(), manager.clone())).abort_handle(),
                tokio::spawn(sweep(weak.clone(), platform)).abort_handle(),
            ];
            Self {
                manager,
                servers: RwLock::default(),
                connections: Arc::new(CallerConnections::new(options.connections)),
                parked,
                local,
                host: host.clone(),
                instructions_bytes_max: options.instructions_bytes_max,
                is_stopping: Arc::default(),
                tasks,
            }
        });
        for (name, wants_sharing) in entries {
            gateway.add(&name, wants_sharing);
        }
        // Set once, here. What servers reported before is in their lists.
        let _ = host.gateway.set(Arc::downgrade(&gateway));
        gateway
    }

    fn add(&self, name: &str, wants_sharing: bool) {
        let server = Arc::new(RemoteServer::new(
            name.to_owned(),
            self.manager.clone(),
            wants_sharing,
            self.connections.clone(),
            self.parked.clone(),
            self.local.clone(),
            self.is_stopping.clone(),
        ));
        let provider =
            |naming| Arc::new(RemoteProvider::new(server.clone(), naming, self.instructions_bytes_max));
        let (own, public) = (provider(Naming::Own), provider(Naming::Public));
        let served = Arc::new(ServedRemote { server, own, public });
        self.servers.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), served);
    }

    /// Starts, starts again and ends servers until they are those of the configuration. A server that is started again has
    /// new providers: what [`Self::provider`] returned before no longer reaches it.
    pub fn apply(&self, configuration: &Configuration, decisions: &Decisions) -> Vec<ServerChange> {
        self.local.set_model(configuration.sampling.as_ref());
        *self.host.sampling_servers.write().unwrap_or_else(PoisonError::into_inner) =
            allowed_servers(configuration.sampling.as_ref());
        let changes = self.manager.apply(configuration, decisions);
        for change in &changes {
            let name = match change {
                ServerChange::Added(name) | ServerChange::Changed(name) | ServerChange::Removed(name) => name,
                ServerChange::RootsChanged(name) => {
                    self.connections.roots_changed(name);
                    continue;
                }
            };
            self.servers.write().unwrap_or_else(PoisonError::into_inner).remove(name);
            self.connections.close_server(name);
            if let Some(server) = configuration.find(name) {
                self.add(name, wants_sharing(server));
            }
        }
        changes
    }

    fn find(&self, server: &str) -> Option<Arc<ServedRemote>> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).get(server).cloned()
    }

    fn all(&self) -> Vec<Arc<ServedRemote>> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// In the order of their names.
    pub fn server_names(&self) -> Vec<String> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// What the operator should know about a server besides its status.
    pub fn warning(&self, server: &str) -> Option<&'static str> {
        self.find(server)?.server.unshared_reason()
    }

    /// A server as a provider.
    pub fn provider(&self, server: &str, naming: Naming) -> Option<Arc<RemoteProvider>> {
        let served = self.find(server)?;
        Some(match naming {
            Naming::Own => served.own.clone(),
            Naming::Public => served.public.clone(),
        })
    }

    /// Who is asked whether a model may answer a server, where the user of the calling client cannot be. Set once.
    pub fn set_sampling_approver(&self, approver: Arc<dyn SamplingApprover>) {
        self.local.set_approver(approver);
    }

    /// Who is told of samplings that the gateway answers or refuses. Set once.
    pub fn set_sampling_observer(&self, observer: Arc<dyn SamplingObserver>) {
        self.local.set_observer(observer);
    }

    /// Calls that wait for an answer, and connections that belong to one caller.
    pub fn open_counts(&self) -> (usize, usize) {
        (self.parked.count(), self.connections.count())
    }

    /// The process is about to end: what can go on in the next one is not cancelled from now on.
    pub fn prepare_to_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Cancels what waits, and closes every connection in an orderly way.
    pub async fn close(&self) {
        for task in &self.tasks {
            task.abort();
        }
        self.parked.clear();
        self.connections.close_all();
        self.manager.close().await;
    }

    /// Somebody reads what all servers offer.
    pub fn looked_at(&self) {
        self.server_names().iter().for_each(|name| self.manager.looked_at(name));
    }

    /// Offers what the servers offer now. Otherwise that happens a moment after they have changed.
    pub fn refresh(&self) {
        for served in self.all() {
            served.own.refresh();
            served.public.refresh();
        }
    }
}

async fn follow_lists(gateway: Weak<Gateway>, manager: Arc<Manager>) {
    let mut changes = manager.subscribe();
    drop(manager);
    while changes.changed().await.is_ok() {
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.refresh();
    }
}

async fn sweep(gateway: Weak<Gateway>, platform: Arc<dyn Platform>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(gateway) = gateway.upgrade() else { return };
        let now_ms = platform.now_ms();
        gateway.parked.expire(now_ms);
        gateway.connections.close_idle(now_ms);
    }
}

fn wants_sharing(server: &ConfiguredServer) -> bool {
    server.entry.as_ref().is_ok_and(|entry| entry.is_shared)
}

/// The servers that the model answers whoever calls.
fn allowed_servers(sampling: Option<&SamplingSettings>) -> Vec<String> {
    sampling.map(|settings| settings.allow.clone()).unwrap_or_default()
}

/// The manager's host: what concerns calls and lists goes to the gateway, the rest to whoever started it.
struct GatewayHost {
    inner: Arc<dyn ManagerHost>,
    gateway: OnceLock<Weak<Gateway>>,
    /// Before there is a gateway to ask: servers that the settings allow to use the model.
    sampling_servers: RwLock<Vec<String>>,
}

impl ManagerHost for GatewayHost {
    fn env(&self, name: &str) -> Option<String> {
        self.inner.env(name)
    }

    fn home(&self) -> Option<PathBuf> {
        self.inner.home()
    }

    fn credentials(&self) -> Option<CredentialStore> {
        self.inner.credentials()
    }

    fn definitions(&self) -> Option<DefinitionPins> {
        self.inner.definitions()
    }

    fn access_token(
        &self,
        url: &url::Url,
        rejected: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> {
        self.inner.access_token(url, rejected)
    }

    fn random(&self) -> u32 {
        self.inner.random()
    }

    fn connect_in_process(
        &self,
        server: &str,
        options: &ConnectionOptions,
        handler: &Arc<dyn ClientHandler>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<Connection, OpenError>> + Send>>> {
        self.inner.connect_in_process(server, options, handler)
    }

    fn capabilities(&self, server: &str) -> ClientCapabilities {
        let allowed = self.sampling_servers.read().unwrap_or_else(PoisonError::into_inner);
        match allowed.iter().any(|allowed| allowed == server) {
            true => ClientCapabilities::SAMPLING,
            false => ClientCapabilities::NONE,
        }
    }

    fn on_input_request(
        &self,
        server: &str,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        if let (InputRequestKind::Sampling, Some(gateway)) = (request.kind, &gateway) {
            let (local, server) = (gateway.local.clone(), server.to_owned());
            return Box::pin(async move { local.answer_for_all(&server, &request.params).await });
        }
        if let Some(served) = gateway.and_then(|gateway| gateway.find(server)) {
            served.server.on_shared_question();
        }
        let reason = "this connection serves several callers, and none of them can be asked".to_owned();
        Box::pin(std::future::ready(InputReply::Declined(reason)))
    }

    fn on_event(&self, server: &str, event: &ConnectionEvent) {
        if let Some(gateway) = self.gateway.get().and_then(Weak::upgrade)
            && let Some(served) = gateway.find(server)
        {
            served.server.on_shared_event(event);
            match event {
                ConnectionEvent::CatalogChanged(CatalogChange::Resource(uri)) => {
                    served.own.resource_changed(uri);
                    served.public.resource_changed(uri);
                }
                ConnectionEvent::CatalogChanged(change) => served.server.changed_lists.add(change),
                _ => {}
            }
        }
        self.inner.on_event(server, event);
    }

    fn on_lists_read(&self, server: &str) {
        if let Some(gateway) = self.gateway.get().and_then(Weak::upgrade)
            && let Some(served) = gateway.find(server)
        {
            let changed = served.server.changed_lists.take();
            served.own.refresh_and_report(&changed);
            served.public.refresh_and_report(&changed);
        }
        self.inner.on_lists_read(server);
    }

    fn on_status(&self, server: &str, status: &ServerStatus) {
        self.inner.on_status(server, status);
    }
}
