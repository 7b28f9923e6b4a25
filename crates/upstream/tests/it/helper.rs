//! The helper program of the tests; its first argument selects the behaviour.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;
use upstream::process::{Command, ProcessOptions, run_supervisor_if_requested};

mod kinds;

fn main() {
    run_supervisor_if_requested();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(),
        ["deaf"] => deaf(),
        ["flood", mebibytes] => flood(mebibytes.parse().expect("a number")),
        ["print", ref words @ ..] => words.iter().for_each(|word| say(word)),
        ["env"] => std::env::vars().for_each(|(name, value)| say(&format!("{name}={value}"))),
        ["start-env"] => start_env(),
        ["start-all", mark] => start_all(mark),
        ["start-and-stop", count, at_once] => {
            start_and_stop(count.parse().expect("a number"), at_once.parse().expect("a number"));
        }
        ["measure", ref words @ ..] => measure(words),
        _ => panic!("the tests ask for something else: {args:?}"),
    }
}

fn say(line: &str) {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody reads");
}

/// Echoes each line until the end of the input.
fn serve() {
    say("ready");
    io::stdin().lock().lines().for_each(|line| say(&line.expect("text")));
}

/// Ignores the end of its input and SIGTERM.
fn deaf() {
    say("ready");
    loop {
        std::thread::park();
    }
}

fn flood(mebibytes: usize) {
    let mut line = vec![b'x'; 1 << 20];
    line[(1 << 20) - 1] = b'\n';
    (0..mebibytes).for_each(|_| io::stderr().write_all(&line).expect("somebody reads"));
    io::stderr().write_all(b"the last line\n").expect("somebody reads");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn myself() -> std::path::PathBuf {
    std::env::current_exe().expect("this file")
}

/// Prints the environment that a child of this process gets.
fn start_env() {
    runtime().block_on(async {
        let command = Command::new(myself()).arg("env").env("DECLARED", "yes");
        let mut child = command.start(&ProcessOptions::default()).await.expect("it is there");
        let mut stdout = child.stdout.take().expect("nobody took it");
        let mut seen = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stdout, &mut seen).await.expect("text");
        say(seen.trim_end());
        child.stop().await;
    });
}

/// Starts one server of each kind, prints `ready`, and waits to be killed.
fn start_all(mark: &str) {
    runtime().block_on(async {
        let mut children = Vec::new();
        for kind in kinds::kinds() {
            let command = kinds::command(kind, &myself(), mark);
            let mut child = command.start(&kinds::options(None)).await.expect("it is there");
            kinds::ready(&mut child).await;
            children.push(child);
        }
        say("ready");
        std::future::pending::<()>().await;
    });
}

/// Starts and stops many servers of all kinds, every seventh by dropping it; then prints what is left.
fn start_and_stop(count: usize, at_once: usize) {
    let mark = &kinds::new_mark("start-and-stop");
    runtime().block_on(async {
        one_of_many(0, mark).await;
        let before = open_files();
        let permits = Arc::new(Semaphore::new(at_once));
        let tasks: Vec<_> = (0..count)
            .map(|number| {
                let (permits, mark) = (permits.clone(), mark.clone());
                tokio::spawn(async move {
                    let _permit = permits.acquire().await.expect("never closed");
                    one_of_many(number, &mark).await;
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        // Dropped children end in the background.
        let left = kinds::until_none(|| kinds::marked(mark));
        let children = kinds::until_none(|| kinds::children(std::process::id()));
        let files = kinds::until_none(|| {
            let now = open_files();
            if now == before { Vec::new() } else { vec![(before, now)] }
        });
        say(&format!("left {left:?}, children {children:?}, files {files:?}"));
    });
}

async fn one_of_many(number: usize, mark: &str) {
    let kind = kinds::kinds().cycle().nth(number).expect("it goes round");
    let mut child =
        kinds::command(kind, &myself(), mark).start(&kinds::options(None)).await.expect("it is there");
    kinds::ready(&mut child).await;
    match number % 7 {
        6 => drop(child),
        _ => assert_eq!(child.stop().await.processes_left, 0, "{kind}"),
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

/// Spawn to first byte, with and without a supervisor, and what a supervisor holds. For people.
fn measure(words: &[&str]) {
    let (rounds, supervisor) = match words {
        [rounds] => (rounds.parse().expect("a number"), None),
        [rounds, supervisor] => (rounds.parse().expect("a number"), Some(Path::new(*supervisor))),
        _ => panic!("measure ROUNDS [SUPERVISOR]"),
    };
    let options = kinds::options(supervisor);
    runtime().block_on(async {
        let (mut plain, mut supervised, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = std::time::Instant::now();
            let mut child = std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("cat");
            child.stdin.take().expect("piped").write_all(b"x").expect("cat reads");
            io::Read::read_exact(&mut child.stdout.take().expect("piped"), &mut [0]).expect("cat writes");
            plain.push(start.elapsed());
            child.wait().expect("cat ends");

            let start = std::time::Instant::now();
            let mut child = Command::new("cat").start(&options).await.expect("cat");
            let stdin = child.stdin.as_mut().expect("nobody took it");
            tokio::io::AsyncWriteExt::write_all(stdin, b"x").await.expect("cat reads");
            let stdout = child.stdout.as_mut().expect("nobody took it");
            tokio::io::AsyncReadExt::read_exact(stdout, &mut [0]).await.expect("cat writes");
            supervised.push(start.elapsed());
            if supervised.len() == rounds {
                let supervisor = kinds::children(std::process::id())[0];
                let rollup =
                    std::fs::read_to_string(format!("/proc/{supervisor}/smaps_rollup")).expect("ours");
                let wanted = ["Rss", "Pss:", "Private_Dirty", "Private_Clean"];
                rollup.lines().filter(|line| wanted.iter().any(|word| line.starts_with(word))).for_each(say);
            }
            let start = std::time::Instant::now();
            child.stop().await;
            stopped.push(start.elapsed());
        }
        for (name, mut times) in [("plain", plain), ("supervised", supervised), ("stop", stopped)] {
            times.sort();
            say(&format!("{name}: median {:?}, p95 {:?}", times[rounds / 2], times[rounds * 95 / 100]));
        }
    });
}
