//! The command line: the server, and a client for people and scripts.
//!
//! Exit codes: 0 fine, 1 unhealthy, 64 usage, 70 anything that failed, 75 a pool is exhausted (try again later), 78 configuration. Data
//! goes to stdout, everything else to stderr.

mod client;
mod lease;
mod run;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};
use decant_config::Environment;

/// Worker threads of the server: it waits more than it computes.
const WORKER_THREADS: usize = 2;

/// Durable, atomic leases of host ports and session subnets
#[derive(Debug, Parser)]
#[command(name = "decant-allocator", version = version(), max_term_width = 100, disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve leases
    Serve(serve::ServeArgs),
    /// Lease ports and a subnet; prints the lease as JSON
    Acquire(lease::AcquireArgs),
    /// Let a lease live on; prints it
    Renew(lease::RenewArgs),
    /// End a lease
    Release(lease::ReleaseArgs),
    /// List leases, one a line
    List(lease::ListArgs),
    /// Show pools, engine, gateway and warnings
    Status(lease::StatusArgs),
    /// Print a lease's variables as an env file for `docker run --env-file`
    Env(lease::EnvArgs),
    /// Run a command with a lease that lives as long as it
    Run(run::RunArgs),
    /// Exit 0 when everything that is configured can be leased
    Health(client::SocketArgs),
    /// Print a shell's completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages: one for the program, one for each command
    Manual {
        /// A folder that exists, as `/usr/local/share/man/man1`
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Why a command failed, and with which exit code.
#[derive(Debug)]
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    const UNHEALTHY: u8 = 1;
    const USAGE: u8 = 64;
    const INTERNAL: u8 = 70;
    const EXHAUSTED: u8 = 75;
    const CONFIG: u8 = 78;

    fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    fn internal(text: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, text)
    }
}

/// Parses the arguments and does what they say.
#[must_use]
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // A reader that has gone away is no reason to fail.
            drop(error.print());
            return if error.use_stderr() { ExitCode::from(Failure::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build()
        {
            Ok(runtime) => runtime,
            Err(error) => return report(&Failure::internal(format!("the runtime cannot start: {error}"))),
        };
    match runtime.block_on(dispatch(args.command)) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

fn report(failure: &Failure) -> ExitCode {
    eprintln!("decant-allocator: {}", failure.text);
    ExitCode::from(failure.code)
}

async fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::serve(args).await.map(|()| ExitCode::SUCCESS),
        Command::Acquire(args) => lease::acquire(args).await.map(|()| ExitCode::SUCCESS),
        Command::Renew(args) => lease::renew(args).await.map(|()| ExitCode::SUCCESS),
        Command::Release(args) => lease::release(args).await.map(|()| ExitCode::SUCCESS),
        Command::List(args) => lease::list(args).await.map(|()| ExitCode::SUCCESS),
        Command::Status(args) => lease::status(args).await.map(|()| ExitCode::SUCCESS),
        Command::Env(args) => lease::env(args).await.map(|()| ExitCode::SUCCESS),
        Command::Run(args) => run::run(args).await,
        Command::Health(args) => lease::health(args).await.map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => {
            print(&completions(shell));
            Ok(ExitCode::SUCCESS)
        }
        Command::Manual { dir } => clap_mangen::generate_to(Args::command(), &dir)
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| Failure::internal(format!("cannot write to {}: {error}", dir.display()))),
    }
}

/// The completions of a shell.
fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "decant-allocator", &mut script);
    // For bash, a hyphen in the program's name is taken for the seam before a command where options are listed, and for none where
    // commands are told apart: without this no option would be completed.
    String::from_utf8_lossy(&script).replace("decant__subcmd__allocator", "decant__allocator")
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

fn environment() -> Environment {
    Environment {
        xdg_state_home: std::env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        home: std::env::var_os("HOME").map(PathBuf::from),
        root: rustix::process::geteuid().is_root(),
    }
}

/// Prints lines to stdout; a reader that has gone away is no error.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
