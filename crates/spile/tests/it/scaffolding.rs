//! `spile new`: each template, and what it refuses.

use std::process::Command;

use insta::assert_snapshot;

use crate::clients::{cached, node};
use crate::harness::TestProject;

fn names(project: &TestProject, folder: &str) -> Vec<String> {
    let folder = project.folder.join(folder);
    let files = project.files().into_iter();
    let inside =
        files.filter_map(|(path, _)| path.strip_prefix(&folder).ok().map(|path| path.display().to_string()));
    inside.collect()
}

#[test]
fn the_data_template_checks_tests_and_calls() {
    let project = TestProject::new(&[]);
    assert_snapshot!("new_data", project.run(&["new", "my-shop"]));
    assert_eq!(
        names(&project, "my-shop"),
        [".spile/schema.json", "customers.csv", "spile.toml", "tests/customers.toml"]
    );
    let check = project.run(&["check", "my-shop", "--strict"]);
    assert_eq!(check.code, Some(0), "{check}");
    assert!(!check.stdout.contains("warning"), "{check}");
    assert_snapshot!("new_data_test", project.run(&["test", "my-shop"]));
    let call = project.run(&["call", "lookup_customer", "email=dana@acme.test", "--from", "my-shop"]);
    assert_eq!(call.code, Some(0), "{call}");
    let ping = project.run(&["ping", "--from", "my-shop"]);
    assert!(ping.stdout.starts_with("my-shop "), "{ping}");
}

#[test]
fn the_other_templates_have_tools_types_prompts_and_resources() {
    let project = TestProject::new(&[]);
    assert_snapshot!("new_tools", project.run(&["new", "t", "--template", "tools"]));
    let tools = [
        "spile.d.ts",
        "spile.toml",
        "tests/tools.toml",
        "tools/greet.ts",
        "tools/roll-dice.ts",
        "tsconfig.json",
    ];
    assert_eq!(names(&project, "t")[1..], tools);
    assert_eq!(project.run(&["new", "e", "--template", "everything"]).code, Some(0));
    let all = names(&project, "e");
    for name in tools.iter().chain(&[
        "customers.csv",
        "prompts/welcome.md",
        "resources/plans.md",
        "tests/content.toml",
    ]) {
        assert!(all.iter().any(|one| one == name), "{name}");
    }
    for name in ["t", "e"] {
        let check = project.run(&["check", name, "--strict"]);
        assert_eq!(check.code, Some(0), "{name}: {check}");
        assert!(!check.stdout.contains("warning"), "{name}: {check}");
        assert_snapshot!(format!("new_{name}_test"), project.run(&["test", name]));
    }
}

#[test]
fn nothing_is_overwritten() {
    let project = TestProject::new(&[("full/a.txt", b"mine"), ("file", b"mine")]);
    std::fs::create_dir(project.folder.join("empty")).expect("a folder");
    let before = project.files();
    for (name, reason) in [
        ("full", "exists and is not empty"),
        ("file", "exists and is not a folder"),
        ("a b", "cannot be the name of a server"),
        ("ümlaut", "cannot be the name of a server"),
        ("-x", "cannot be the name of a server"),
        (".", "exists and is not empty"),
    ] {
        let refused = project.run(&["new", "--", name]);
        assert!(refused.code == Some(1) && refused.stderr.contains(reason), "{name}: {refused}");
    }
    assert_eq!(project.files(), before);
    assert_eq!(project.run(&["new", "empty"]).code, Some(0));
    assert_eq!(project.run(&["new", "some/where/else"]).code, Some(0));
    assert_eq!(project.run(&["new", "unknown", "--template", "x"]).code, Some(2));
}

const USES_OF_TYPES: &[u8] = br#"
type Customer = { email: string; plan: string };

export default async (_: Record<string, never>, ctx: Spile.Context) => {
  const customers = ctx.collection<Customer>("customers");
  const page = await customers.list({ limit: 1 });
  const { outcome, record } = await customers.update({ email: "lee@globex.test", plan: "free" });
  const preview = await customers.update({ email: "lee@globex.test", plan: "ruby", dry_run: true });
  const called = await ctx.tool<Customer>("lookup_customer", { email: "lee@globex.test" });
  const failed = await ctx.tool("lookup_customer", { email: "nobody@acme.test" });
  const [block] = failed.content;
  const facts = {
    page: page.items[0]?.email === "dana@acme.test" && page.truncated && page.nextCursor?.length! > 0 && page.total === 3,
    update: outcome === "updated" && record.plan === "free",
    preview: preview.dry_run === true && preview.record.plan === "ruby",
    called: called.structuredContent?.plan === "free" && !called.isError,
    failed: failed.isError === true && block?.type === "text" && block.text.includes("nobody"),
  };
  return { wrong: Object.entries(facts).filter(([, holds]) => !holds).map(([name]) => name) };
};

/** Both ways to refuse may be told apart, in any order. */
export async function name(ctx: Spile.Context): Promise<string> {
  const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  const answer = await ctx.elicit<{ name: string }>("name", { message: "Name?", schema });
  if (answer.action === "decline") return "nobody";
  if (answer.action === "cancel") return "later";
  return answer.content.name;
}

export async function groups(ctx: Spile.Context) {
  const { items, groups_total } = await ctx.collection("customers").aggregate<{ plan: string; count: number }>({ group: ["plan"] });
  return `${items[0]?.plan.length} ${groups_total.toFixed()}`;
}
"#;

/// With the TypeScript compiler of the development cache. Without it this fails, because a skipped test proves nothing.
#[test]
fn the_types_describe_what_the_templates_use() {
    let (node, compiler) = (node(), cached("typescript/node_modules/typescript/bin/tsc"));
    let project = TestProject::new(&[]);
    assert_eq!(project.run(&["new", "t", "--template", "everything"]).code, Some(0));
    let check = || {
        let output = Command::new(&node).arg(&compiler).arg("-p").arg(project.folder.join("t")).output();
        let output = output.expect("the compiler starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_ok, text) = check();
    assert!(is_ok, "{text}");
    // What the compiler believes is what a call returns.
    project.write("t/tools/uses.ts", USES_OF_TYPES);
    let (is_ok, text) = check();
    assert!(is_ok, "{text}");
    let output = project.run(&["call", "uses", "--from", "t", "--yes", "--json"]);
    assert!(output.stdout.contains(r#""structuredContent":{"wrong":[]}"#), "{output}");
    project
        .write("t/tools/wrong.ts", b"export default (args: {}, ctx: Spile.Context) => ctx.elict('a', 1);\n");
    let (is_ok, text) = check();
    assert!(!is_ok && text.contains("Did you mean 'elicit'?"), "{text}");
}

/// The types must name what `ctx` has, and nothing else.
#[test]
fn the_types_follow_ctx() {
    let code = b"export default (_: {}, ctx: any) => Object.getOwnPropertyNames(ctx).sort().join(' ');\n";
    let project = TestProject::new(&[("tools/names.ts", code)]);
    let output = project.run(&["call", "names", "--from", "."]);
    assert_eq!(output.code, Some(0), "{output}");
    let types = include_str!("../../src/new/templates/spile.d.ts");
    let context = types.split("interface Context {").nth(1).expect("the interface");
    let context = context.split("\n  }\n").next().expect("its end");
    let members = context.lines().filter_map(|line| {
        let member = line.strip_prefix("    ")?.trim_start_matches("readonly ");
        let end = member.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        let is_member = end > 0 && matches!(&member[end..=end], "(" | ":" | "<");
        is_member.then(|| member[..end].to_owned())
    });
    let members: std::collections::BTreeSet<String> = members.collect();
    let expected: Vec<String> = members.into_iter().collect();
    assert_eq!(output.stdout.split_whitespace().collect::<Vec<_>>(), expected);
    for example in ["everything", "tutor"] {
        let copy = std::fs::read_to_string(crate::harness::examples().join(example).join("spile.d.ts"));
        assert_eq!(copy.expect("the example has the types"), types, "copy it to examples/{example}");
    }
}
