//! Resources of the machine: small volumes, networks, control groups.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs a program that must succeed.
///
/// # Panics
/// If it fails.
pub fn run_command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Cleans up when it is dropped or this process ends: a script that waits for the
/// end of its input.
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

/// A network namespace with a link to this one.
#[derive(Debug)]
pub struct Network {
    name: String,
    wire: String,
    number: u8,
    _cleanup: Cleanup,
}

impl Network {
    /// Creates one; needs root.
    #[must_use]
    pub fn new() -> Self {
        let number = fastrand::u8(1..255);
        let (name, wire) = (format!("tef{number}"), format!("tea{number}"));
        let far = format!("teb{number}");
        run_command("ip", &["netns", "add", &name]);
        let cleanup = Cleanup::by("ip link del \"$1\"; ip netns del \"$0\"", &[&name, &wire]);
        run_command("ip", &["link", "add", &wire, "type", "veth", "peer", "name", &far]);
        run_command("ip", &["link", "set", &far, "netns", &name]);
        run_command("ip", &["addr", "add", &format!("10.213.{number}.1/30"), "dev", &wire]);
        run_command("ip", &["link", "set", &wire, "up"]);
        let there = ["netns", "exec", &name, "ip"];
        run_command(
            "ip",
            &[&there[..], &["addr", "add", &format!("10.213.{number}.2/30"), "dev", &far]].concat(),
        );
        run_command("ip", &[&there[..], &["link", "set", &far, "up"]].concat());
        run_command("ip", &[&there[..], &["link", "set", "lo", "up"]].concat());
        Self { name, wire, number, _cleanup: cleanup }
    }

    /// The command that runs a program in this network.
    #[must_use]
    pub fn wrapper(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    /// The address of this machine in that network.
    #[must_use]
    pub fn gateway(&self) -> String {
        format!("10.213.{}.1", self.number)
    }

    /// Takes the link down or up: packets are lost without an error.
    pub fn wire(&self, up: bool) {
        run_command("ip", &["link", "set", &self.wire, if up { "up" } else { "down" }]);
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

/// A small volume in memory, unmounted when this process ends.
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
        run_command(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={mib}m,mode=777"), "tmpfs", &name],
        );
        let cleanup = Cleanup::by("umount -l \"$0\"; rmdir \"$0\"", &[&name]);
        Self { path, _cleanup: cleanup }
    }

    /// Mounts it again with other options.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        run_command("mount", &["-o", &options, &self.path.display().to_string()]);
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills the free space with a file, and returns it.
    #[must_use]
    pub fn fill(&self) -> PathBuf {
        let file = self.path.join("ballast");
        let of = format!("of={}", file.display());
        // It fails when the volume is full.
        let _ =
            Command::new("dd").args(["if=/dev/zero", &of, "bs=4k"]).stderr(Stdio::null()).status();
        file
    }
}

/// A control group, of either version, with its processes.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
    /// Whether this is a version 1 hierarchy.
    first: bool,
    _cleanup: Cleanup,
}

impl ControlGroup {
    /// Creates a control group; needs root.
    #[must_use]
    pub fn new(controller: &str) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let own = root.join(controller);
        let first = own.is_dir();
        if !first {
            // The second version: a controller is there if the root lends it.
            let _ = std::fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let name = format!("task-engine-faults-{}-{}", std::process::id(), fastrand::u32(..));
        let path = if first { own.join(name) } else { root.join(name) };
        std::fs::create_dir(&path).unwrap_or_else(|error| {
            panic!("no control group {}: {error}; this needs root", path.display())
        });
        // Killed processes may need a moment to end.
        let remove = "echo THAWED >\"$0/freezer.state\"; for i in 1 2 3 4 5 6 7 8 9 10; do \
            rmdir \"$0\" && exit; sleep 0.2; done";
        let cleanup = Cleanup::by(remove, &[&path.display().to_string()]);
        Self { path, first, _cleanup: cleanup }
    }

    /// Limits the memory of its processes.
    pub fn limit_memory(&self, bytes: u64) {
        self.set(
            if self.first { "memory.limit_in_bytes" } else { "memory.max" },
            &bytes.to_string(),
        );
    }

    /// Stops all of its processes at once.
    pub fn freeze(&self) {
        if self.first {
            self.set("freezer.state", "FROZEN");
        } else {
            self.set("cgroup.freeze", "1");
        }
    }

    /// Resumes them.
    pub fn thaw(&self) {
        if self.first {
            self.set("freezer.state", "THAWED");
        } else {
            self.set("cgroup.freeze", "0");
        }
    }

    /// Whether all of them have stopped.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let read = |file| std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
        if self.first {
            read("freezer.state").trim() == "FROZEN"
        } else {
            read("cgroup.events").contains("frozen 1")
        }
    }

    fn set(&self, file: &str, value: &str) {
        let path = self.path.join(file);
        std::fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The command that runs a program in this group.
    #[must_use]
    pub fn wrapper(&self) -> Vec<String> {
        let processes = self.path.join("cgroup.procs").display().to_string();
        let enter = r#"echo $$ >"$0" && exec "$@""#;
        ["sh", "-c", enter, &processes].map(str::to_owned).to_vec()
    }
}

/// The library that changes the time of a process.
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
