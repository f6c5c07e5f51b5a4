//! What a gateway under test needs of the machine: free ports, files for what it prints, a clock.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::seed::Seeded;

/// Listening ports are drawn from below the range that the kernel gives outgoing connections.
const PORTS: std::ops::Range<u16> = 10_000..19_000;

pub(super) fn spawn_logged(command: &mut Command, folder: &Path) -> Child {
    let stdout = fs::File::create(folder.join("stdout.log")).expect("the state folder is writable");
    let stderr = fs::File::create(folder.join("stderr.log")).expect("the state folder is writable");
    command.stdout(stdout).stderr(stderr).spawn().expect("the program starts")
}

/// The name of the container of a gateway whose state is in `folder`.
pub(super) fn container_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("decant-test-{}", name.trim_matches('.'))
}

/// Starts `decant` in a container of `image` that sees `folder` where it is.
pub(super) fn engine_run(image: &str, memory: Option<u64>, folder: &Path) -> Command {
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--network", "host", "--user", "0:0", "--no-healthcheck"]);
    command.args(["--label", crate::docker::LABEL, "--name", &container_of(folder)]);
    command.arg("--volume").arg(format!("{0}:{0}", folder.display()));
    if let Some(bytes) = memory {
        command.args(["--memory", &bytes.to_string(), "--memory-swap", &bytes.to_string()]);
    }
    command.arg(image);
    command
}

pub(super) fn printed(folder: &Path) -> String {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    read("stdout.log") + &read("stderr.log")
}

pub(super) fn collect_files(folder: &Path, all: &mut Vec<u8>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            collect_files(&path, all);
        } else if path.extension().is_none_or(|extension| extension != "key") {
            all.extend(fs::read(&path).unwrap_or_default());
        }
    }
}

pub(super) fn free_port(seeded: &mut Seeded) -> SocketAddr {
    loop {
        let offset = seeded.below(PORTS.len());
        let port = PORTS.start + u16::try_from(offset).expect("a port");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

pub(super) fn clock_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(since.expect("a clock after 1970").subsec_nanos())
}

pub(super) fn indented(yaml: &str, spaces: usize) -> String {
    let pad = " ".repeat(spaces);
    yaml.lines().map(|line| format!("{pad}{line}\n")).collect()
}

/// A GET without TLS, read to its end.
///
/// # Errors
/// When the server does not answer.
pub async fn plain_get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut text = Vec::new();
    socket.read_to_end(&mut text).await?;
    let mut wire = crate::rawclient::Wire::new(Box::new(std::io::Cursor::new(text)));
    let answer = wire.answer(false).await.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((answer.head.status, answer.text()))
}
