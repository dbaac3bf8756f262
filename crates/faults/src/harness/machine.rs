//! What the machine lends: small volumes, cgroups, programs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs a program that must work.
///
/// # Panics
/// If it does not.
pub fn must(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Cleans up when it is dropped, or when this process ends, however it does:
/// a script that waits for the end of its input.
#[derive(Debug)]
pub struct Cleanup(Child);

impl Cleanup {
    /// `$0` and so on are the arguments.
    #[must_use]
    pub fn by(script: &str, arguments: &[&str]) -> Self {
        let keeper = Command::new("sh")
            .args(["-c", &format!("cat >/dev/null; {script}")])
            .args(arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(keeper.expect("a shell"))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A network of its own, with a wire to this one.
#[derive(Debug)]
pub struct Network {
    name: String,
    wire: String,
    number: u8,
    _cleanup: Cleanup,
}

impl Network {
    /// Makes one; needs root.
    #[must_use]
    pub fn new() -> Self {
        let number = fastrand::u8(1..255);
        let (name, wire) = (format!("tef{number}"), format!("tea{number}"));
        let far = format!("teb{number}");
        must("ip", &["netns", "add", &name]);
        let cleanup = Cleanup::by("ip link del \"$1\"; ip netns del \"$0\"", &[&name, &wire]);
        must("ip", &["link", "add", &wire, "type", "veth", "peer", "name", &far]);
        must("ip", &["link", "set", &far, "netns", &name]);
        must("ip", &["addr", "add", &format!("10.213.{number}.1/30"), "dev", &wire]);
        must("ip", &["link", "set", &wire, "up"]);
        let there = ["netns", "exec", &name, "ip"];
        must(
            "ip",
            &[&there[..], &["addr", "add", &format!("10.213.{number}.2/30"), "dev", &far]].concat(),
        );
        must("ip", &[&there[..], &["link", "set", &far, "up"]].concat());
        must("ip", &[&there[..], &["link", "set", "lo", "up"]].concat());
        Self { name, wire, number, _cleanup: cleanup }
    }

    /// The program around one that is to be in this network.
    #[must_use]
    pub fn around(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    /// This machine, as it is seen from there.
    #[must_use]
    pub fn gateway(&self) -> String {
        format!("10.213.{}.1", self.number)
    }

    /// Pulls the wire out, or puts it in: packets are lost, and nobody is told.
    pub fn wire(&self, up: bool) {
        must("ip", &["link", "set", &self.wire, if up { "up" } else { "down" }]);
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

/// A volume of its own size, in memory. It is gone when this process is,
/// however it ends.
#[derive(Debug)]
pub struct Volume {
    path: PathBuf,
    _cleanup: Cleanup,
}

impl Volume {
    /// Mounts one; needs root.
    #[must_use]
    pub fn mount(path: PathBuf, mib: u32) -> Self {
        std::fs::create_dir_all(&path).expect("a folder");
        let name = path.display().to_string();
        must("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m,mode=777"), "tmpfs", &name]);
        let cleanup = Cleanup::by("umount -l \"$0\"; rmdir \"$0\"", &[&name]);
        Self { path, _cleanup: cleanup }
    }

    /// Mounts it again with other options.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        must("mount", &["-o", &options, &self.path.display().to_string()]);
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills all that is free with a file; it is returned, to be removed.
    #[must_use]
    pub fn fill(&self) -> PathBuf {
        let file = self.path.join("ballast");
        let of = format!("of={}", file.display());
        // It ends with an error, when nothing is free.
        let _ =
            Command::new("dd").args(["if=/dev/zero", &of, "bs=4k"]).stderr(Stdio::null()).status();
        file
    }
}

/// A control group of the old kind, with its processes.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group under a controller; needs root.
    #[must_use]
    pub fn new(controller: &str) -> Self {
        let name = format!("task-engine-faults-{}-{}", std::process::id(), fastrand::u32(..));
        let path = Path::new("/sys/fs/cgroup").join(controller).join(name);
        std::fs::create_dir(&path).unwrap_or_else(|error| {
            panic!("no control group {}: {error}; this needs root and cgroup v1", path.display())
        });
        Self { path }
    }

    /// Writes a setting.
    pub fn set(&self, file: &str, value: impl ToString) {
        let path = self.path.join(file);
        std::fs::write(&path, value.to_string())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The program around one that is to be in this group from its beginning.
    #[must_use]
    pub fn around(&self) -> Vec<String> {
        let tasks = self.path.join("cgroup.procs").display().to_string();
        let enter = r#"echo $$ >"$0" && exec "$@""#;
        ["sh", "-c", enter, &tasks].map(str::to_owned).to_vec()
    }

    /// Reads a setting.
    #[must_use]
    pub fn get(&self, file: &str) -> String {
        std::fs::read_to_string(self.path.join(file)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.path.join("freezer.state").exists() {
            let _ = std::fs::write(self.path.join("freezer.state"), "THAWED");
        }
        // Processes that were just killed may take a moment to leave.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// The library that changes what a process believes the time to be.
///
/// # Panics
/// If it is not there.
#[must_use]
pub fn faketime_library() -> String {
    let places = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = places
        .map(|entry| entry.path().join("faketime/libfaketime.so.1"))
        .find(|path| path.is_file());
    let found = found.expect("libfaketime is missing: apt-get install faketime");
    found.display().to_string()
}
