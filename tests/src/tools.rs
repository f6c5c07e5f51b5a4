//! The programs that some tests need, and the honest way to leave a test out.
//!
//! Invariant: a test that cannot run says what it lacks; where `CI` is set that is a failure, never a quiet pass.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Says why a test does not run here, and fails it where `CI` is set.
///
/// # Panics
/// Where `CI` is set, or where the note cannot be written.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let note = format!("skipped: {test}: {reason}");
    eprintln!("{note}");
    if let Some(path) = std::env::var_os("DECANT_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.expect("the list of skips"), "{note}").expect("the note is written");
    }
    assert!(std::env::var_os("CI").is_none(), "{note} (with CI set, a skip is a failure)");
}

/// True where the long forms of the proofs were asked for (`tests/run --long`).
#[must_use]
pub fn long_form() -> bool {
    std::env::var_os("DECANT_TEST_LONG").is_some()
}

/// True where this process may bind ports below 1024.
#[must_use]
pub fn may_bind_low_ports() -> bool {
    rustix::process::geteuid().is_root()
}

/// The path of `program`, if it can be found.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// True where every one of `programs` is there; otherwise the test is skipped with words.
#[must_use]
pub fn need(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| find(name).is_none()).collect();
    if missing.is_empty() {
        return true;
    }
    skip(&format!("needs {}", missing.join(", ")));
    false
}

/// A Python that has `modules`: the one of `tests/run`'s virtual environment (`DECANT_TEST_PYTHON`), else the
/// system's. Without one the test is skipped with words.
#[must_use]
pub fn python_with(modules: &[&str]) -> Option<PathBuf> {
    let chosen = std::env::var_os("DECANT_TEST_PYTHON").map(PathBuf::from);
    let Some(python) = chosen.or_else(|| find("python3")) else {
        skip("needs python3");
        return None;
    };
    let imports = modules.iter().map(|name| format!("import {name};")).collect::<String>();
    let probe = Command::new(&python).arg("-c").arg(imports).output();
    if probe.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    skip(&format!("needs a Python with {}", modules.join(", ")));
    None
}
