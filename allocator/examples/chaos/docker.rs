//! Docker: over its socket where launchers do it, with its command where the run itself does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::LABEL;

const IMAGE: &str = "decant-chaos:run";
const SOCKET: &str = "/var/run/docker.sock";

/// Sends one request over a Unix socket: HTTP/1.0, so the answer ends with the connection.
pub(crate) fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
    let mut stream = UnixStream::connect(socket)?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status =
        head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// A container to run.
pub(crate) struct Deploy<'run> {
    pub(crate) owner: &'run str,
    pub(crate) lease: &'run str,
    pub(crate) network: Option<&'run str>,
    /// Host ports; the container serves as many, from 8000 on.
    pub(crate) ports: &'run [u16],
}

/// Runs a container; the engine's words if it will not start. It is removed then.
pub(crate) fn deploy(deploy: &Deploy<'_>) -> Result<String, String> {
    let inner = |index: usize| 8000 + index;
    let bindings: serde_json::Map<String, Value> = deploy
        .ports
        .iter()
        .enumerate()
        .map(|(index, port)| {
            (format!("{}/tcp", inner(index)), json!([{"HostIp": "0.0.0.0", "HostPort": port.to_string()}]))
        })
        .collect();
    let exposed: serde_json::Map<String, Value> =
        bindings.keys().map(|key| (key.clone(), json!({}))).collect();
    let command: Vec<String> = std::iter::once("bottle".to_owned())
        .chain((0..deploy.ports.len()).map(|index| inner(index).to_string()))
        .collect();
    let body = json!({
        "Image": IMAGE, "Cmd": command, "ExposedPorts": exposed,
        "Labels": {LABEL: deploy.owner, "decant.lease": deploy.lease},
        "HostConfig": {"PortBindings": bindings, "NetworkMode": deploy.network.unwrap_or("default"), "Binds": libraries()},
    });
    let socket = Path::new(SOCKET);
    let words = |answer: &Value| answer["message"].as_str().unwrap_or_default().to_owned();
    let (status, made) =
        ask(socket, "POST", "/containers/create", &body).map_err(|error| error.to_string())?;
    let id = made["Id"].as_str().filter(|_| status == 201).ok_or_else(|| words(&made))?.to_owned();
    let (status, started) = ask(socket, "POST", &format!("/containers/{id}/start"), &Value::Null)
        .map_err(|error| error.to_string())?;
    if status >= 300 {
        remove(&id);
        return Err(words(&started));
    }
    Ok(id)
}

/// Removes a container, running or not.
pub(crate) fn remove(id: &str) {
    drop(ask(Path::new(SOCKET), "DELETE", &format!("/containers/{id}?force=true&v=true"), &Value::Null));
}

/// The folders that a dynamically linked program needs.
fn libraries() -> Vec<String> {
    let present = ["/lib", "/lib64", "/usr/lib"].into_iter().filter(|dir| Path::new(dir).exists());
    present.map(|dir| format!("{dir}:{dir}:ro")).collect()
}

/// An image of this very program.
pub(crate) fn build_image(dir: &Path) {
    let context = dir.join("image");
    std::fs::create_dir_all(&context).expect("a folder");
    let exe = std::env::current_exe().expect("this program has a name");
    std::fs::copy(exe, context.join("chaos")).expect("it can be copied");
    std::fs::write(
        context.join("Dockerfile"),
        format!("FROM scratch\nCOPY chaos /chaos\nLABEL {LABEL}=image\nENTRYPOINT [\"/chaos\"]\n"),
    )
    .expect("it can be written");
    let built = Command::new("docker")
        .args(["build", "-q", "-t", IMAGE])
        .arg(&context)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(built.expect("docker runs").success(), "the image cannot be built");
}

pub(crate) fn remove_image() {
    drop(quiet(&["image", "rm", "-f", IMAGE]));
}

/// A launcher in a container of its own: the default network, its own PID namespace, Docker's socket and the run's folder.
pub(crate) fn run_launcher(dir: &Path, name: &str, arguments: &[String]) -> Child {
    let folder = dir.display();
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--name", name, "--label", &format!("{LABEL}=launcher")]);
    for bind in libraries().into_iter().chain([format!("{folder}:{folder}"), format!("{SOCKET}:{SOCKET}")]) {
        command.args(["-v", &bind]);
    }
    command.args(["--env", "DECANT_CHAOS_HOST=172.17.0.1", IMAGE]).args(arguments);
    command.stdout(Stdio::null()).spawn().expect("docker runs")
}

pub(crate) fn kill(name: &str) {
    drop(quiet(&["kill", name]));
    drop(quiet(&["rm", "-f", name]));
}

/// Removes what a dead launcher left.
pub(crate) fn reap(owner: &str) {
    remove_all(&["ps", "-aq", "--filter", &format!("label={LABEL}={owner}")], &["rm", "-f"]);
}

/// Removes what all launchers left.
pub(crate) fn reap_all() {
    remove_all(&["ps", "-aq", "--filter", &format!("label={LABEL}")], &["rm", "-f"]);
}

/// Networks of the leases of an allocator.
pub(crate) fn networks(instance: &str) -> usize {
    list(&["network", "ls", "-q", "--filter", &format!("label=decant.instance={instance}")]).len()
}

fn quiet(args: &[&str]) -> std::io::Result<std::process::Output> {
    Command::new("docker").args(args).output()
}

fn list(args: &[&str]) -> Vec<String> {
    let output =
        quiet(args).map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    output.split_whitespace().map(str::to_owned).collect()
}

fn remove_all(listing: &[&str], removal: &[&str]) {
    let found = list(listing);
    if !found.is_empty() {
        let args: Vec<&str> = removal.iter().copied().chain(found.iter().map(String::as_str)).collect();
        drop(quiet(&args));
    }
}
