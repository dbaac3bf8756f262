//! What documents point to is there: files, headings, tests, metrics.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{documents, root};

#[test]
fn no_link_is_dead() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", document.display());
            if !heading.is_empty() {
                let known = anchors(&fs::read_to_string(&target).unwrap());
                assert!(known.contains(heading), "{}: {link} of {known:?}", document.display());
            }
        }
    }
}

/// The headings of a document, as links name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_block || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

#[test]
fn headings_have_anchors() {
    let text = "# One, two\n```sh\n# no\n```\n## `three` of 4\n#five\n";
    assert_eq!(anchors(text), BTreeSet::from(["one-two".to_owned(), "three-of-4".to_owned()]));
}

/// `crates/a/src/b.rs::name`, in backquotes: a test of this name is in this file.
#[test]
fn every_test_that_is_named_is_there() {
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let named: Vec<_> = text
        .split('`')
        .filter_map(|piece| piece.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
        .collect();
    assert!(named.len() > 30, "the table names tests: {named:?}");
    for (file, name) in named {
        let code = fs::read_to_string(root().join(file)).unwrap_or_default();
        let is_test = code.match_indices(&format!("fn {name}(")).any(|(at, _)| {
            let mut before = code[..at].lines().rev().take(3);
            // The cases of the suite that every store passes are called by a macro.
            file.starts_with("crates/conformance/") || before.any(|line| line.contains("test"))
        });
        assert!(is_test, "{file}::{name}");
    }
}

/// The guide lists the metrics that there are, and no others.
#[test]
fn every_metric_is_in_the_guide() {
    let guide = fs::read_to_string(root().join("docs/http-api.md")).unwrap();
    let told: BTreeSet<_> = names_in(&guide).collect();
    let mut made = BTreeSet::new();
    for file in [
        "crates/web/src/api/metrics.rs",
        "crates/web/src/api/metrics/last_hour.rs",
        "crates/engine/src/measure.rs",
        "crates/engine/src/hooks/metrics.rs",
    ] {
        made.extend(quoted(&root().join(file)));
    }
    let (told, made): (Vec<_>, Vec<_>) = (told.into_iter().collect(), made.into_iter().collect());
    assert_eq!(told, made);
}

/// Names of metrics in backquotes.
fn names_in(text: &str) -> impl Iterator<Item = String> {
    text.split('`').filter(|name| is_metric(name)).map(str::to_owned)
}

/// Names of metrics in quotes, which is what code has.
fn quoted(file: &Path) -> Vec<String> {
    let code = fs::read_to_string(file).unwrap();
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    code.split('"').filter(|name| is_metric(name)).map(str::to_owned).collect()
}

fn is_metric(name: &str) -> bool {
    name.starts_with("task_engine_")
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
