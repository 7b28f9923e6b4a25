//! Kills the program at any instant while it writes: no acknowledged write is lost, none is applied twice, no file is
//! torn.
//!
//! Each round starts the program, sends many creates at once, each with its own idempotency key, and kills it at a time
//! that the seed determines. The next round repeats unanswered calls with the same keys. Every record must then exist
//! exactly once, in the lists of the program and for another reader.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::stdio_client::StdioClient;

/// The format that stores the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFormat {
    Csv,
    Xlsx,
    Sqlite,
    JsonLines,
}

impl StorageFormat {
    pub const ALL: [Self; 4] = [Self::Csv, Self::Xlsx, Self::Sqlite, Self::JsonLines];

    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Xlsx => "xlsx",
            Self::Sqlite => "sqlite",
            Self::JsonLines => "jsonl",
        }
    }

    pub fn file_name(self) -> &'static str {
        match self {
            Self::Csv => "log.csv",
            Self::Xlsx => "log.xlsx",
            Self::Sqlite => "log.db",
            Self::JsonLines => "log.jsonl",
        }
    }
}

/// One crash test.
pub struct CrashTest<'a> {
    pub spile: &'a Path,
    pub format: StorageFormat,
    /// The initial file: columns `id` and `word`, any number of rows.
    pub initial_file: &'a [u8],
    /// Reads the ids in a file without our own reader.
    pub read_ids: &'a dyn Fn(&Path) -> Result<Vec<String>>,
    pub rounds: u32,
    pub seed: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct CrashReport {
    pub rounds: u32,
    pub acknowledged: u64,
    /// Unanswered calls that had been applied, and those that had not.
    pub replayed: u64,
    pub reapplied: u64,
}

const CALLS_PER_ROUND: u32 = 8;
/// The longest time between the first call and the kill.
const KILL_DELAY_US_MAX: u64 = 60_000;
/// All records are checked every so many rounds, and at the end.
const CHECK_EVERY_ROUNDS: u32 = 20;

impl CrashTest<'_> {
    pub fn run(&self) -> Result<CrashReport> {
        let folder = tempfile::tempdir()?;
        let path = self.write_project(folder.path())?;
        let mut tally = CrashReport::default();
        // The acknowledged ids.
        let mut acknowledged = BTreeSet::new();
        let mut unanswered: Vec<Value> = Vec::new();
        let mut chance = self.seed;
        for round in 0..self.rounds {
            let mut pipe = StdioClient::start(self.spile, folder.path())?;
            for arguments in std::mem::take(&mut unanswered) {
                let result = pipe.call("create_log", &arguments).context("repeating an unanswered call")?;
                match result["replayed"].as_bool() {
                    Some(true) => tally.replayed += 1,
                    _ => tally.reapplied += 1,
                }
                acknowledged.insert(record_id(&arguments));
            }
            let mut sent = BTreeMap::new();
            let alive = Duration::from_micros(next_random(&mut chance) % KILL_DELAY_US_MAX);
            // Wait for the first response, so that the program is up: an earlier kill would prove little.
            let first = record(round, 0);
            pipe.call("create_log", &first)?;
            acknowledged.insert(record_id(&first));
            tally.acknowledged += 1;
            for index in 1..CALLS_PER_ROUND {
                let arguments = record(round, index);
                let Some(id) = pipe.send("create_log", &arguments) else { break };
                sent.insert(id, arguments);
            }
            std::thread::sleep(alive);
            let answered = pipe.kill()?;
            for (id, arguments) in sent {
                match answered.get(&id) {
                    Some(Ok(_)) => {
                        tally.acknowledged += 1;
                        acknowledged.insert(record_id(&arguments));
                    }
                    Some(Err(error)) => bail!("round {round}: {error}"),
                    None => unanswered.push(arguments),
                }
            }
            tally.rounds += 1;
            if round % CHECK_EVERY_ROUNDS == CHECK_EVERY_ROUNDS - 1 {
                self.check_records(folder.path(), &path, &acknowledged, &unanswered)
                    .with_context(|| format!("round {round}"))?;
            }
        }
        let mut pipe = StdioClient::start(self.spile, folder.path())?;
        for arguments in std::mem::take(&mut unanswered) {
            pipe.call("create_log", &arguments)?;
            acknowledged.insert(record_id(&arguments));
        }
        pipe.close()?;
        self.check_records(folder.path(), &path, &acknowledged, &[])?;
        let left = temporary_files(folder.path())?;
        ensure!(left.is_empty(), "temporary files are left: {left:?}");
        Ok(tally)
    }

    fn write_project(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(self.format.file_name());
        std::fs::write(&path, self.initial_file)?;
        let table = if self.format == StorageFormat::Sqlite { "table = \"log\"\n" } else { "" };
        let manifest = format!(
            "[server]\nname = \"log\"\n[sources.log]\npath = \"{}\"\n[collections.log]\nsource = \"log\"\n{table}\
             key = \"id\"\noperations = [\"get\", \"list\", \"create\"]\nrows_max = 1000\nbytes_max = 1048576\n",
            self.format.file_name()
        );
        std::fs::write(folder.join("spile.toml"), manifest)?;
        Ok(path)
    }

    /// Checks that every acknowledged record exists once, every unanswered one at most once, and no other.
    fn check_records(
        &self,
        folder: &Path,
        path: &Path,
        acknowledged: &BTreeSet<String>,
        open: &[Value],
    ) -> Result<()> {
        let mut pipe = StdioClient::start(self.spile, folder)?;
        let mut listed = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let arguments = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let page = pipe.call("list_log", &arguments)?;
            let items = page["items"].as_array().context("a page has items")?;
            listed.extend(items.iter().map(|item| item["id"].as_str().unwrap_or_default().to_owned()));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        pipe.close()?;
        let read_elsewhere = (self.read_ids)(path).context("another reader")?;
        let unanswered: BTreeSet<String> = open.iter().map(record_id).collect();
        for (reader, ids) in [("our list", listed), ("another reader", read_elsewhere)] {
            let mut unique = BTreeSet::new();
            for id in ids.into_iter().filter(|id| id != "first") {
                ensure!(
                    acknowledged.contains(&id) || unanswered.contains(&id),
                    "{reader}: `{id}` was never created"
                );
                ensure!(unique.insert(id.clone()), "{reader}: `{id}` is there twice");
            }
            if let Some(lost) = acknowledged.iter().find(|id| !unique.contains(*id)) {
                bail!("{reader}: `{lost}` was acknowledged and is lost");
            }
        }
        Ok(())
    }
}

fn record(round: u32, index: u32) -> Value {
    let id = format!("r{round}-{index}");
    json!({ "id": id, "word": format!("word {index}, \"quoted\" é"), "idempotency_key": format!("key-{id}") })
}

fn record_id(arguments: &Value) -> String {
    arguments["id"].as_str().unwrap_or_default().to_owned()
}

/// Temporary files that a kill in the middle of a write leaves until the next write.
fn temporary_files(folder: &Path) -> Result<Vec<String>> {
    let names = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    Ok(names.into_iter().filter(|name| name.ends_with(".tmp") || name.contains("spile-tmp")).collect())
}

/// The next number of the sequence that the seed determines.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
