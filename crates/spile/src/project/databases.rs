//! Databases behind a URL: opens them, and generates the manifest for one.

use std::path::Path;
use std::sync::Arc;

use contract::manifest::{DatabasePassword, DatabaseSettings, Manifest, SourceSettings};
use contract::names;
use contract::source::{
    DatabaseEngine, DatabaseUrl, IDEMPOTENCY_RECORDS_MAX, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, Reader,
    Source, SourceError, SourceFacts, SourceLocation, TableShape,
};
use database::{CallerMode, Database, Options, RecordStore, StoredRecord};
use ring::digest::{SHA256, digest};
use source::backups::BackupPolicy;
use state::idempotency::{IdempotencyFile, RecordLimits, RecordedCall};

use super::sources::{LoadedSource, SourceSpec, default_settings};
use super::{Project, Scan, SourceOpener, memory};
use crate::keys::state_folder;
use crate::mcp::os_keyring;

impl Project {
    /// Opens the database and generates the manifest for it.
    pub(super) fn generate_for_database(
        &self,
        url: &DatabaseUrl,
        opener: &mut SourceOpener<'_>,
        scan: &mut Scan,
    ) -> anyhow::Result<Option<Manifest>> {
        let location = SourceLocation::Database(url.clone());
        scan.locations.push(location.clone());
        let source_names = names::collection_names(&[url.database()]);
        let settings = default_settings(url.engine().into());
        let spec = SourceSpec {
            name: &source_names[0],
            location: &location,
            display_name: &location.to_string(),
            settings: &settings,
            tables: Vec::new(),
            declared_columns: Vec::new(),
            backups: BackupPolicy::Off,
            memory_bytes_max: memory::default_bytes_max(),
            folder: &self.folder,
            rest: None,
        };
        if let Err(error) = opener.open(&spec, self.source_failures) {
            scan.diagnostics.push(error);
            return Ok(None);
        }
        self.parse_generated(opener, scan)
    }
}

/// Collections without a description get the one that the source has for their table.
pub(super) fn adopt_descriptions(manifest: &mut Manifest, loaded: &[LoadedSource]) {
    for collection in manifest.collections.iter_mut().filter(|one| one.description.is_none()) {
        let source = loaded.iter().find(|one| one.name == collection.source.value);
        let wanted = collection.table.as_ref().unwrap_or(&collection.name);
        let mut tables = source.iter().flat_map(|one| &one.facts.tables);
        let table = tables.find(|table| table.name == wanted.value);
        collection.description = table.and_then(|table| table.description.clone());
    }
}

/// A path of the command line as messages show it: the URL of a database has no password.
pub(crate) fn shown_path(path: &Path) -> String {
    let url = path.to_str().and_then(DatabaseUrl::parse);
    url.map_or_else(|| path.display().to_string(), |url| url.to_string())
}

/// Creates the source. Nothing is connected yet.
pub(super) fn open(url: &DatabaseUrl, spec: &SourceSpec<'_>) -> Arc<dyn Source> {
    let SourceSettings::Database(settings) = spec.settings else { return Arc::new(Unusable::not_a_url()) };
    let opened = options(url, settings, spec.folder).and_then(|options| match settings.engine {
        DatabaseEngine::Postgres => Database::postgres(options),
        DatabaseEngine::MySql => Database::mysql(options),
    });
    match opened {
        Ok(database) => Arc::new(database),
        Err(error) => Arc::new(Unusable(error)),
    }
}

fn options(url: &DatabaseUrl, settings: &DatabaseSettings, folder: &Path) -> Result<Options, SourceError> {
    let mut options = Options::new(url.secret_text());
    options.password = match &settings.password {
        Some(DatabasePassword::Text(text)) => Some(text.expose().to_owned()),
        Some(DatabasePassword::File(file)) => Some(read_password(&folder.join(file))?),
        Some(DatabasePassword::Keyring(name)) => Some(keyring_password(name)?),
        None if url.has_password() => None,
        // As the clients of these databases do.
        None => std::env::var(match settings.engine {
            DatabaseEngine::Postgres => "PGPASSWORD",
            DatabaseEngine::MySql => "MYSQL_PWD",
        })
        .ok(),
    };
    options.ca_file = settings.ca_file.as_ref().map(|file| folder.join(file));
    options.schemas.clone_from(&settings.schemas);
    if let Some(connections) = settings.connections_max {
        options.connections_max = connections as usize;
    }
    options.require_readonly_role = settings.require_readonly_role;
    options.callers = match &settings.identity {
        None => CallerMode::Connection,
        Some(identity) if identity.role_from.is_some() => CallerMode::Role,
        Some(_) => CallerMode::Settings,
    };
    options.record_store = record_store(&url.to_string());
    Ok(options)
}

/// For roles that may not create a table of idempotency records: a file of this user for each database. `url` has no password.
fn record_store(url: &str) -> Option<Arc<dyn RecordStore>> {
    let name: String =
        digest(&SHA256, url.as_bytes()).as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let path = state_folder()?.join("idempotency").join(format!("{name}.sqlite"));
    let limits =
        RecordLimits { retention_ms: IDEMPOTENCY_RETENTION_MS, records_max: IDEMPOTENCY_RECORDS_MAX };
    Some(Arc::new(LocalStore(IdempotencyFile::new(path, limits))))
}

struct LocalStore(IdempotencyFile);

impl RecordStore for LocalStore {
    fn begin(&self, key: &IdempotencyKey, now_ms: u64) -> Result<StoredRecord, String> {
        Ok(match self.0.begin(&key.key_digest, &key.request_digest, now_ms)? {
            RecordedCall::New => StoredRecord::New,
            RecordedCall::Known { request, .. } if request != key.request_digest => {
                StoredRecord::OtherRequest
            }
            RecordedCall::Known { response: None, .. } => StoredRecord::Unknown,
            RecordedCall::Known { response: Some(response), .. } => StoredRecord::Done(response),
        })
    }

    fn finish(&self, key: &IdempotencyKey, response: &[u8]) -> Result<(), String> {
        self.0.finish(&key.key_digest, response)
    }

    fn abandon(&self, key: &IdempotencyKey) -> Result<(), String> {
        self.0.abandon(&key.key_digest)
    }
}

fn read_password(file: &Path) -> Result<String, SourceError> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(error) => {
            Err(incompatible(format!("cannot read the password file `{}`: {error}", file.display())))
        }
    }
}

/// The password of this name in the keyring of the desktop, as `secret-tool store` puts it there.
fn keyring_password(name: &str) -> Result<String, SourceError> {
    let keyring = os_keyring().map_err(|error| incompatible(error.to_string()))?.ok_or_else(|| {
        incompatible(format!(
            "there is no keyring for the password `{name}`: it needs a desktop session and `secret-tool`"
        ))
    })?;
    match keyring.get(name) {
        Ok(Some(password)) => Ok(password),
        Ok(None) => Err(incompatible(format!(
            "the keyring has no password `{name}`: run `secret-tool store --label={name} application spile name {name}`"
        ))),
        Err(error) => {
            Err(incompatible(format!("cannot read the password `{name}` from the keyring: {error}")))
        }
    }
}

fn incompatible(message: String) -> SourceError {
    SourceError::Incompatible { detail: message.clone(), message }
}

/// A database or an API that cannot be opened as it is declared: every use says why.
pub(super) struct Unusable(SourceError);

impl Unusable {
    pub(super) fn new(error: SourceError) -> Self {
        Self(error)
    }

    pub(super) fn not_an_api() -> Self {
        Self(incompatible("the settings of a REST API need its URL".into()))
    }

    pub(super) fn not_a_url() -> Self {
        Self(incompatible("the settings of a database need the URL of a database".into()))
    }
}

impl Source for Unusable {
    fn introspect(&self) -> Result<SourceFacts, SourceError> {
        Err(self.0.clone())
    }

    fn reader(&self, _shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        Err(self.0.clone())
    }
}
