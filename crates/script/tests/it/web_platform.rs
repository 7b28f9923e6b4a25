//! The globals that ordinary packages expect, each as one expression.

use crate::harness::{App, folder};

/// Each line is an expression and its JSON.
const CASES: &str = r#"
typeof globalThis.self + typeof global => "objectobject"
new URL("../c?x=1#h", "https://a.example/b/d").href => "https://a.example/c?x=1#h"
(() => { const u = new URL("https://a.example/"); u.searchParams.set("q", "a b&ü"); u.port = "8443"; return u.href })() => "https://a.example:8443/?q=a+b%26%C3%BC"
[...new URLSearchParams("a=1&b=%C3%A9+x&a=2").entries()] => [["a","1"],["b","é x"],["a","2"]]
URL.canParse("nope") => false
(() => { try { new URL("nope") } catch (e) { return e.code } })() => "ERR_INVALID_URL"
[...new TextEncoder().encode("é€")] => [195,169,226,130,172]
new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x68, 0xff, 0x69])) => "h�i"
(() => { const d = new TextDecoder(); return d.decode(new Uint8Array([0xe2, 0x82]), { stream: true }) + d.decode(new Uint8Array([0xac])) })() => "€"
(() => { try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff])) } catch (e) { return e.name } })() => "TypeError"
btoa("hello") + atob("aGVsbG8=") => "aGVsbG8=hello"
(() => { const a = { d: new Date(5), m: new Map([[1, { x: [1] }]]), s: new Set([2]) }; a.self = a; const b = structuredClone(a); return [b.self === b, b.d.getTime(), b.m.get(1).x, b.s.has(2), b.m !== a.m] })() => [true,5,[1],true,true]
(() => { try { structuredClone(() => 1) } catch (e) { return e.name } })() => "DataCloneError"
(() => { const c = new AbortController(); let seen = 0; c.signal.addEventListener("abort", () => seen++); c.abort(); c.abort(); return [seen, c.signal.aborted, c.signal.reason.name] })() => [1,true,"AbortError"]
/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()) => true
crypto.randomUUID() !== crypto.randomUUID() => true
new Set(crypto.getRandomValues(new Uint8Array(64))).size > 10 => true
Date.now() === Date.now() => true
new Date(2024, 0, 31, 12).toISOString() => "2024-01-31T12:00:00.000Z"
new Date("2024-03-05T10:00").toISOString() => "2024-03-05T10:00:00.000Z"
new Date("2024-03-05T10:00+02:00").getHours() => 8
new Date("Mar 5, 2024 10:00").toISOString() => "2024-03-05T10:00:00.000Z"
String(new Date(0)) => "Thu Jan 01 1970 00:00:00 GMT+0000 (Coordinated Universal Time)"
new Date(0).getTimezoneOffset() => 0
(new (class D extends Date {})(7)) instanceof Date => true
String(new Date(NaN)) => "Invalid Date"
["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds", "Milliseconds"].flatMap((part) => ["set", "setUTC"].map((verb) => { const d = new Date(5e11); return [d[verb + part](NaN), d.getTime()].every(Number.isNaN) })).every(Boolean) => true
(() => { const d = new Date(0); return [d.setHours(1, Infinity), String(d), d.setFullYear(1971), d.getTime()] })() => [null,"Invalid Date",31536000000,31536000000]
["b", "a", "Ä", "A", "_x", "10", "9", "é", "e", "E"].sort((a, b) => a.localeCompare(b)) => ["_x","10","9","a","A","Ä","b","e","E","é"]
["à", "á", "â", "ă", "a", "ae", "æ", "áe", "z", "þ", "t", "ŧ", "u", "ı", "i", "j", "ĸ", "q", "r", "n", "ñ", "ŋ", "o", "ø", "ō", "õ", "đ", "d", "ð", "ł", "ļ", "ß", "ss", "\t", "\n", " ", "É", "é"].sort((a, b) => a.localeCompare(b)).join("") => "\t\n aáàăâaeáeædđðéÉiıjļłnñŋoõøōqĸrssßtŧuzþ"
"\t".localeCompare("\n") + "résumé".localeCompare("resumes") + "a".localeCompare("A") + "co-op".localeCompare("coop") => -4
["ſ", "ŀ", "ĳ", "ŉ", "×"].filter((c) => { try { c.localeCompare("a"); return true } catch { return false } }) => []
(() => { try { "ж".localeCompare("я") } catch (e) { return e.message.includes("locale data") } })() => true
(() => { try { Intl.NumberFormat } catch (e) { return e.message.includes("Intl is not available") } })() => true
(() => { try { (5).toLocaleString() } catch (e) { return e.message.includes("toLocaleString") } })() => true
"İ".toLocaleLowerCase().length => 2
"abcabc".replaceAll("b", "[$&]") + "a-b".split("-").length + "xyx".lastIndexOf("x") => "a[b]ca[b]c22"
((n) => { const t = "ab".repeat(1e5) + n; return [t.indexOf(n), t.includes(n), t.lastIndexOf(n), t.split(n).length, t.replace(n, "$$!").slice(-2), t.replaceAll(n, () => "?").slice(-1)] })("ab".repeat(50) + "c") => [200000,true,200000,2,"$!","?"]
["aXaXa", "a".repeat(3e5)].map((t) => [t.lastIndexOf("a".repeat(100)), t.lastIndexOf("a", 3), t.lastIndexOf("")]) => [[-1,2,5],[299900,3,300000]]
((t) => [t.lastIndexOf("ab".repeat(60)), t.lastIndexOf("ab".repeat(60), 99881), t.lastIndexOf("ab".repeat(60), 1), t.lastIndexOf("ba".repeat(60) + "c")])("ab".repeat(2e5)) => [399880,99880,0,-1]
[[1, [2, [3, [4]]]].flat(), [1, [2, [3, [4]]]].flat(2), [1, [2, [3, [4]]]].flat(Infinity), [1, , [[, 2]]].flat(2), [[1]].flat(0)] => [[1,2,[3,[4]]],[1,2,3,[4]],[1,2,3,4],[1,2],[[1]]]
[["b", "a", "C", undefined, 10, 9].sort(), ["x".repeat(2000), "b", { toString: () => "c" }].toSorted().map((t) => String(t)[0]), [[2], [1]].sort()] => [[10,9,"C","a","b",null],["b","c","x"],[[1],[2]]]
[String.raw`a\n${1}b${2}`, String.raw({ raw: ["x", "y", "z"] }, 0), String.raw({ raw: "abc" }, 1, 2, 3)] => ["a\\n1b2","x0yz","a1b2c"]
["é".normalize("NFD").length, ("é".repeat(5000) + "\u0301\u0316".repeat(9)).normalize("NFD").length, "ﬁ".normalize("NFKC")] => [2,10018,"fi"]
await new Promise((done) => { const seen = []; setTimeout(() => { seen.push("b"); done(seen) }, 5); setTimeout(() => seen.push("a"), 1); queueMicrotask(() => seen.push("m")) }) => ["m","a","b"]
await new Promise((done) => { let n = 0; const id = setInterval(() => { if (++n === 3) { clearInterval(id); done(n) } }, 1) }) => 3
await (async () => { try { await ctx.sleep(60000, { signal: AbortSignal.timeout(2) }) } catch (e) { return e.name } })() => "TimeoutError"
(() => { class E extends Error { constructor(m) { super(m); this.name = "Custom"; this.toString = () => "x" } } return [new E("a").name, String(new E("b"))] })() => ["Custom","x"]
(() => { function F() {} F.prototype.toString = () => "f"; F.prototype.constructor = F; const o = {}; o.hasOwnProperty = 1; return [String(new F()), o.hasOwnProperty] })() => ["f",1]
(() => { Error.stackTraceLimit = 50; return new Error("x").stack.length > 0 })() => true
typeof fetch + typeof console.log + typeof performance.now() => "functionfunctionnumber"
"#;

#[tokio::test]
async fn every_global_does_what_it_does_elsewhere() {
    let cases: Vec<(&str, &str)> = CASES
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.rsplit_once(" => ").expect("a case"))
        .collect();
    let arms: String =
        cases.iter().enumerate().map(|(n, (code, _))| format!("case {n}: return {code};\n")).collect();
    let source = format!(
        "export default async (args, ctx) => {{ const run = async () => {{ switch (args.n) {{ {arms} }} }}; return JSON.stringify(await run()); }};"
    );
    let folder = folder(&[("tools/t.js", &source)]);
    let app = App::new(folder.path());
    let mut wrong = Vec::new();
    for (n, (code, expected)) in cases.iter().enumerate() {
        let result = app.call("t", &format!(r#"{{"n":{n}}}"#)).await;
        let actual = result["content"][0]["text"].as_str().unwrap_or_default();
        if actual != *expected {
            wrong.push(format!("{code}\n  {actual}\n  {expected}\n  {}", app.reports.take().join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
