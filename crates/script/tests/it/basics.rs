//! Tools as their authors write them: names, arguments, results, imports, context.

use crate::harness::{App, folder};

#[tokio::test]
async fn a_folder_of_tools_is_served() {
    let folder = folder(&[
        (
            "tools/add-numbers.ts",
            "export default (args: { a: number; b: number }) => ({ sum: args.a + args.b });",
        ),
        ("tools/hello.js", "export default async function (args) { return `hello ${args.name}`; }"),
        ("tools/_helper.ts", "export const x = 1;"),
        ("tools/types.d.ts", "export type X = 1;"),
    ]);
    let app = App::new(folder.path());
    let sum = app.call("add-numbers", r#"{"a":1,"b":2}"#).await;
    assert_eq!(sum["structuredContent"]["sum"], 3, "{sum}");
    assert_eq!(sum["content"][0]["text"], r#"{"sum":3}"#);
    assert_eq!(app.text("hello", r#"{"name":"Ada"}"#).await, "hello Ada");
    let wrong = app.call("add-numbers", r#"{"a":"1","b":2}"#).await;
    assert_eq!(wrong["isError"], true, "{wrong}");
}

/// Without its types it would be `new new Date(7).constructor(9)`, which QuickJS reads as another call.
#[tokio::test]
async fn the_class_of_a_new_object_is_found_without_the_types() {
    let folder =
        folder(&[("tools/t.ts", "export default () => new (new Date(7) as any).constructor(9).getTime();")]);
    assert_eq!(App::new(folder.path()).text("t", "{}").await, "9");
}
