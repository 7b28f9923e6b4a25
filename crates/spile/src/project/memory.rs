//! How large a file may be to be held in memory, and where larger ones are imported.

use std::path::PathBuf;
use std::sync::OnceLock;

/// If the machine does not say how much memory it has.
const MEMORY_BYTES_DEFAULT: u64 = 8 << 30;
const SHARE: u64 = 4;

/// A quarter of the memory that this process may use.
pub(super) fn default_bytes_max() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| memory_bytes().unwrap_or(MEMORY_BYTES_DEFAULT) / SHARE)
}

/// The memory of the machine, or of the container if that has less.
fn memory_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| parse_meminfo(&text));
    let container = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(container).min()
}

/// `MemTotal:       16303428 kB`
fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The folder of imports.
pub(super) fn import_folder() -> PathBuf {
    cache_folder("imports")
}

/// A folder in the cache of the user, or below the temporary folder.
pub(super) fn cache_folder(name: &str) -> PathBuf {
    let dir = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = dir("XDG_CACHE_HOME").or_else(|| Some(dir("HOME")?.join(".cache")));
    match cache {
        Some(cache) => cache.join("spile").join(name),
        #[cfg(unix)]
        None => std::env::temp_dir().join(format!("spile-{name}-{}", rustix::process::getuid().as_raw())),
        #[cfg(not(unix))]
        None => std::env::temp_dir().join(format!("spile-{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_meminfo;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemTotal:       16303428 kB\nMemFree:         123456 kB\n";
        assert_eq!(parse_meminfo(text), Some(16_303_428 * 1024));
        assert_eq!(parse_meminfo("MemFree: 1 kB\n"), None);
        assert_eq!(parse_meminfo("MemTotal: lots\n"), None);
    }
}
