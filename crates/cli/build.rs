//! Which commit this is built from, for `--version`.
//!
//! In this order: what the environment says (a build in a container has no
//! repository), what `cargo package` wrote down, and the repository that this
//! folder is part of. A build without any of them has its version alone.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "TASK_ENGINE_COMMIT";
const PACKAGED: &str = ".cargo_vcs_info.json";
const LENGTH: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let version = env::var("CARGO_PKG_VERSION").expect("set by cargo");
    let commit = named().or_else(packaged).or_else(checked_out);
    let long = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=TASK_ENGINE_VERSION={long}");
}

fn named() -> Option<String> {
    short(&env::var(VARIABLE).ok()?)
}

fn packaged() -> Option<String> {
    let text = fs::read_to_string(PACKAGED).ok()?;
    short(text.split("\"sha1\"").nth(1)?.split('"').nth(1)?)
}

fn checked_out() -> Option<String> {
    // A package that a user unpacked inside another repository is not at
    // a commit of ours.
    let top = fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != fs::canonicalize("../..").ok()? || !top.join("crates/cli/build.rs").exists() {
        return None;
    }
    // A new commit changes the branch and the log, a checkout HEAD. A file that
    // is not there (the branch may be in a pack) would mean: every time.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    short(&git(&["rev-parse", "HEAD"])?)
}

fn git(args: &[&str]) -> Option<String> {
    // Inside a hook these would name another repository than the folder's.
    let output = Command::new("git")
        .args(args)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn short(commit: &str) -> Option<String> {
    let commit = commit.trim();
    let is_commit = commit.len() >= 7 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    is_commit.then(|| commit.chars().take(LENGTH).collect())
}
