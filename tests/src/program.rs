//! The programs under test: where they are, and what they say when they run to their end.
//!
//! Invariant: a program is found by its variable, or built beside the test that asks for it; never one that happens to
//! be installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What one run of the program did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// Runs the program with `arguments` to its end.
#[must_use]
pub fn run(arguments: &[&str]) -> Outcome {
    let output =
        Command::new(binary()).args(arguments).stdin(Stdio::null()).output().expect("the program starts");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The program under test: `DECANT_BIN`, else built on demand beside this test.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var_os("DECANT_BIN").map_or_else(|| build("decant-proxy", "decant"), PathBuf::from)
    })
}

/// Builds a program of this workspace beside this test.
pub(crate) fn build(package: &str, program: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile_dir = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/test");
    let release = profile_dir.file_name().is_some_and(|name| name == "release");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--locked", "--quiet", "--package", package, "--bin", program]);
    command.arg("--target-dir").arg(profile_dir.parent().expect("the target folder"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if release {
        command.arg("--release");
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "the program under test does not build");
    profile_dir.join(program)
}
