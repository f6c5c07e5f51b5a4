//! The command line as scripts see it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::support::engine::{DIALECTS, Engine};
use crate::support::server::{BINARY, Home};

fn run(home: &Home, args: &[&str]) -> Output {
    let (command, rest) = args.split_first().expect("a command");
    let mut all = Command::new(BINARY);
    all.arg(command).arg("--socket").arg(home.socket()).args(rest);
    all.output().expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_lease_can_be_had_by_hand() {
    let home = Home::bare();
    let server = home.start();
    let acquired = run(
        &home,
        &["acquire", "--port", "web", "--port", "dns/udp", "--subnet", "--session", "by hand", "--key", "k"],
    );
    let lease: Value = serde_json::from_str(&out(&acquired)).expect("it is JSON");
    let id = lease["id"].as_str().expect("an id");
    assert_eq!(
        out(&run(
            &home,
            &[
                "acquire",
                "--port",
                "web",
                "--port",
                "dns/udp",
                "--subnet",
                "--session",
                "by hand",
                "--key",
                "k"
            ]
        )),
        out(&acquired)
    );
    let line = out(&run(&home, &["list"]));
    assert!(
        line.contains(id)
            && line.contains("10.251.0.0/24")
            && line.contains(&format!("web={}/tcp", home.first))
            && line.contains("by hand"),
        "{line}"
    );
    let env = out(&run(&home, &["env", id]));
    assert!(
        env.contains(&format!("DECANT_PORT_WEB={}\n", home.first))
            && env.contains(&format!("DECANT_LEASE={id}\n")),
        "{env}"
    );
    let renewed = run(&home, &["renew", id, &lease["epoch"].to_string(), "--ttl", "2h"]);
    assert_eq!(renewed.status.code(), Some(0), "{}", err(&renewed));
    let stale = run(&home, &["renew", id, "999"]);
    assert_eq!(stale.status.code(), Some(70));
    assert!(err(&stale).contains("stale_epoch"), "{}", err(&stale));
    let status: Value = serde_json::from_str(&out(&run(&home, &["status"]))).expect("it is JSON");
    assert_eq!(status["status"]["leases"]["active"], 1);
    assert_eq!(run(&home, &["health"]).status.code(), Some(0));
    assert_eq!(run(&home, &["release", id]).status.code(), Some(0));
    server.until("it has ended", Duration::from_secs(5), |server| server.live().is_empty());
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let home = Home::bare();
    assert_eq!(run(&home, &["list"]).status.code(), Some(70), "nobody answers");
    assert_eq!(run(&home, &["health"]).status.code(), Some(1));
    let server = home.start();
    let many: Vec<String> = (0..64).map(|index| format!("--port=p{index}")).collect();
    let mut args = vec!["acquire"];
    args.extend(many.iter().map(String::as_str));
    assert_eq!(run(&home, &args).status.code(), Some(0));
    let full = run(&home, &["acquire", "--port", "x"]);
    assert_eq!(full.status.code(), Some(75));
    assert!(err(&full).contains("64 leased"), "{}", err(&full));
    assert_eq!(run(&home, &["acquire"]).status.code(), Some(64), "nothing was asked for");
    assert_eq!(run(&home, &["acquire", "--no-such-flag"]).status.code(), Some(64));
    assert_eq!(run(&home, &["run", "--", "true"]).status.code(), Some(64));
    drop(server);
    let wrong = Home::new("{version: 1, prots: {}}");
    let output = wrong.command().stderr(std::process::Stdio::piped()).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("a.yaml:1:"), "{}", err(&output));
    let ephemeral =
        Home::new("{version: 1, docker: {socket: null}, gateway: null, ports: {range: 40000-40010}}");
    let output = ephemeral.command().stderr(std::process::Stdio::piped()).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("ip_local_reserved_ports"), "{}", err(&output));
}

#[test]
fn run_holds_a_lease_for_as_long_as_its_command() {
    let home = Home::bare();
    let server = home.start();
    let script = "echo $DECANT_PORT_WEB {port:web}; exit 7";
    let output = run(&home, &["run", "--port", "web", "--ttl", "1s", "--", "sh", "-c", script]);
    let twice = format!("{0} {0}", home.first);
    assert_eq!((out(&output).trim(), output.status.code()), (twice.as_str(), Some(7)), "{}", err(&output));
    server.until("it is released", Duration::from_secs(5), |server| server.live().is_empty());
    let long = run(&home, &["run", "--port", "web", "--ttl", "2s", "--", "sleep", "4"]);
    assert_eq!(long.status.code(), Some(0), "it was renewed: {}", err(&long));
    let mut killed = Command::new(BINARY)
        .process_group(0)
        .args(["run", "--socket"])
        .arg(home.socket())
        .args(["--port", "web", "--", "sleep", "60"])
        .spawn()
        .expect("the binary runs");
    server.until("it is leased", Duration::from_secs(5), |server| {
        server.live().iter().any(|lease| lease["state"] == "active")
    });
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    let group = format!("-{}", killed.id());
    // Whatever it had started by then goes too; it may have been nothing yet.
    drop(Command::new("kill").args(["-KILL", "--", &group]).stderr(std::process::Stdio::null()).status());
    server.until("a killed client's lease ends", Duration::from_secs(10), |server| server.live().is_empty());
}

/// A way out past the gateway is never what a command gets for saying nothing.
#[test]
fn networks_are_internal_unless_they_are_called_open() {
    let home = Home::new(
        "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: null, ports: {range: {ports}}, \
         subnets: {pool: 10.250.32.0/20, prefix: 24}, leases: {drain: 1s, grace: 1s}}",
    );
    let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
    let _server = home.start();
    let granted: [(&[&str], bool); 6] = [
        (&["acquire", "--network"], true),
        (&["acquire", "--internal"], true),
        (&["acquire", "--open"], false),
        (&["acquire", "--open", "--port", "web"], false),
        (&["run", "--", "true", "{docker_args}"], true),
        (&["run", "--open", "--port", "web", "--", "true", "{docker_args}"], false),
    ];
    for (args, internal) in granted {
        let output = run(&home, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
        let made = engine.state().creations.last().cloned().expect("a network was asked for");
        assert_eq!(made["Internal"], internal, "{args:?}");
    }
    let refused: [&[&str]; 2] = [
        &["acquire", "--network", "--port", "web"],
        &["run", "--port", "web", "--", "true", "{docker_args}", "-p", "{port:web}:80"],
    ];
    for args in refused {
        let output = run(&home, args);
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(err(&output).contains("--open"), "{args:?}: {}", err(&output));
    }
    assert_eq!(engine.state().creations.len(), granted.len(), "nothing else was made");
}

#[test]
fn what_keeps_a_network_from_being_internal_is_said_with_the_way_out() {
    let home = Home::new(
        "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: {host: true}, ports: {range: {ports}}, \
         subnets: {pool: 10.250.32.0/20, prefix: 24}}",
    );
    let _engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
    let _server = home.start();
    let output = run(&home, &["acquire", "--network"]);
    assert_eq!(output.status.code(), Some(64), "{}", err(&output));
    assert!(err(&output).contains("a gateway on the host is out of reach"), "{}", err(&output));
    assert!(err(&output).ends_with("--open makes a network that is not internal\n"), "{}", err(&output));
}

#[test]
fn completions_manual_and_help_are_there() {
    let output = Command::new(BINARY).args(["completions", "bash"]).output().expect("the binary runs");
    let asked = r#"eval "$1"; COMP_WORDS=(decant-allocator run --poli); COMP_CWORD=2
        _decant__allocator decant-allocator --poli run; echo "${COMPREPLY[*]}""#;
    let output =
        Command::new("bash").args(["-c", asked, "-", &out(&output)]).output().expect("there is a bash");
    assert_eq!(out(&output).trim(), "--policy", "{}", err(&output));
    let dir = tempfile::tempdir().expect("a folder");
    let output = Command::new(BINARY).arg("manual").arg(dir.path()).output().expect("the binary runs");
    assert!(output.status.success(), "{}", err(&output));
    let output = Command::new(BINARY).arg("--help").output().expect("the binary runs");
    for command in
        ["serve", "acquire", "renew", "release", "list", "status", "env", "run", "health", "completions"]
    {
        assert!(out(&output).contains(command), "{command}");
        assert!(dir.path().join(format!("decant-allocator-{command}.1")).exists(), "{command}");
    }
}
