//! The real packages from the npm registry, unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{App, AppOptions, write};

const PACKAGES: &str = r#"{"private":true,"type":"module","dependencies":{"zod":"4.6.7","date-fns":"4.4.0","lodash":"4.18.1","lodash-es":"4.18.1"}}"#;

/// A folder of the developer's cache with the packages installed.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = std::env::var_os("SPILE_DEV_CACHE").map(PathBuf::from).unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/spile-dev")
        });
        let folder = root.join("script-packages");
        let manifest = folder.join("package.json");
        let is_current = std::fs::read_to_string(&manifest).is_ok_and(|text| text == PACKAGES);
        if !is_current || !folder.join("node_modules/zod/package.json").is_file() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&manifest, PACKAGES).expect("a file");
            let installed = Command::new("npm")
                .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
                .current_dir(&folder)
                .status();
            assert!(installed.expect("npm runs").success(), "npm install failed in {}", folder.display());
        }
        folder
    })
}

/// A folder of its own that shares the installed packages.
fn folder_with_packages(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(installed()).expect("a folder");
    let target = folder.path().join("node_modules");
    copy(&installed().join("node_modules"), &target);
    for (path, text) in files {
        write(folder.path(), path, text);
    }
    folder
}

/// Hard links: as if installed here, without another copy on disk.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => std::fs::hard_link(entry.path(), target).expect("a link"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn zod_date_fns_and_both_lodashes_work() {
    let folder = folder_with_packages(&[
        (
            "tools/greet.ts",
            r#"
            import { z } from "zod";
            export const schema = {
                input: z.object({ name: z.string().min(2).describe("who"), times: z.number().int().default(2) }),
                output: z.object({ greeting: z.string() }),
            };
            export const metadata = { description: "greets", annotations: { readOnlyHint: true } };
            export default async ({ name, times }: z.infer<typeof schema.input>) => ({ greeting: `hi ${name} `.repeat(times).trim() });
            "#,
        ),
        (
            "tools/shape.ts",
            r#"
            import { z } from "zod";
            export const schema = { name: z.string(), mood: z.enum(["calm", "loud"]).optional() };
            export default ({ name, mood }) => `${name} ${mood ?? "no mood"}`;
            "#,
        ),
        (
            "tools/packages.ts",
            r#"
            import { addDays, format, parseISO, differenceInDays } from "date-fns";
            import lodash, { chunk } from "lodash";
            import { camelCase, groupBy } from "lodash-es";
            import debounce from "lodash/debounce.js";
            export default () => ({
                day: format(addDays(parseISO("2024-02-28"), 2), "yyyy-MM-dd EEEE"),
                days: differenceInDays(new Date("2024-03-01"), new Date("2024-02-01")),
                chunks: chunk([1, 2, 3], 2),
                merged: lodash.merge({ a: { b: 1 } }, { a: { c: 2 } }),
                template: typeof lodash.template,
                camel: camelCase("hello big world"),
                groups: groupBy(["a", "bb", "cc"], (word) => word.length),
                debounce: typeof debounce,
                cloned: lodash.cloneDeep({ at: new Date(0), set: new Set([1]) }).set.has(1),
            });
            "#,
        ),
    ]);
    let app = App::with(folder.path(), AppOptions::default());
    let tools = spile_core::Provider::catalog(&*app.provider);
    let schema_of = |name: &str| {
        let tool = tools.tools.iter().find(|tool| tool.name == name).expect("the tool");
        format!("{} -> {:?}", tool.input_schema, tool.output_schema)
    };
    insta::assert_snapshot!("zod_object_schema", schema_of("greet"));
    insta::assert_snapshot!("zod_shape_schema", schema_of("shape"));
    let greeting = app.call("greet", r#"{"name":"Ada"}"#).await;
    assert_eq!(greeting["structuredContent"]["greeting"], "hi Ada hi Ada", "{greeting}");
    let short = app.call("greet", r#"{"name":"A"}"#).await;
    assert_eq!(short["isError"], true, "{short}");
    assert_eq!(app.text("shape", r#"{"name":"Ada"}"#).await, "Ada no mood");
    assert_eq!(app.text("shape", r#"{"name":"Ada","mood":"loud"}"#).await, "Ada loud");
    insta::assert_snapshot!("packages_result", app.text("packages", "{}").await);
}
