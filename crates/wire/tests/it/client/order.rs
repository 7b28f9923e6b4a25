//! Requests that wait for the answer to another one.

use super::on_initialized_pipe;

#[test]
fn calls_wait_until_the_server_has_the_log_level() {
    for (answer, then) in [
        (r#"< {"jsonrpc":"2.0","id":2,"result":{}}"#, ""),
        (
            r#"< {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"?"}}"#,
            "! warning `logging/setLevel` failed: ? (-32601)",
        ),
        (
            "wait 30000",
            r#"> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the request timed out"}}
            ! warning `logging/setLevel` failed: no response within 30000 ms"#,
        ),
    ] {
        let script = r#"
            level debug
            > {"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}
            call tools/call {"name":"a"}
            call tools/call {"name":"b"}
            list tools
            > {"jsonrpc":"2.0","id":3,"method":"tools/list"}
            cancel 1
            ! failed 1 cancelled
            ANSWER
            > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a"}}
            THEN
        "#;
        on_initialized_pipe("2025-11-25", &script.replace("ANSWER", answer).replace("THEN", then));
    }
}

#[test]
fn a_subscription_waits_for_the_end_of_the_one_before_it() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! listening 0 true ["file:///a"]
        cancel 0
        > {"jsonrpc":"2.0","id":3,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}
        ! failed 0 cancelled
        listen file:///a file:///b
        > {"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"file:///b"}}
        < {"jsonrpc":"2.0","id":4,"result":{}}
        < {"jsonrpc":"2.0","id":3,"result":{}}
        > {"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        < {"jsonrpc":"2.0","id":5,"result":{}}
        ! listening 1 true ["file:///a", "file:///b"]
    "#,
    );
}

#[test]
fn a_resource_with_two_subscriptions_is_unsubscribed_with_the_last() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        listen file:///a
        > {"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! listening 0 true ["file:///a"]
        < {"jsonrpc":"2.0","id":3,"result":{}}
        ! listening 1 true ["file:///a"]
        cancel 0
        ! failed 0 cancelled
        cancel 1
        > {"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}
        ! failed 1 cancelled
    "#,
    );
}
