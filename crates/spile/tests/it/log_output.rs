//! Log lines on stderr: safe to print, whatever a client sends.

use std::io::Write;
use std::process::Stdio;

use crate::harness::TestProject;

#[test]
fn log_lines_contain_no_unsafe_character() {
    let project = TestProject::customers();
    // The name of an unknown argument is logged.
    let call = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"lookup_customer\",\
         \"arguments\":{\"email\":\"a@b.test\",\"x\u{9b}31m\u{202e}\u{2028}\u{7f}\u{200b}\":1},\"_meta\":{\
         \"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
         \"io.modelcontextprotocol/clientCapabilities\":{}}}}\n";
    for format in ["json", "text"] {
        let mut command = project.spile(&["serve", "-v", "--log-format", format]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("spile starts");
        child.stdin.take().expect("a pipe").write_all(call.as_bytes()).expect("spile reads stdin");
        let output = child.wait_with_output().expect("spile exits");
        let log = String::from_utf8(output.stderr).expect("UTF-8");
        let line = log.lines().find(|line| line.contains("31m")).expect("the call is logged");
        assert!(!log.contains(['\u{9b}', '\u{202e}', '\u{2028}', '\u{7f}', '\u{200b}']), "{line:?}");
        if format == "json" {
            assert!(line.contains(r"x\u009b31m\u202e\u2028\u007f\u200b"), "{line}");
            serde_json::from_str::<serde_json::Value>(line).expect("a log line is JSON");
        }
    }
}

#[test]
fn a_failed_call_has_one_log_line_with_the_reference_of_its_result() {
    let project = TestProject::customers();
    let call = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"lookup_customer\",\
         \"arguments\":{\"mail\":\"secret\"},\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
         \"io.modelcontextprotocol/clientCapabilities\":{}}}}\n";
    let mut command = project.spile(&["serve", "-v"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("spile starts");
    child.stdin.take().expect("a pipe").write_all(call.as_bytes()).expect("spile reads stdin");
    let output = child.wait_with_output().expect("spile exits");
    let response: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let reference = response["result"]["structuredContent"]["ref"].as_str().expect("a reference");
    let log = String::from_utf8(output.stderr).expect("UTF-8");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("spile::call")).collect();
    let [line] = &*lines else { panic!("{log}") };
    assert!(line.contains("error_code=\"invalid_arguments\" field=\"mail\""), "{line}");
    assert!(line.contains(&format!("ref=\"{reference}\"")), "{line}");
    assert!(!log.contains("secret"), "{log}");
}
