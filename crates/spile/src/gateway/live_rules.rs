//! Follows the settings of the gateway itself: rules, mode, hooks and audit count from the next call on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use file_watch::{FileChange, FileStamp, ReadStamp};
use permissions::modes::Mode;

use super::decisions::{Decider, GatewaySettings};

/// How soon a changed file is noticed.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Where the settings are.
pub(super) struct SettingsFiles {
    /// The files of `--config`.
    pub(super) run_files: Vec<PathBuf>,
    /// `gateway.json`, which is read if no file was named.
    pub(super) own_file: Option<PathBuf>,
    /// The mode of the command line.
    pub(super) mode: Option<Mode>,
}

impl SettingsFiles {
    pub(super) fn load(&self) -> anyhow::Result<GatewaySettings> {
        GatewaySettings::load(&self.run_files, self.own_file.clone(), self.mode)
    }

    fn stamps(&self) -> Vec<FileStamp> {
        let own = self.own_file.iter().filter(|_| self.run_files.is_empty());
        self.run_files.iter().chain(own).map(|path| FileStamp::of_path(path)).collect()
    }

    /// Taken before the files are read: a change meanwhile is one more.
    pub(super) fn read_stamps(&self) -> Vec<ReadStamp> {
        let now = SystemTime::now();
        self.stamps().into_iter().map(|stamp| ReadStamp::before_read(stamp, now)).collect()
    }

    fn is_unchanged(&self, since: &[ReadStamp]) -> bool {
        let now = SystemTime::now();
        let mut pairs = since.iter().zip(self.stamps());
        pairs.all(|(read, stamp)| read.compare(stamp, now) == FileChange::Unchanged)
    }
}

/// Applies every change, for as long as the gateway runs. Settings that are not valid change nothing.
pub(super) async fn follow(files: SettingsFiles, mut read: ReadSettings, decider: Arc<Decider>) {
    let files = Arc::new(files);
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        let (files, decider) = (files.clone(), decider.clone());
        let polled = tokio::task::spawn_blocking(move || files.poll(read, &decider));
        // A panic in it is a bug; the rules stay as they are.
        let Ok(now_read) = polled.await else { return };
        read = now_read;
    }
}

/// What was read last, and when.
pub(super) struct ReadSettings {
    pub(super) stamps: Vec<ReadStamp>,
    pub(super) text: String,
}

impl SettingsFiles {
    fn poll(&self, read: ReadSettings, decider: &Decider) -> ReadSettings {
        if self.is_unchanged(&read.stamps) {
            return read;
        }
        let stamps = self.read_stamps();
        let applied = match self.load() {
            Ok(settings) if settings.text == read.text => return ReadSettings { stamps, ..read },
            Ok(settings) => {
                let text = settings.text.clone();
                decider.apply(settings.into_settings()).map(|()| text)
            }
            Err(error) => Err(error),
        };
        match applied {
            Ok(text) => {
                tracing::info!("the rules, hooks or audit settings have changed");
                ReadSettings { stamps, text }
            }
            Err(error) => {
                tracing::warn!("the rules, hooks and audit settings stay as they were: {error:#}");
                ReadSettings { stamps, ..read }
            }
        }
    }
}
