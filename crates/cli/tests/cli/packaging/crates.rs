//! The crates that are published: whole, and for the Rust that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::root;

const PUBLISHED: [&str; 9] = [
    "task-engine-core",
    "task-engine-macros",
    "task-engine-store",
    "task-engine-operations",
    "task-engine-postgres",
    "task-engine-sqlite",
    "task-engine",
    "task-engine-web",
    "task-engine-cli",
];

/// Dependencies that need a newer Rust than the rest, behind a feature of the
/// same name.
const NEWER: [(&str, &str); 1] = [("sqlx", "1.94")];

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let done = Command::new(program).args(arguments).current_dir(root()).output().expect("cargo");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

fn metadata(more: &[&str]) -> Value {
    let words = ["metadata", "--locked", "--offline", "--format-version", "1"];
    serde_json::from_str(&cargo(&[&words, more].concat())).expect("JSON")
}

fn all(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("a list").iter()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().expect("a number"));
    (numbers.next().expect("a version"), numbers.next().unwrap_or(0))
}

#[test]
fn dependencies_support_our_rust_version() {
    // Packages of other systems may not be downloaded.
    let compiler = Command::new("rustc").arg("-vV").output().expect("rustc");
    let compiler = String::from_utf8(compiler.stdout).expect("text");
    let here = compiler.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let metadata = metadata(&["--all-features", "--filter-platform", here]);
    let graph = Graph::of(&metadata);
    let ours = graph.rust_of("task-engine");
    let without = NEWER.map(|(name, _)| name);
    let plain = graph.reached(&without);
    assert!(plain.len() > 100, "the whole graph: {}", plain.len());
    let (asked, who) = graph.newest(&plain);
    assert!(asked <= version(ours), "{who} asks for Rust {asked:?}, we for {ours}");

    for (name, rust) in NEWER {
        let others: Vec<&str> = without.into_iter().filter(|other| *other != name).collect();
        let (asked, who) = graph.newest(&graph.reached(&others));
        assert_eq!(asked, version(rust), "feature {name}, for {who}");
        for document in ["README.md", "docs/versions.md"] {
            let document = fs::read_to_string(root().join(document)).unwrap();
            assert!(document.contains(ours) && document.contains(rust));
        }
    }
}

struct Graph<'a> {
    packages: BTreeMap<&'a str, &'a Value>,
    /// The dependencies of each, without those of its tests.
    needs: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Graph<'a> {
    fn of(metadata: &'a Value) -> Self {
        let packages =
            all(&metadata["packages"]).map(|package| (text(&package["id"]), package)).collect();
        let needs = all(&metadata["resolve"]["nodes"]).map(|node| {
            let used = all(&node["deps"]).filter(|dependency| {
                all(&dependency["dep_kinds"]).any(|kind| kind["kind"].as_str() != Some("dev"))
            });
            (text(&node["id"]), used.map(|dependency| text(&dependency["pkg"])).collect())
        });
        Self { packages, needs: needs.collect() }
    }

    fn name(&self, id: &str) -> &'a str {
        text(&self.packages[id]["name"])
    }

    fn rust_of(&self, name: &str) -> &'a str {
        let id = self.packages.keys().find(|id| self.name(id) == name).expect(name);
        text(&self.packages[id]["rust_version"])
    }

    /// The newest Rust that one of these asks for, and which one.
    fn newest(&self, ids: &BTreeSet<&'a str>) -> ((u32, u32), &'a str) {
        let asked = ids.iter().filter_map(|id| {
            let asked = self.packages[id]["rust_version"].as_str()?;
            Some((version(asked), *id))
        });
        asked.max().expect("a package names its Rust version")
    }

    /// All that what we publish is built with, but not by way of these.
    fn reached(&self, without: &[&str]) -> BTreeSet<&'a str> {
        let ours = self.packages.keys().filter(|id| PUBLISHED.contains(&self.name(id)));
        let mut open: Vec<&str> = ours.copied().collect();
        let mut reached = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !without.contains(&self.name(id)) && reached.insert(id) {
                open.extend(&self.needs[id]);
            }
        }
        reached
    }
}

#[test]
fn published_crates_depend_on_published_crates() {
    let metadata = metadata(&["--no-deps"]);
    let mut published = BTreeSet::new();
    for package in all(&metadata["packages"]) {
        let name = text(&package["name"]);
        // An empty list of registries: to none.
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        published.insert(name);
        for key in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[key].is_string(), "{name} has no {key}");
        }
        for key in ["keywords", "categories"] {
            assert!((1..=5).contains(&all(&package[key]).count()), "{name}: {key}");
        }
        let ours = all(&package["dependencies"]).filter(|dependency| {
            dependency["path"].is_string() && dependency["kind"].as_str() != Some("dev")
        });
        for dependency in ours {
            let needed = text(&dependency["name"]);
            assert!(PUBLISHED.contains(&needed), "{name} needs {needed}");
            assert_ne!(dependency["req"], "*", "{name} needs {needed} of any version");
        }
    }
    assert_eq!(published, BTreeSet::from(PUBLISHED));
}

#[test]
fn published_crates_have_their_files() {
    for name in PUBLISHED {
        let list = cargo(&["package", "--list", "--offline", "--allow-dirty", "-p", name]);
        let files: BTreeSet<&str> = list.lines().collect();
        for file in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(files.contains(file), "{name} without {file}");
        }
        let stray = files.iter().find(|file| {
            let places = ["src/", "sql/", "migrations/"];
            let others = [
                ".cargo_vcs_info.json",
                "build.rs",
                "Cargo.lock",
                "Cargo.toml",
                "Cargo.toml.orig",
                "README.md",
                "LICENSE-APACHE",
                "LICENSE-MIT",
            ];
            !others.contains(file) && !places.iter().any(|sandbox| file.starts_with(sandbox))
        });
        assert_eq!(stray, None, "{name}");
        let has_tables = ["task-engine-postgres", "task-engine-sqlite"].contains(&name);
        assert_eq!(files.contains("migrations/0001_tasks.sql"), has_tables, "{name}");
    }
}
