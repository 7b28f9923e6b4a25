//! The layout of the development cache. `setup` fills it; the other commands and the tests read it.
//!
//! The cache is outside the clone so that it survives fresh checkouts. The tests in
//! `crates/testkit` and `crates/spile` know the same layout, and read `schemas/<protocol date>.json` from it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

pub struct Cache {
    root: PathBuf,
}

/// The two releases of the official conformance suite that we run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The newest: both eras, the tasks extension, every message checked with its schema.
    Alpha,
    /// npm's `latest`: older scenarios, some of them stricter.
    Stable,
}

impl Suite {
    pub fn version(self) -> &'static str {
        match self {
            Self::Alpha => "0.2.0-alpha.12",
            Self::Stable => "0.1.16",
        }
    }
}

impl Cache {
    pub fn locate() -> Result<Self> {
        let root = match std::env::var_os("SPILE_DEV_CACHE") {
            Some(set) => PathBuf::from(set),
            None => {
                let home =
                    std::env::var_os("HOME").context("HOME is not set; set SPILE_DEV_CACHE to a folder")?;
                Path::new(&home).join(".cache/spile-dev")
            }
        };
        ensure!(root.is_absolute(), "SPILE_DEV_CACHE must be an absolute path, not `{}`", root.display());
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The npm prefix with Node, the newest suite and both TypeScript SDKs.
    pub fn node_prefix(&self) -> PathBuf {
        self.root.join("node")
    }

    /// The npm prefix with the TypeScript SDK 2 for servers.
    pub fn typescript_2_servers(&self) -> PathBuf {
        self.root.join("ts2-servers")
    }

    /// The npm prefix of the older suite, which needs other versions of the same packages.
    pub fn stable_suite_prefix(&self) -> PathBuf {
        self.root.join(format!("conformance-{}", Suite::Stable.version()))
    }

    pub fn node(&self) -> PathBuf {
        self.node_prefix().join("node_modules/.bin/node")
    }

    pub fn suite(&self, suite: Suite) -> PathBuf {
        let prefix = match suite {
            Suite::Alpha => self.node_prefix(),
            Suite::Stable => self.stable_suite_prefix(),
        };
        prefix.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    pub fn venv(&self) -> PathBuf {
        self.root.join("venv")
    }

    pub fn python(&self) -> PathBuf {
        self.venv().join("bin/python")
    }

    /// A Python that has openpyxl.
    pub fn openpyxl_python(&self) -> PathBuf {
        self.root.join("openpyxl/bin/python")
    }

    /// A Python that has DuckDB.
    pub fn duckdb_python(&self) -> PathBuf {
        self.root.join("duckdb/bin/python")
    }

    /// MCP Toolbox for Databases.
    pub fn toolbox(&self) -> PathBuf {
        self.root.join("toolbox/bin/toolbox")
    }

    /// The results of the last conformance runs.
    pub fn conformance_results(&self) -> PathBuf {
        self.root.join("conformance-results")
    }

    /// Build output for CI, so that dependencies need not be built again for each fresh clone.
    pub fn target_dir(&self) -> PathBuf {
        self.root.join("target")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("log").join(format!("{name}.log"))
    }
}
