//! A compiled contract as a provider: binds arguments, reads or writes, builds the result.
//!
//! A short read runs inline, on the task that received the call, unless it would have to wait for a lock or a file. A
//! long or waiting read and every write run on the blocking thread pool; a read there is cancelled when its caller has
//! gone away.

mod complete;
mod confirm;
mod error;
mod export;
mod links;
mod overview;
mod progress;
mod read;
mod request;
mod rules;
mod statement;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contract::bind::{self, BoundValue, Scope};
use contract::confirmation::WriteOperation;
use contract::source::{
    CancelFlag, PreparedRequest, PreparedStatement, ProgressUnit, ReadRequest, Reader, Writer,
};
use contract::{Contract, ToolOperation, ValueRef};
use hashbrown::HashMap;
use spile_core::{
    Call, CallContext, CallError, CallTarget, Caller, CallerRoles, Catalog, ContentBlock, ItemKind, Journal,
    Outcome, Platform, Principal, Provider, RoleView, Run, ToolError,
};

use self::links::{FollowedLinks, LinkedArguments};
use self::read::{ListPage, ListRequest};
use state::keyring::Keyring;

/// A contract together with its readers, writers and statements.
#[derive(Clone)]
pub struct ContractProvider(Arc<ProviderInner>);

/// The readers, writers, statements and requests of a contract.
#[derive(Default)]
pub struct ContractBackends {
    /// One for each collection of the contract, in order.
    pub readers: Vec<Arc<dyn Reader>>,
    /// One for each collection of the contract, in order; `None` if the collection is read-only.
    pub writers: Vec<Option<Arc<dyn Writer>>>,
    /// One for each statement of the contract, in order.
    pub statements: Vec<Arc<dyn PreparedStatement>>,
    /// One for each request of the contract, in order.
    pub requests: Vec<Arc<dyn PreparedRequest>>,
    /// Those of the contracts of the roles, in order.
    pub roles: Vec<Self>,
}

struct ProviderInner {
    contract: Contract,
    backends: ContractBackends,
    tool_index: HashMap<Box<str>, usize, foldhash::quality::RandomState>,
    catalog: Arc<Catalog>,
    keyring: Arc<Keyring>,
    /// Digest of the columns and the key of each collection. Cursors are bound to it.
    shape_digests: Vec<[u8; 32]>,
    /// What callers with each role of the contract see, in order.
    roles: Vec<Arc<ContractProvider>>,
}

impl ContractProvider {
    /// `keyring` seals cursors. A contract with the same columns and key accepts the cursors of another one.
    pub fn new(contract: Contract, mut backends: ContractBackends, keyring: Arc<Keyring>) -> Self {
        let role_backends = std::mem::take(&mut backends.roles);
        let roles = contract.roles.iter().flat_map(|roles| &roles.roles).zip(role_backends);
        let roles = roles
            .map(|(role, backends)| Arc::new(Self::new(role.contract.clone(), backends, keyring.clone())))
            .collect();
        let tool_index =
            contract.tools.iter().enumerate().map(|(index, tool)| (tool.name.as_str().into(), index));
        let has_lists =
            contract.tools.iter().any(|tool| matches!(tool.operation, ToolOperation::List { .. }));
        let templates = overview::resource_template(&contract).into_iter();
        let catalog = Catalog {
            resources: overview::resource(&contract).into_iter().collect(),
            resource_templates: templates.chain(has_lists.then(export::resource_template)).collect(),
            tools: contract.tools.iter().map(|tool| tool.to_catalog_tool(&contract)).collect(),
            list_changed: true,
            instructions: contract.instructions.clone(),
            rate_limit: contract.rate_limit,
            ..Catalog::default()
        };
        let shape_digests = contract.collections.iter().map(|collection| collection.shape.digest());
        Self(Arc::new(ProviderInner {
            tool_index: tool_index.collect(),
            catalog: Arc::new(catalog),
            keyring,
            shape_digests: shape_digests.collect(),
            roles,
            contract,
            backends,
        }))
    }
}

impl Provider for ContractProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.clone()
    }

    /// The id of the call is the idempotency key of its write.
    fn repeats_rounds_safely(&self) -> bool {
        true
    }

    fn guarantees_output_schemas(&self) -> bool {
        true
    }

    fn roles(&self) -> Option<Arc<dyn CallerRoles>> {
        self.0.contract.roles.clone().map(|roles| roles as _)
    }

    fn role_view(&self, role: &str) -> RoleView {
        let roles = self.0.contract.roles.iter().flat_map(|roles| &roles.roles).zip(&self.0.roles);
        match roles.into_iter().find(|(one, _)| one.name == role) {
            Some((_, provider)) => RoleView::Provider(provider.clone()),
            None => RoleView::Nothing,
        }
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        if call.target == CallTarget::Resource {
            return self.0.read_overview(&call.name()).map_or_else(|| self.read_export(call, cx), Run::Now);
        }
        let name = call.name();
        let Some(index) = self.0.tool_index.get(&*name).copied() else {
            return Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: name.into_owned() });
        };
        if self.0.contract.tools[index].long_running && cx.events.wants_progress() {
            return self.run_blocking(index, call, cx);
        }
        match self.0.execute(index, call, cx.caller, None, &**cx.platform) {
            Ok(Some(outcome)) => Run::Now(outcome),
            Ok(None) => match self.run_quickly(index, call, cx) {
                Some(run) => run,
                None => self.run_blocking(index, call, cx),
            },
            Err(error) => Run::now(*error),
        }
    }
}

impl ContractProvider {
    pub fn contract(&self) -> &Contract {
        &self.0.contract
    }

    /// The provider that a caller sees; `None` if the contract has roles and the caller has none of them.
    pub fn of_caller(&self, principal: &Principal) -> Option<&Self> {
        let Some(roles) = &self.0.contract.roles else { return Some(self) };
        self.0.roles.get(roles.role_of(principal)?).map(|provider| &**provider)
    }

    /// Waits for one row without a thread, if its source can do that. What is not answered at once runs on the blocking
    /// thread pool, from the beginning. So does what a role restricts.
    fn run_quickly(&self, index: usize, call: &Call, cx: &CallContext<'_>) -> Option<Run> {
        let ToolOperation::Get { collection } = self.0.contract.tools[index].operation else { return None };
        let found = &self.0.contract.collections[collection];
        let has_links = !bind::include(found, call.arguments()).ok()?.is_empty();
        if found.rules.is_some() || has_links {
            return None;
        }
        let key = bind::key(found, call.arguments()).ok()?;
        let key: Vec<ValueRef<'_>> = key.iter().map(BoundValue::as_value_ref).collect();
        let read = self.0.backends.readers[collection].get_quickly(&key)?;
        let (inner, call, platform) = (self.0.clone(), Arc::new(call.clone()), cx.platform.clone());
        let blocking = self.blocking_outcome(index, call.clone(), cx);
        Some(Run::later(async move {
            let tool = &inner.contract.tools[index];
            match inner.quick_record(tool, collection, &call, &read.await, &*platform) {
                Some(outcome) => outcome,
                None => blocking.await,
            }
        }))
    }

    /// Runs a call on the blocking thread pool.
    fn run_blocking(&self, index: usize, call: &Call, cx: &CallContext<'_>) -> Run {
        Run::later(self.blocking_outcome(index, Arc::new(call.clone()), cx))
    }

    /// Bound arguments borrow from the call, so the call is cloned and its arguments are bound again there.
    fn blocking_outcome(
        &self,
        index: usize,
        call: Arc<Call>,
        cx: &CallContext<'_>,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        let (inner, platform) = (self.0.clone(), cx.platform.clone());
        let blocking = Arc::new(BlockingContext::new(cx));
        let cancel_on_drop = CancelOnDrop(blocking.clone());
        let tool = &self.0.contract.tools[index];
        let long_running = tool.long_running;
        let reader =
            tool.operation.collection().and_then(|collection| self.0.backends.readers.get(collection));
        let progress_unit = reader.map_or(ProgressUnit::Rows, |reader| reader.progress_unit());
        let events = cx.events.clone();
        let probes = self.0.link_probes(index, &call, cx.tools);
        async move {
            for probe in probes {
                if let Some(refused) = links::link_refusal(&probe.await) {
                    return refused;
                }
            }
            let context = blocking.clone();
            let work = tokio::task::spawn_blocking(move || {
                inner.execute(index, &call, &context.caller, Some(&context), &*platform)
            });
            let counter = (&blocking.rows_scanned, progress_unit);
            let joined = progress::await_with_progress(work, &events, counter, long_running).await;
            drop(cancel_on_drop);
            let internal_error = |log: String| Outcome::Failed(CallError::Internal { detail: log });
            match joined {
                Ok(Ok(outcome)) => outcome
                    .unwrap_or_else(|| internal_error("a call was refused on the blocking pool".into())),
                Ok(Err(error)) => Outcome::ToolFailed(error),
                Err(error) => internal_error(error.to_string()),
            }
        }
    }
}

/// What a call on a blocking thread takes with it, and what the async side sees of it.
struct BlockingContext {
    /// Set when the caller has gone away; the work should stop.
    cancelled: CancelFlag,
    /// Number of rows scanned so far, or of requests answered, for progress notifications.
    rows_scanned: AtomicU64,
    caller: Caller,
    journal: Journal,
}

impl BlockingContext {
    fn new(cx: &CallContext<'_>) -> Self {
        Self {
            cancelled: CancelFlag::default(),
            rows_scanned: AtomicU64::new(0),
            caller: cx.caller.clone(),
            journal: cx.journal.clone(),
        }
    }
}

struct CancelOnDrop(Arc<BlockingContext>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

impl ProviderInner {
    /// Executes a call. Without `blocking` only a short read runs, and only if it need not wait; `None` means that the
    /// call must run on the blocking pool.
    #[inline]
    fn execute(
        &self,
        index: usize,
        call: &Call,
        caller: &Caller,
        blocking: Option<&BlockingContext>,
        platform: &dyn Platform,
    ) -> Result<Option<Outcome>, Box<ToolError>> {
        let tool = &self.contract.tools[index];
        Ok(match &tool.operation {
            ToolOperation::Get { collection: collection_index } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection_index], self.reader(*collection_index, caller));
                let key = bind::key(collection, call.arguments())?;
                let include = bind::include(collection, call.arguments())?;
                if blocking.is_none() && (!include.is_empty() || !reader.can_run_inline(&ReadRequest::Get)) {
                    return Ok(None);
                }
                match blocking {
                    Some(blocking) if !include.is_empty() => {
                        Some(self.get_with_links(tool, *collection_index, &key, &include, blocking, platform))
                    }
                    blocking => self.get_record(tool, collection, &*reader, &key, blocking, platform),
                }
            }
            ToolOperation::List { collection: collection_index, filters, sorts } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection_index], self.reader(*collection_index, caller));
                let scope = Scope::new(&self.contract.collections, *collection_index);
                let listing = bind::list(scope, filters, sorts, call.arguments())?;
                let after = match &listing.cursor {
                    Some(cursor) => {
                        self.open_cursor(tool, Some(cursor), &listing.order_bytes(), &reader, platform)?
                    }
                    None => None,
                };
                let rows_max = listing.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
                let follows_links = !listing.include.is_empty()
                    || !listing.filters.linked().is_empty()
                    || listing.sort.iter().any(|by| !by.path.is_empty());
                let mut request =
                    ListRequest { listing, after, rows_max, followed: FollowedLinks::default() };
                if blocking.is_none()
                    && (follows_links || !reader.can_run_inline(&ReadRequest::List(&request.query(None))))
                {
                    return Ok(None);
                }
                if let (true, Some(blocking)) = (follows_links, blocking) {
                    let linked = LinkedArguments {
                        filters: request.listing.filters.linked(),
                        sort: &request.listing.sort,
                        ..LinkedArguments::default()
                    };
                    match self.follow_links(*collection_index, &linked, blocking, platform) {
                        Ok(followed) => request.followed = followed,
                        Err(outcome) => return Ok(Some(*outcome)),
                    }
                }
                let is_first = request.after.is_none();
                let page = self.list_page(tool, *collection_index, request, &reader, blocking, platform);
                page.map(|page| match page {
                    ListPage::WithExport(result) if is_first => {
                        match self.export_link(index, call, caller, platform) {
                            Some(link) => result.with_block(ContentBlock::ResourceLink(link)).into(),
                            None => result.into(),
                        }
                    }
                    ListPage::TooLongToExport(result) if is_first => {
                        result.with_block(ContentBlock::Text(export::no_export_notice())).into()
                    }
                    ListPage::WithExport(result)
                    | ListPage::TooLongToExport(result)
                    | ListPage::Plain(result) => result.into(),
                    ListPage::Failed(outcome) => outcome,
                })
            }
            operation => match (operation, blocking) {
                (ToolOperation::Statement { statement }, blocking) => {
                    return self.run_statement(tool, *statement, call, caller, blocking, platform);
                }
                (_, None) => None,
                (ToolOperation::Request { request }, Some(blocking)) => {
                    Some(self.send_request(tool, *request, call, blocking, platform)?)
                }
                (_, Some(blocking)) => Some(self.execute_blocking(index, call, blocking, platform)?),
            },
        })
    }

    /// Executes searches, aggregates and writes, which never run inline.
    fn execute_blocking(
        &self,
        index: usize,
        call: &Call,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<Outcome, Box<ToolError>> {
        let tool = &self.contract.tools[index];
        let collection_at = |index: &usize| &self.contract.collections[*index];
        let arguments = call.arguments();
        let (index, operation, write_arguments) = match &tool.operation {
            ToolOperation::Aggregate { collection, filters } => {
                let scope = Scope::new(&self.contract.collections, *collection);
                let arguments = bind::aggregate(scope, filters, arguments)?;
                return Ok(match self.aggregate(*collection, &arguments, blocking, platform) {
                    Ok((result, has_more)) => {
                        let link =
                            has_more.then(|| self.export_link(index, call, &blocking.caller, platform));
                        match link.flatten() {
                            Some(link) => result.with_block(ContentBlock::ResourceLink(link)).into(),
                            None => result.into(),
                        }
                    }
                    Err(outcome) => *outcome,
                });
            }
            ToolOperation::Search { collection, fields, filters, scan_rows_max } => {
                let scope = Scope::new(&self.contract.collections, *collection);
                let arguments = bind::search(scope, filters, arguments)?;
                let scope = read::SearchScope { fields, scan_rows_max: *scan_rows_max };
                return Ok(self.search_records(tool, *collection, &arguments, &scope, blocking, platform));
            }
            ToolOperation::Create { collection, fields } => (
                *collection,
                WriteOperation::Create,
                bind::create(collection_at(collection), fields, arguments)?,
            ),
            ToolOperation::Update { collection, fields } => (
                *collection,
                WriteOperation::Update,
                bind::update(collection_at(collection), fields, arguments)?,
            ),
            ToolOperation::Delete { collection } => {
                (*collection, WriteOperation::Delete, bind::delete(collection_at(collection), arguments)?)
            }
            ToolOperation::Get { .. }
            | ToolOperation::List { .. }
            | ToolOperation::Statement { .. }
            | ToolOperation::Request { .. } => {
                return Ok(Outcome::Failed(CallError::Internal {
                    detail: "reads and statements are executed elsewhere".into(),
                }));
            }
        };
        Ok(self.write_record(tool, index, operation, &write_arguments, blocking, platform))
    }
}
