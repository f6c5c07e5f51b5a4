//! `decant health`: asks the admin port whether a request through the data path works; and how every command asks it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::args::AdminArgs;
use super::{Exit, Failure, printable};

/// How long to wait for the answer: longer than the probe's own limit, shorter than a health check's usual one.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of an answer: the bundle of public roots has about 250 KB.
const ANSWER_MAX: u64 = 4 << 20;

/// Runs the command.
pub(super) fn run(args: &AdminArgs) -> Result<Exit, Failure> {
    match ask(args.admin, "/readyz") {
        Ok((200, _)) => Ok(Exit::Fine),
        Ok((_, said)) => {
            eprintln!("decant: not ready: {}", printable(said.trim()));
            Ok(Exit::Found)
        }
        Err(error) => {
            eprintln!("decant: no answer from {}: {error}", args.admin);
            Ok(Exit::Found)
        }
    }
}

/// The page of a gateway that runs.
pub(super) fn get(admin: SocketAddr, path: &str) -> Result<String, Failure> {
    match ask(admin, path) {
        Ok((200, body)) => Ok(body),
        Ok((status, said)) => {
            let said = printable(said.lines().next().unwrap_or_default());
            Err(Failure::internal(format!("{admin}{path} answers {status}: {said}")))
        }
        Err(error) => Err(Failure::internal(format!(
            "no answer from {admin}: {error}; does the gateway run there (--admin)?"
        ))),
    }
}

fn ask(admin: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&admin, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // Version 1.0: the answer's end is the connection's, with no coding of its own.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_told_apart() {
        assert_eq!(
            parse("HTTP/1.0 200 OK\r\na: b\r\n\r\nbody\r\n\r\nx"),
            Some((200, "body\r\n\r\nx".to_owned()))
        );
        assert_eq!(parse("HTTP/1.1 503\r\n\r\n"), Some((503, String::new())));
        assert_eq!(parse("SSH-2.0\r\n\r\n"), None);
    }
}
