//! The short forms of the chaos courses (`examples/chaos`); the long ones are run by hand.

use std::path::Path;
use std::process::Command;

use crate::docker::Docker;
use crate::support::server::BINARY;

fn chaos(args: &[&str]) -> (bool, String) {
    let program = Path::new(BINARY).with_file_name("examples").join("chaos");
    let output = Command::new(&program).args(args).args(["--allocator", BINARY]).output();
    let output =
        output.unwrap_or_else(|error| panic!("{}: {error}; build it with --examples", program.display()));
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{text}");
    (output.status.success(), text)
}

#[test]
fn leased_ports_survive_churn_squatters_and_kills() {
    let Some(_engine) = Docker::take() else { return };
    let (clean, text) = chaos(&["--seconds", "20", "--percent", "10"]);
    assert!(clean, "{text}");
}

#[test]
fn sessions_with_networks_survive_each_other_s_deaths() {
    let Some(_engine) = Docker::take() else { return };
    let (clean, text) = chaos(&["--sessions", "8"]);
    assert!(clean, "{text}");
}
