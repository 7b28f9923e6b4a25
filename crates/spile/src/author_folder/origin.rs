//! Where the code of a folder came from, as far as the files tell: nobody can know whether it is trusted.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use script::Bundle;

/// Programs that download files mark them with these extended attributes.
const DOWNLOAD_MARKS: [&str; 2] = ["user.xdg.origin.url", "com.apple.quarantine"];

/// How many packages a message names.
const PACKAGES_SHOWN_MAX: usize = 3;

/// Why some of the code was probably not written by whoever serves it.
pub(super) fn foreign_code(root: &Path, bundle: &Bundle) -> Option<String> {
    let modules = bundle.module_files();
    let own_id = rustix::process::geteuid().as_raw();
    for file in modules {
        let path = root.join(file);
        if DOWNLOAD_MARKS.iter().any(|mark| has_attribute(&path, mark)) {
            return Some(format!("`{file}` was downloaded"));
        }
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.uid() != own_id) {
            return Some(format!("`{file}` belongs to another user"));
        }
    }
    let packages: Vec<&str> = bundle.packages().into_iter().collect();
    let names = crate::layout::join_names(&packages, PACKAGES_SHOWN_MAX, None);
    match packages.len() {
        0 => None,
        1 => Some(format!("the package {names}")),
        _ => Some(format!("the packages {names}")),
    }
}

fn has_attribute(path: &Path, name: &str) -> bool {
    // No buffer: only whether there is one matters.
    rustix::fs::getxattr(path, name, &mut [0_u8; 0]).is_ok()
}
