//! `spile keys`.

use crate::harness::{CommandOutput, TestProject};

fn project() -> TestProject {
    TestProject::new(&[])
}

/// The ids in the table, from the top.
fn ids(output: &CommandOutput) -> Vec<String> {
    assert_eq!(output.code, Some(0), "{output}");
    let rows = output.stdout.lines().skip(2);
    rows.map(|row| row.split_whitespace().next().expect("an id").to_owned()).collect()
}

#[test]
fn rotate_creates_the_default_file_then_adds_a_key_that_seals() {
    let place = project();
    let state = place.folder.to_string_lossy().into_owned();
    let env = [("XDG_STATE_HOME", &*state)];
    let first = ids(&place.run_with(&["keys", "rotate"], &env));
    assert_eq!(first.len(), 1);
    let output = place.run_with(&["keys", "rotate", "--overlap", "2d"], &env);
    let both = ids(&output);
    assert_eq!(both[1..], first);
    assert!(output.stdout.starts_with("/shop/spile/keys\n"), "{output}");
    assert!(output.stdout.contains("current") && output.stdout.contains("old, accepted until "), "{output}");
    let shown = place.run_with(&["keys", "show"], &env);
    assert_eq!(ids(&shown), both);
    let [(path, bytes)] = &place.files()[..] else { panic!("one file") };
    assert!(path.ends_with("spile/keys"));
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    let secrets =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit(' ').next().unwrap());
    for secret in secrets {
        assert!(
            !shown.to_string().contains(secret) && !output.to_string().contains(secret),
            "no secret is printed"
        );
    }
}

#[test]
fn the_key_file_is_named_by_argument_or_environment() {
    let place = project();
    let by_argument = ids(&place.run(&["keys", "rotate", "--key-file", "mine"]));
    let env = [("SPILE_KEY_FILE", "mine")];
    assert_eq!(ids(&place.run_with(&["keys", "show"], &env)), by_argument);
    let ended = place.run_with(&["keys", "rotate", "--overlap", "0s"], &env);
    assert!(ended.stdout.contains("old, not accepted since "), "{ended}");
    let wins = place.run_with(&["keys", "rotate", "--key-file", "other"], &env);
    assert!(wins.stdout.starts_with("other\n"), "{wins}");
}

#[test]
fn what_cannot_be_done_is_refused_with_a_way_out() {
    let place = TestProject::new(&[("bad", b"not keys")]);
    #[cfg(unix)]
    std::fs::set_permissions(place.folder.join("bad"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let before = place.files();
    for (args, expected) in [
        (&["keys", "show"][..], "--key-file"),
        (&["keys", "rotate"], "--key-file"),
        (&["keys", "show", "--key-file", "none"], "`spile keys rotate`"),
        (&["keys", "rotate", "--key-file", "no/such/keys"], "cannot create the key file `no/such/keys`"),
        (&["keys", "show", "--key-file", "bad"], "line 1: expected `key`"),
        (&["keys", "rotate", "--key-file", "bad"], "restore it from a backup, or delete it"),
        (&["keys", "rotate", "--key-file", "."], "not a regular file"),
        (&["keys", "rotate", "--key-file", "new", "--overlap", "8"], "e.g. 8h"),
    ] {
        let output = place.run_with(args, &[("XDG_STATE_HOME", "")]);
        assert_ne!(output.code, Some(0), "{output}");
        assert!(output.stderr.contains(expected), "{expected}: {output}");
    }
    assert_eq!(place.files(), before, "nothing was written");
}
