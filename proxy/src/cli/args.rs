//! The arguments of every command.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use decant_config::parse_size;

/// The egress gateway of a host that runs coding agents in sandboxes.
#[derive(Parser)]
#[command(name = "decant", version = super::version(), disable_help_subcommand = true)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Start the gateway
    Run(RunArgs),
    /// Carry the data of a gateway; `run` starts it
    #[command(hide = true)]
    Worker(RunArgs),
    /// Check a configuration: parse it, compile every detector, run every example and test; all problems at once
    ///
    /// `decant reference` lists every key with its default and its meaning.
    Check(CheckArgs),
    /// List every key of a configuration: what may stand there, its default, its meaning
    Reference(ReferenceArgs),
    /// Run the gateway's own scanner over files and folders
    Scan(ScanArgs),
    /// List every detector, one a line
    Detectors(ConfigArgs),
    /// Show one detector: what it matches, its limits, its home, its examples
    Explain(ExplainArgs),
    /// Show what decided about a finding, and the narrowest exception to paste
    Finding(FindingArgs),
    /// Print the canaries of a bottle, to put them where it may find them
    Canary(CanaryArgs),
    /// Show, export or rotate the certificate authority
    Ca(CaArgs),
    /// Run a command behind the gateway: proxy and trust of every common tool set
    Exec(ExecArgs),
    /// Print the variables that `exec` sets
    Env(EnvArgs),
    /// List the route presets, or show what one expands to
    Presets(PresetsArgs),
    /// Show what the gateway that runs is doing
    Status(AdminArgs),
    /// Exit 0 when a request through the data path works
    Health(AdminArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Write the manual pages: one for the program, one for each command
    Manual(ManualArgs),
}

#[derive(ClapArgs)]
pub(super) struct ConfigArgs {
    /// A configuration file, or a folder of them; later ones win [default: embedded]
    #[arg(long, value_name = "FILE|DIR", global = true)]
    pub(super) config: Vec<PathBuf>,
    /// Where the CA, logs and keys are kept [default: the XDG state folder; /var/lib/decant for root]
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) state_dir: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Print what fits into so much memory, as `64MiB`
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) memory: Option<u64>,
}

#[derive(ClapArgs)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Listen here for bottles [default: 127.0.0.1:9099]
    #[arg(long, value_name = "ADDR")]
    pub(super) proxy: Option<SocketAddr>,
    /// Listen here for operators [default: 127.0.0.1:9190]
    #[arg(long, value_name = "ADDR")]
    pub(super) admin: Option<SocketAddr>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ScanDirection {
    Request,
    Response,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(ClapArgs)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Run the detectors of this direction
    #[arg(long, value_enum, default_value = "request")]
    pub(super) direction: ScanDirection,
    /// The content coding of the input, as in Content-Encoding
    #[arg(long, value_name = "CODING")]
    pub(super) coding: Option<String>,
    /// How findings are printed
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: Format,
    /// Files and folders; `-` is standard input
    #[arg(required = true, value_name = "PATH|-")]
    pub(super) paths: Vec<PathBuf>,
}

#[derive(ClapArgs)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// The detector
    pub(super) id: String,
}

#[derive(ClapArgs)]
pub(super) struct FindingArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// The finding's id, or its request's
    pub(super) id: String,
}

#[derive(ClapArgs)]
pub(super) struct CanaryArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// The bottle's name
    pub(super) bottle: String,
}

#[derive(ClapArgs)]
pub(super) struct CaArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// What to do
    #[command(subcommand)]
    pub(super) action: CaAction,
}

#[derive(Subcommand)]
pub(super) enum CaAction {
    /// Fingerprint and validity
    Show,
    /// The certificate as PEM on stdout
    Export,
    /// Make a new CA; the bundle holds both until the overlap ends
    Rotate,
}

#[derive(ClapArgs)]
pub(super) struct AdminArgs {
    /// The gateway's admin address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9190", env = "DECANT_ADMIN")]
    pub(super) admin: SocketAddr,
}

/// Which gateway clients are to use, and where its certificates are kept for them.
#[derive(ClapArgs)]
pub(super) struct ClientArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Write the CA files here [default: decant below the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub(super) trust_dir: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    pub(super) client: ClientArgs,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum EnvFormat {
    /// `export NAME='VALUE'`, for a shell's `eval`
    Sh,
    /// `NAME="VALUE"`
    Dotenv,
    /// `NAME=VALUE`, for `docker run --env-file`
    Docker,
    /// One object
    Json,
}

#[derive(ClapArgs)]
pub(super) struct EnvArgs {
    #[command(flatten)]
    pub(super) client: ClientArgs,
    /// How they are printed
    #[arg(long, value_enum, default_value = "sh")]
    pub(super) format: EnvFormat,
}

#[derive(ClapArgs)]
pub(super) struct PresetsArgs {
    /// Show this one
    pub(super) name: Option<String>,
}

#[derive(ClapArgs)]
pub(super) struct ReferenceArgs {
    /// Show the keys whose path holds this, as in `limits` or `routes[].git` [default: the whole document, in Markdown]
    pub(super) key: Option<String>,
}

#[derive(ClapArgs)]
pub(super) struct ManualArgs {
    /// A folder that exists, as `/usr/local/share/man/man1`
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
}

#[derive(ClapArgs)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(super) shell: Shell,
}
