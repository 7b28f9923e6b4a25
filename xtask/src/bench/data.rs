//! Data files of the bench, in a folder that is removed at the end.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A temporary folder; removed when dropped.
pub struct BenchDir(PathBuf);

impl BenchDir {
    pub fn new() -> anyhow::Result<BenchDir> {
        let path = std::env::temp_dir().join(format!("spile-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(BenchDir(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for BenchDir {
    fn drop(&mut self) {
        // If it cannot be removed, it stays among other temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
