//! The command line: arguments, exit codes, and one module a command.
//!
//! Invariant: data goes to stdout, everything else to stderr; the exit code is one of `Exit`.

mod announce;
mod args;
mod ca;
mod canary;
mod check;
mod client;
mod detectors;
mod finding;
mod health;
mod load;
mod presets;
mod reference;
mod reload;
mod run;
mod scan;
mod status;
mod trial;
mod worker;

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use self::args::{Args, Command};

/// How a command ended (after sysexits.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Fine = 0,
    /// Findings, problems, or unhealthy.
    Found = 1,
    /// The command line is wrong.
    Usage = 64,
    /// Something of ours, or of the machine's, failed.
    Internal = 70,
    /// The configuration is wrong.
    Config = 78,
}

/// A command that could not do its work: what to say, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// A wrong configuration; `message` names file, line and column.
    pub(crate) fn config(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Config, message: message.to_string() }
    }

    /// A failure of the machine or of ours.
    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Internal, message: message.to_string() }
    }

    /// A command line that asks for what there is not.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string() }
    }
}

/// Runs the command that `arguments` (the program's name first) ask for.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let exit = dispatch(args.command).unwrap_or_else(|failure| {
        eprintln!("decant: {}", failure.message.trim_end());
        failure.exit
    });
    ExitCode::from(exit as u8)
}

fn dispatch(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Reference(args) => reference::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Detectors(args) => detectors::list(&args),
        Command::Explain(args) => detectors::explain(&args),
        Command::Finding(args) => finding::run(&args),
        Command::Canary(args) => canary::run(&args),
        Command::Ca(args) => ca::run(&args),
        Command::Exec(args) => client::exec(&args),
        Command::Env(args) => client::env(&args),
        Command::Presets(args) => presets::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => {
            clap_complete::generate(args.shell, &mut Args::command(), "decant", &mut std::io::stdout());
            Ok(Exit::Fine)
        }
        Command::Manual(args) => clap_mangen::generate_to(Args::command(), &args.dir)
            .map(|()| Exit::Fine)
            .map_err(|error| Failure::internal(format!("cannot write to {}: {error}", args.dir.display()))),
    }
}

/// Prints data; a reader that has seen enough is no failure.
fn print(text: &str) -> Result<Exit, Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::internal(format!("stdout: {error}")))
        }
        _ => Ok(Exit::Fine),
    }
}

/// Help and version go to stdout and are fine; all else is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to do when the terminal is gone.
    let _ = error.print();
    let fine = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    ExitCode::from(if fine { Exit::Fine } else { Exit::Usage } as u8)
}

/// The version, with the commit where the build was told it (`DECANT_COMMIT`).
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        let commit = option_env!("DECANT_COMMIT").filter(|commit| !commit.is_empty());
        commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}

/// `text` with control characters escaped, for terminals.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}
