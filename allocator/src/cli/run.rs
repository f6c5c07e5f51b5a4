//! `run`: acquire, run a command with the lease in its environment, renew meanwhile, release at its end.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hyper::Method;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use super::client::{Client, SocketArgs};
use super::lease::WishArgs;
use crate::api::types::{LeaseBody, OwnerRequest, RenewRequest};
use crate::lease::random_hex;

/// An argument that becomes the lease's arguments for `docker run`.
const DOCKER_ARGS: &str = "{docker_args}";
/// Shortest time between two renewals.
const RENEW_MIN: Duration = Duration::from_millis(300);
/// Longest time between two renewals.
const RENEW_MAX: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    wish: WishArgs,
    /// The command. An argument {docker_args} becomes the lease's arguments for `docker run` (a subnet with a network is leased for
    /// it: internal unless --open), {port:NAME} within one the port's number
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) async fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    let client = Client::new(&args.socket);
    let docker = args.command.iter().any(|word| word == DOCKER_ARGS);
    let wish = if docker { args.wish.with_network() } else { args.wish };
    wish.check()?;
    if wish.is_empty() {
        return Err(Failure::new(
            Failure::USAGE,
            "nothing to lease: name a --port, --subnet or {docker_args}",
        ));
    }
    let pid = i32::try_from(std::process::id()).ok();
    let request = wish.request(random_hex::<16>(), Some(OwnerRequest { pid, labels: BTreeMap::new() }));
    let lease: LeaseBody = client.send(Method::POST, "/v1/leases", &request).await?;
    let outcome = run_with(&client, &lease, &args.command).await;
    let released = client.delete(&format!("/v1/leases/{}?epoch={}", lease.id, lease.epoch)).await;
    let code = outcome?;
    released?;
    Ok(code)
}

async fn run_with(client: &Client, lease: &LeaseBody, command: &[String]) -> Result<ExitCode, Failure> {
    let words = expand(command, lease)?;
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .envs(variables(lease))
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure::internal(format!("{} cannot be run: {error}", words[0])))?;
    let caught =
        |kind| signal(kind).map_err(|error| Failure::internal(format!("signals cannot be caught: {error}")));
    let (mut terminated, mut interrupted) =
        (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
    let mut renewal = tokio::time::interval(renew_every(lease));
    renewal.tick().await;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let status = ended.map_err(|error| Failure::internal(format!("the command cannot be waited for: {error}")))?;
                let signalled = status.signal().map(|number| 128 + number);
                let code = status.code().or(signalled).unwrap_or(1);
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
            _ = terminated.recv() => forward(&child, rustix::process::Signal::TERM),
            // The terminal sends it to the command as well.
            _ = interrupted.recv() => {}
            _ = renewal.tick() => renew(client, lease).await,
        }
    }
}

/// A failed renewal is tried again in time; a lease that has ended leaves the command to its launcher.
async fn renew(client: &Client, lease: &LeaseBody) {
    let request = RenewRequest { epoch: lease.epoch, ttl: None };
    let renewed: Result<LeaseBody, Failure> =
        client.send(Method::PUT, &format!("/v1/leases/{}/renew", lease.id), &request).await;
    if let Err(failure) = renewed {
        eprintln!("decant-allocator: the lease could not be renewed: {}", failure.text);
    }
}

fn forward(child: &Child, signal: rustix::process::Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended this instant.
        let _ended = rustix::process::kill_process(pid, signal);
    }
}

/// A third of the lease's lifetime, so that two renewals may fail.
fn renew_every(lease: &LeaseBody) -> Duration {
    let moment =
        |text: &str| time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok();
    let life = moment(&lease.expires_at).zip(moment(&lease.created_at)).map(|(end, start)| end - start);
    let life = life.and_then(|life| Duration::try_from(life).ok()).unwrap_or(RENEW_MAX);
    (life / 3).clamp(RENEW_MIN, RENEW_MAX)
}

/// The lease's own variables, not the proxy's: those are for its containers.
fn variables(lease: &LeaseBody) -> BTreeMap<String, String> {
    let pairs = lease.docker_args.chunks_exact(2).filter(|pair| pair[0] == "--env");
    let split = pairs.filter_map(|pair| pair[1].split_once('='));
    split
        .filter(|(name, _)| name.starts_with("DECANT_"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn expand(command: &[String], lease: &LeaseBody) -> Result<Vec<String>, Failure> {
    let mut words = Vec::with_capacity(command.len());
    for word in command {
        if word == DOCKER_ARGS {
            words.extend(lease.docker_args.iter().cloned());
            continue;
        }
        let mut word = word.clone();
        for port in &lease.ports {
            word = word.replace(&format!("{{port:{}}}", port.name), &port.number.to_string());
        }
        if word.contains("{port:") {
            return Err(Failure::new(Failure::USAGE, format!("{word}: no such port was leased")));
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_expanded() {
        let text = r#"{"id":"1","epoch":1,"session":"s","state":"active","ports":[{"name":"web","proto":"tcp","number":20001}],
            "docker_args":["--network","n","--env","DECANT_LEASE=1","--env","HTTP_PROXY=x"],
            "created_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T00:01:00Z"}"#;
        let lease: LeaseBody = serde_json::from_str(text).expect("a lease");
        let words = |text: &str| expand(&text.split(' ').map(str::to_owned).collect::<Vec<_>>(), &lease);
        assert_eq!(
            words("docker run {docker_args} -p {port:web}:80").expect("it expands").join(" "),
            "docker run --network n --env DECANT_LEASE=1 --env HTTP_PROXY=x -p 20001:80"
        );
        assert_eq!(words("x {port:none}").expect_err("no such port").code, Failure::USAGE);
        assert_eq!(variables(&lease), BTreeMap::from([("DECANT_LEASE".to_owned(), "1".to_owned())]));
        assert_eq!(renew_every(&lease), Duration::from_secs(20));
    }
}
