//! No request leaves the folder, however it is written, and no file that leads elsewhere is served.

use std::sync::Arc;

use content::NoBackend;

use crate::harness::{TestFolder, TestServer};
use crate::resources::read;

const SECRET: &str = "TOP SECRET";

#[test]
fn no_spelling_of_a_path_leaves_the_folder() {
    let folder = TestFolder::new(&[
        ("resources/guide.md", "guide"),
        ("resources/sub/page.md", "page"),
        ("secret.txt", SECRET),
        ("prompts/p.md", "prompt"),
        ("resources-secret/x.md", SECRET),
    ]);
    let server = folder.serve();
    let absolute = folder.path("secret.txt").display().to_string();
    let inside = folder.path("resources/guide.md").display().to_string();
    let references = [
        "../secret.txt",
        "resources/../secret.txt",
        "./guide.md",
        "sub/../guide.md",
        "sub/../../secret.txt",
        "sub//page.md",
        "/guide.md",
        "//guide.md",
        "guide.md/",
        "guide.md/.",
        "guide.md\0",
        "guide.md\0.txt",
        "guide.md%00",
        "GUIDE.md",
        "Guide.MD",
        "RESOURCES/guide.md",
        "sub\\page.md",
        "..\\secret.txt",
        "sub%2Fpage.md",
        "sub%5Cpage.md",
        "%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "..%2fsecret.txt",
        "%252e%252e%252fsecret.txt",
        "..%c0%afsecret.txt",
        "..;/secret.txt",
        "....//secret.txt",
        "\u{ff0e}\u{ff0e}/secret.txt",
        "..\u{2215}secret.txt",
        "guide.md ",
        " guide.md",
        "guide.md.",
        "guide.md::$DATA",
        "C:\\secret.txt",
        "\\\\server\\share\\x",
        "file:///etc/passwd",
        "file:secret.txt",
        "resource://../secret.txt",
        "resource://../secret",
        "resource:///etc/passwd",
        "resource://sub/../guide",
        "resource://sub%2Fpage",
        "resource://./guide",
        "resource:guide",
        "RESOURCE://guide",
        "resource://guide#x",
        "resource://guide?x",
        "resource://guide/",
        "resource://",
        "resource://prompts/p.md",
        "prompts/p.md",
        "p.md",
        "resources",
        "resources/",
        "sub",
        ".",
        "..",
        "",
        "~/secret.txt",
        "$HOME/secret.txt",
        "/proc/self/environ",
        "/dev/stdin",
        "skill://guide",
        "ui://guide",
        "../resources-secret/x.md",
        "resources-secret/x.md",
        &absolute,
        &inside,
    ];
    for reference in references {
        let answer = read(&server, reference);
        assert!(answer.starts_with("-32602 unknown resource `"), "{reference:?}: {answer}");
        assert!(!answer.contains(SECRET), "{reference:?}: {answer}");
    }
    assert_eq!(read(&server, "sub/page.md"), "text/markdown page");
}

#[cfg(unix)]
#[test]
fn links_that_lead_outside_are_not_served() {
    use std::os::unix::fs::symlink;
    let outside = TestFolder::new(&[("secret.txt", SECRET), ("folder/x.md", SECRET)]);
    let folder = TestFolder::new(&[
        ("resources/guide.md", "guide"),
        ("resources/sub/page.md", "page"),
        ("data.txt", SECRET),
    ]);
    let link = |target: &std::path::Path, name: &str| symlink(target, folder.path(name)).expect("a link");
    link(&outside.path("secret.txt"), "resources/out.txt");
    link(&outside.path("folder"), "resources/out-folder");
    link(std::path::Path::new("../data.txt"), "resources/project.txt");
    link(std::path::Path::new("nowhere"), "resources/broken.txt");
    link(std::path::Path::new("loop"), "resources/loop");
    link(std::path::Path::new("."), "resources/self");
    link(std::path::Path::new("/dev/zero"), "resources/zero");
    // Inside the folder, a link to a file is fine: relative or absolute.
    link(std::path::Path::new("sub/page.md"), "resources/inside.md");
    link(&folder.path("resources/guide.md"), "resources/absolute.md");
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path("resources/pipe"), rustix::fs::Mode::RWXU)
        .expect("a pipe");
    let (loaded, diagnostics) = folder.load();
    insta::assert_snapshot!("links", contract::diagnostic::render_all(&diagnostics, false));
    let server = TestServer::new(loaded, Arc::new(NoBackend));
    let list = server.modern("resources/list", "");
    for name in [
        "out",
        "out-folder",
        "project",
        "broken",
        "loop",
        "self",
        "zero",
        "pipe",
        "out-folder/x",
        "self/guide",
    ] {
        assert!(!list.contains(&format!("\"resource://{name}\"")), "{list}");
        let answer = read(&server, &format!("resource://{name}"));
        assert!(answer.starts_with("-32602 unknown resource"), "{name}: {answer}");
    }
    assert_eq!(read(&server, "resource://inside"), "text/markdown page");
    assert_eq!(read(&server, "resource://absolute"), "text/markdown guide");
}

/// The walk found an ordinary file; then it is replaced by something else.
#[cfg(unix)]
#[test]
fn what_replaces_a_file_after_the_walk_is_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = TestFolder::new(&[("secret.txt", SECRET), ("sub/page.md", SECRET)]);
    let folder = TestFolder::new(&[
        ("resources/guide.md", "guide"),
        ("resources/sub/page.md", "page"),
        ("resources/dir.md", "x"),
        ("resources/pipe.md", "x"),
    ]);
    let server = folder.serve();
    std::fs::remove_file(folder.path("resources/guide.md")).expect("removed");
    symlink(outside.path("secret.txt"), folder.path("resources/guide.md")).expect("a link");
    std::fs::remove_dir_all(folder.path("resources/sub")).expect("removed");
    symlink(outside.path("sub"), folder.path("resources/sub")).expect("a link");
    std::fs::remove_file(folder.path("resources/dir.md")).expect("removed");
    std::fs::create_dir(folder.path("resources/dir.md")).expect("a folder");
    std::fs::remove_file(folder.path("resources/pipe.md")).expect("removed");
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path("resources/pipe.md"), rustix::fs::Mode::RWXU)
        .expect("a pipe");
    for reference in ["resource://guide", "resource://sub/page", "resource://dir", "resource://pipe"] {
        let answer = read(&server, reference);
        assert_eq!(answer, format!("-32602 unknown resource `{reference}`"));
    }
}

#[test]
fn media_of_prompts_stay_inside_too() {
    for path in [
        "../../secret.png",
        "../secret.png",
        "../resources/../secret.png",
        "../skills/s/x.png",
        "%2e%2e/%2e%2e/secret.png",
        "x%00.png",
        "x%ff.png",
        "../Resources/x.png",
        "missing.png",
        "../resources",
        "..",
        "../resources/text.md",
    ] {
        let folder = TestFolder::new(&[
            ("resources/text.md", "x"),
            ("secret.png", SECRET),
            ("skills/s/x.png", SECRET),
        ]);
        folder.write("prompts/p.md", format!("Look:\n![x]({path})\n"));
        folder.write("prompts/fine.md", "fine");
        let (loaded, diagnostics) = folder.load();
        let rendered = contract::diagnostic::render_all(&diagnostics, false);
        assert!(rendered.starts_with(&format!("error: cannot insert `{path}`: ")), "{rendered}");
        assert!(rendered.contains("--> prompts/p.md:2:1"), "{rendered}");
        let names: Vec<&str> = loaded.catalog().prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        assert_eq!(names, ["fine"]);
    }
}
