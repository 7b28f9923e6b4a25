//! The measurements as a self-contained bar chart: no script, no font, light and dark.

use std::fmt::Write;

use super::report::{Report, floor_of, median};

const WIDTH: f64 = 760.0;
const LABELS: f64 = 240.0;
const VALUES: f64 = 90.0;
const BAR: f64 = 16.0;
const STEP: f64 = 24.0;
const MARGIN: f64 = 20.0;

struct Panel {
    title: &'static str,
    bars: Vec<Bar>,
}

struct Bar {
    name: String,
    value: f64,
    label: String,
}

/// The whole SVG.
pub fn svg(report: &Report) -> String {
    let timed = |title, rows: &[super::report::TimedResult], part: &str| Panel {
        title,
        bars: rows
            .iter()
            .filter(|row| row.name.contains(part))
            .filter_map(|row| {
                let value = median(&report.ratios(&row.name, floor_of(&row.name))?)?;
                let name = row.name.split_once(' ')?.1.trim_end_matches(part).trim().to_owned();
                Some(Bar { name, value, label: format!("{value:.2}x") })
            })
            .collect(),
    };
    let counted = Panel {
        title: "HTTP: instructions per request, in thousands",
        bars: report
            .counts
            .iter()
            .map(|count| Bar {
                name: count.name.trim_start_matches("count ").to_owned(),
                value: count.instructions,
                label: format!("{:.1}k", count.instructions / 1000.0),
            })
            .collect(),
    };
    let panels = [
        timed("HTTP: CPU per request, over a canned hyper server", &report.http, ""),
        timed("stdio, 64 outstanding: CPU per call, over an echo", &report.stdio, "pipelined"),
        timed("stdio, one by one: CPU per call, over an echo", &report.stdio, "sequential"),
        counted,
    ];
    draw(panels.iter().filter(|panel| !panel.bars.is_empty()))
}

fn draw<'a>(panels: impl Iterator<Item = &'a Panel>) -> String {
    let mut body = String::new();
    let mut y = MARGIN;
    for panel in panels {
        y += 16.0;
        let _ =
            writeln!(body, r#"<text class="title" x="{MARGIN}" y="{y}">{}</text>"#, escape_xml(panel.title));
        y += 14.0;
        let longest = panel.bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        for bar in &panel.bars {
            let width = (WIDTH - 2.0 * MARGIN - LABELS - VALUES) * bar.value / longest;
            let (left, middle) = (MARGIN + LABELS, y + BAR - 4.0);
            let class = match bar.name.as_str() {
                name if name.starts_with("floor") => "floor",
                name if name.starts_with("spile") => "own",
                _ => "peer",
            };
            let _ = writeln!(
                body,
                concat!(
                    r#"<text x="{label}" y="{middle}" text-anchor="end">{name}</text>"#,
                    r#"<rect class="{class}" x="{left}" y="{y}" width="{width:.1}" height="{BAR}" rx="2"/>"#,
                    r#"<text class="value" x="{value:.1}" y="{middle}">{shown}</text>"#
                ),
                label = left - 8.0,
                middle = middle,
                name = escape_xml(&bar.name),
                class = class,
                left = left,
                y = y,
                width = width,
                BAR = BAR,
                value = left + width + 6.0,
                shown = bar.label,
            );
            y += STEP;
        }
        y += 12.0;
    }
    let _ = writeln!(body, r#"<text class="note" x="{MARGIN}" y="{}">Shorter is better.</text>"#, y + 4.0);
    let height = y + MARGIN;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Cost per request, shorter is better">
<style>
svg {{ background: #ffffff; font: 13px system-ui, sans-serif; }}
text {{ fill: #1f2328; }} .title {{ font-weight: 600; }} .note {{ font-size: 11px; opacity: 0.7; }} .value {{ font-variant-numeric: tabular-nums; }}
.own {{ fill: #1a7f5a; }} .peer {{ fill: #8c959f; }} .floor {{ fill: #d0d7de; }}
@media (prefers-color-scheme: dark) {{
svg {{ background: #0d1117; }} text {{ fill: #e6edf3; }}
.own {{ fill: #3fb98a; }} .peer {{ fill: #6e7681; }} .floor {{ fill: #3d444d; }}
}}
</style>
{body}</svg>
"#
    )
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
