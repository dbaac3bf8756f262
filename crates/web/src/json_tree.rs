//! JSON as a collapsible tree. Numbers keep their digits, objects their order and
//! duplicates, strings their escapes.

use std::fmt;

use maud::{Markup, html};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Longer texts are offered as a download only.
pub(crate) const SHOWN_BYTES_MAX: usize = 256 * 1024;
/// Longer trees start closed below the first level.
const OPEN_LINES_MAX: usize = 50;
/// Lines of the tree; the text below has all.
const LINES_MAX: usize = 2_000;
/// Deeper JSON is shown as text. It cannot be created here, but a database may
/// contain it, and recursion must be bounded.
const LEVELS_MAX: usize = 100;

/// A value and its children.
#[derive(Debug, PartialEq)]
enum Node<'a> {
    /// A scalar, exactly as in the JSON.
    Leaf(&'a str),
    Object(Vec<(String, Node<'a>)>),
    Array(Vec<Node<'a>>),
}

/// A JSON text as a tree, with the text below. `id`: of the element on the page;
/// `file`: the address of the download.
pub(crate) fn show(text: &str, id: &str, file: &str) -> Markup {
    if text.len() > SHOWN_BYTES_MAX {
        return html! {
            p { span .badge { (bytes(text.len())) } " Too large to be shown here: "
                a href=(file) { "download" } "." }
        };
    }
    let Some(node) = read(text, LEVELS_MAX) else {
        // Invalid JSON, written by hand.
        return html! { pre id=(id) { (text) } };
    };
    let mut left = LINES_MAX;
    let open = lines(&node) <= OPEN_LINES_MAX;
    html! {
        div .json { (tree(None, &node, true, open, &mut left)) }
        @if left == 0 { p .soft { "Only the first " (LINES_MAX) " lines are shown as a tree." } }
        details .raw {
            summary { "As text " span .badge { (bytes(text.len())) } }
            div .row {
                button .quiet type="button" hidden data-copy=(id) { "Copy" }
                a href=(file) { "Download" }
            }
            pre id=(id) { (text) }
        }
    }
}

/// `512 bytes`, `1.5 kB`.
pub(crate) fn bytes(number: usize) -> String {
    match number {
        0..1_000 => format!("{number} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", number as f64 / 1e3),
        _ => format!("{:.1} MB", number as f64 / 1e6),
    }
}

fn tree(
    key: Option<&str>,
    node: &Node<'_>,
    outermost: bool,
    open: bool,
    left: &mut usize,
) -> Markup {
    if *left == 0 {
        return html! {};
    }
    *left -= 1;
    let key = html! {
        @if let Some(key) = key { span .key { (quoted(key)) } ": " }
    };
    let (sign, number, what) = match node {
        Node::Leaf(text) => {
            let class = if text.starts_with('"') { "text" } else { "value" };
            return html! { div .leaf { (key) span .(class) { (text) } } };
        }
        Node::Object(fields) => (["{", "}"], fields.len(), "field"),
        Node::Array(items) => (["[", "]"], items.len(), "item"),
    };
    if number == 0 {
        return html! { div .leaf { (key) (sign[0]) (sign[1]) } };
    }
    let inside = match node {
        Node::Object(fields) => html! {
            @for (key, node) in fields { (tree(Some(key), node, false, open, left)) }
        },
        Node::Array(items) => html! {
            @for node in items { (tree(None, node, false, open, left)) }
        },
        Node::Leaf(_) => html! {},
    };
    html! {
        details open[open || outermost] {
            summary { (key) (sign[0]) " " small { (task_engine_core::display::count(number, what)) } " " (sign[1]) }
            div { (inside) }
        }
    }
}

/// A key with its escapes.
fn quoted(key: &str) -> String {
    serde_json::to_string(key).unwrap_or_else(|_| key.to_owned())
}

fn lines(node: &Node<'_>) -> usize {
    1 + match node {
        Node::Leaf(_) => 0,
        Node::Object(fields) => fields.iter().map(|(_, node)| lines(node)).sum(),
        Node::Array(items) => items.iter().map(lines).sum(),
    }
}

/// Parses up to `levels` levels.
fn read(text: &str, levels: usize) -> Option<Node<'_>> {
    let levels = levels.checked_sub(1)?;
    let text = text.trim();
    let mut reader = serde_json::Deserializer::from_str(text);
    match text.as_bytes().first()? {
        b'{' => {
            let fields = reader.deserialize_map(FieldsVisitor).ok()?;
            let fields = fields.into_iter().map(|(key, raw)| Some((key, read(raw.get(), levels)?)));
            fields.collect::<Option<_>>().map(Node::Object)
        }
        b'[' => {
            let items = reader.deserialize_seq(Items).ok()?;
            let items = items.into_iter().map(|raw| read(raw.get(), levels));
            items.collect::<Option<_>>().map(Node::Array)
        }
        _ => serde_json::from_str::<&RawValue>(text).ok().map(|raw| Node::Leaf(raw.get())),
    }
}

struct FieldsVisitor;

impl<'a> Visitor<'a> for FieldsVisitor {
    type Value = Vec<(String, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

struct Items;

impl<'a> Visitor<'a> for Items {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        show(text, "p", "/p.json").into_string()
    }

    #[test]
    fn digits_order_and_escapes_stay() {
        let text = r#"{"b": 1970670598291982290123456789.10, "a": 1e400, "b": [true, null, {}], "c": "\u0061\n"}"#;
        let Some(Node::Object(fields)) = read(text, 9) else { panic!() };
        let keys: Vec<_> = fields.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["b", "a", "b", "c"]);
        assert_eq!(fields[0].1, Node::Leaf("1970670598291982290123456789.10"));
        assert_eq!(fields[1].1, Node::Leaf("1e400"));
        assert_eq!(fields[3].1, Node::Leaf(r#""\u0061\n""#));
        assert_eq!(lines(&read(text, 9).unwrap()), 8);
    }

    #[test]
    fn data_is_never_markup() {
        let html = shown(r#"{"<script>k": "<script>v", "d": {"x\u0000": ["<script>"]}}"#);
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&lt;script&gt;k") && html.contains("&lt;script&gt;v"), "{html}");
        assert!(!shown("<script> is no JSON").contains("<script"));
    }

    #[test]
    fn deep_json_is_shown_as_text() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(shown(&nested(LEVELS_MAX - 1)).contains("<details"));
        for levels in [LEVELS_MAX, 1_000, 100_000] {
            let html = shown(&nested(levels));
            assert!(html.starts_with("<pre") && !html.contains("<details"), "{levels}");
        }
    }

    #[test]
    fn long_json_starts_closed() {
        let small = shown(r#"{"a": {"b": 1}}"#);
        assert_eq!(small.matches("<details open").count(), 2, "{small}");
        let items = vec!["[1]"; 100].join(",");
        let long = shown(&format!("[{items}]"));
        assert_eq!(long.matches("<details open").count(), 1, "{long}");
        let wide = vec!["1"; 5_000].join(",");
        let wide = shown(&format!("[{wide}]"));
        assert_eq!(wide.matches("class=\"leaf\"").count(), LINES_MAX - 1);
        assert!(wide.contains("Only the first 2000 lines"));
        let huge = shown(&format!("\"{}\"", "x".repeat(SHOWN_BYTES_MAX)));
        assert!(
            huge.contains("262.1 kB") && huge.contains("/p.json") && huge.len() < 500,
            "{huge}"
        );
    }
}
