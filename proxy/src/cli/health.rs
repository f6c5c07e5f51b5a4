//! `decant health`: asks the admin port whether a request through the data path works.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::args::HealthArgs;
use super::{Exit, Failure};

/// How long to wait for the answer: longer than the probe's own limit, shorter than a health check's usual one.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of the answer looked at.
const ANSWER_MAX: u64 = 4096;

/// Runs the command.
pub(super) fn run(args: &HealthArgs) -> Result<Exit, Failure> {
    match ask(args) {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200") => {
            Ok(Exit::Fine)
        }
        Ok(answer) => {
            let said = answer.split("\r\n\r\n").nth(1).unwrap_or("").trim();
            eprintln!("decant: not ready: {}", super::printable(said));
            Ok(Exit::Found)
        }
        Err(error) => {
            eprintln!("decant: no answer from {}: {error}", args.admin);
            Ok(Exit::Found)
        }
    }
}

fn ask(args: &HealthArgs) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&args.admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", args.admin)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
