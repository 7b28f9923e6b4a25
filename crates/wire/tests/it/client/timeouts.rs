//! The limits of a call: without progress, and in all.

use spile_core::ClientCapabilities;
use wire::client::{ClientOptions, TransportKind, VersionPolicy};

use super::{INITIALIZED, check_with, on_initialized_pipe, options};

#[test]
fn progress_starts_the_timeout_anew_and_not_the_limit_of_the_whole_call() {
    let call = r#"
        call_for_100_s tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":2}}}
    "#;
    let cancelled = r#"
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the request timed out"}}
    "#;
    let progress = |value: u32| {
        format!(
            r#"
            < {{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":2,"progress":{value}}}}}
            ! progress 0 {value} None None
            "#
        )
    };
    for (name, rest) in [
        ("silent", format!("wait 59999\nwait 1 {cancelled} ! failed 0 no response within 60000 ms")),
        (
            "once",
            format!(
                "wait 30000 {} wait 59999\nwait 1 {cancelled} ! failed 0 no response within 60000 ms",
                progress(1)
            ),
        ),
        (
            "always",
            format!(
                "wait 59999 {} wait 40000 {} wait 1 {cancelled} ! failed 0 no response within 100000 ms",
                progress(1),
                progress(2)
            ),
        ),
        (
            "progress that does not increase",
            format!(
                "wait 30000 {}
                < {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":2,\"progress\":1}}}}
                wait 59999\nwait 1 {cancelled} ! failed 0 no response within 60000 ms",
                progress(1)
            ),
        ),
    ] {
        println!("{name}");
        on_initialized_pipe("2025-11-25", &format!("{call}{rest}\nwait 1000000"));
    }
}

#[test]
fn the_limit_of_the_whole_call_does_not_run_while_the_user_answers() {
    let opening =
        INITIALIZED.replace("VERSION", "2025-11-25").replace("CAPS", r#"{"elicitation":{"form":{}}}"#);
    let script = opening
        + r#"
        call_for_100_s tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":2}}}
        < {"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}
        ! input_requested Elicitation {}
        wait 60000
        wait 60000
        wait 60000
        answer {"action":"decline"}
        > {"jsonrpc":"2.0","id":7,"result":{"action":"decline"}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! done 0 {}
    "#;
    let capabilities = ClientCapabilities::ELICITATION_FORM;
    let version_policy = VersionPolicy::HandshakeOnly;
    check_with(TransportKind::Pipe, ClientOptions { capabilities, version_policy, ..options() }, &script);
}
