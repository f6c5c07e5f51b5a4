//! `kill -9` of the real process, at every durable step and at every write.
//!
//! After each death: what was answered is there, what was not is gone or is found with its key, and no network stands alone.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::engine::{DIALECTS, Engine, Trick};
use crate::support::http::try_ask;
use crate::support::server::{Home, Server, skip};

struct Place {
    home: Home,
    engine: Engine,
}

impl Place {
    fn new() -> Self {
        let home = Home::new(
            "{version: 1, docker: {socket: '{dir}/engine.sock'}, gateway: null, ports: {range: {ports}}, \
             subnets: {pool: 10.249.0.0/20, prefix: 24}, leases: {ttl: 10m, drain: 1s, grace: 1s}}",
        );
        let engine = Engine::start(&home.path().join("engine.sock"), DIALECTS[0]);
        Self { home, engine }
    }

    /// After a restart: every acknowledged lease is there, unchanged, and the networks are those of the leases.
    fn check(&self, server: &Server, acknowledged: &[Value]) {
        server.until("what was half made is undone", Duration::from_secs(20), |server| {
            let live = server.live();
            let mut wanted: Vec<_> = live
                .iter()
                .filter_map(|lease| lease["subnet"]["network_id"].as_str().map(str::to_owned))
                .collect();
            let mut there: Vec<_> = self
                .engine
                .networks_of_leases()
                .iter()
                .map(|network| network["Id"].as_str().expect("an ID").to_owned())
                .collect();
            wanted.sort();
            there.sort();
            live.iter().all(|lease| lease["state"] == "active") && wanted == there
        });
        let live = server.live();
        for lease in acknowledged {
            assert!(
                live.contains(lease),
                "an acknowledged lease is gone or changed: {lease}\n{}",
                server.tail()
            );
        }
    }
}

fn request(key: &str) -> Value {
    json!({"client_key": key, "ports": [{"name": "a"}, {"name": "b", "proto": "udp"}], "subnet": {"create_network": true}})
}

#[test]
fn a_death_before_or_after_the_engine_s_work_leaves_nothing_half_made() {
    let place = Place::new();
    let mut acknowledged = Vec::new();
    for (index, after) in [false, true, false, true].into_iter().enumerate() {
        let server = place.home.start();
        place.check(&server, &acknowledged);
        acknowledged.push(server.acquire(&request(&format!("good-{index}"))).expect(201));
        let (pid, bad) = (server.pid(), format!("bad-{index}"));
        place.engine.state().tricks =
            vec![if after { Trick::KillAfter(pid) } else { Trick::KillBefore(pid) }];
        assert!(
            try_ask(&server.socket(), "POST", "/v1/leases", &request(&bad)).is_err(),
            "there was an answer from the dead"
        );
        drop(server);
        let server = place.home.start();
        place.check(&server, &acknowledged);
        let again = server.acquire(&request(&bad)).expect(201);
        server.release(&again);
        server.until_quiet(Duration::from_secs(10));
    }
}

/// Runs a fixed course of requests; returns the leases that should be live as far as their clients know.
fn course(socket: &Path) -> Vec<Value> {
    let ask = |key: &str| try_ask(socket, "POST", "/v1/leases", &request(key));
    let answers = ["c1", "c2", "c3"].map(ask).into_iter().flatten();
    let mut live: Vec<Value> =
        answers.filter(|answer| answer.status == 201).map(|answer| answer.json()).collect();
    if live.len() == 3 {
        let path = format!("/v1/leases/{}", live.remove(1)["id"].as_str().expect("an id"));
        // Whether or not the answer comes, this one is not asked after again: its end may or may not be recorded.
        drop(try_ask(socket, "DELETE", &path, &Value::Null));
    }
    live
}

fn strace() -> bool {
    Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success())
}

/// Kills the process at its `nth` call of `calls` after the start; false if it never came to that many.
fn die_at(calls: &str, nth: usize) -> bool {
    let place = Place::new();
    let server = place.home.start();
    let before = server.acquire(&request("before")).expect(201);
    server.kill();
    let inject = format!("inject={calls}:signal=SIGKILL:when={nth}");
    let trace = format!("trace={calls}");
    let log = place.home.path().join("strace").display().to_string();
    let wrapper = ["strace", "-f", "-qq", "-o", &log, "-e", &trace, "-e", &inject];
    let child = place.home.command_under(&wrapper).spawn().expect("strace runs");
    let mut traced = place.home.adopt(child);
    let mut acknowledged = vec![before];
    if answers(&mut traced) {
        acknowledged.extend(course(&place.home.socket()));
    }
    // Also what comes after the last answer counts: the drain's end is recorded a second later.
    let died = traced.ends_within(Duration::from_millis(2500));
    if !died {
        kill_children(traced.pid());
        // The tracer ends with what it traces, which has the state folder until then.
        assert!(traced.ends_within(Duration::from_secs(10)), "the tracer outlives its process");
    }
    drop(traced);
    let server = place.home.start();
    place.check(&server, &acknowledged);
    for key in ["c1", "c2", "c3"] {
        let answer = server.acquire(&request(key));
        assert!(
            [201, 410].contains(&answer.status),
            "a key is stuck: {}",
            String::from_utf8_lossy(&answer.body)
        );
    }
    died
}

/// Whether it comes to answer before it dies.
fn answers(server: &mut Server) -> bool {
    for _ in 0..200 {
        if server.answers_within(Duration::from_millis(50)) {
            return true;
        }
        if server.has_ended() {
            return false;
        }
    }
    false
}

/// Kills what a tracer of ours traces.
fn kill_children(pid: u32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace() {
        drop(Command::new("kill").args(["-KILL", child]).status());
    }
}

fn every_death(calls: &str, most: usize, step: usize) {
    if !strace() {
        return skip("strace is not installed");
    }
    let mut deaths = 0;
    for nth in (1..=most).step_by(step) {
        if !die_at(calls, nth) {
            break;
        }
        deaths += 1;
    }
    eprintln!("{calls}: {deaths} deaths survived");
    assert!(deaths >= 3, "the injection did not work: {deaths} deaths");
}

#[test]
fn a_death_at_every_sync_is_survived() {
    every_death("fdatasync,fsync", 60, 2);
}

#[test]
fn a_death_at_every_write_of_the_store_is_survived() {
    every_death("pwrite64", 400, 7);
}

/// The long form: every single one.
#[test]
#[ignore = "takes minutes; the short forms above take some of them"]
fn a_death_at_each_write_and_sync_is_survived() {
    every_death("fdatasync,fsync", 200, 1);
    every_death("pwrite64", 1000, 1);
}
