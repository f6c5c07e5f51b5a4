//! Reading the configuration that the arguments name.

use std::net::SocketAddr;
use std::path::PathBuf;

use decant_config::{Config, Environment, Overrides, Problem, Problems, Texts};
use decant_detectors::pack;

use super::args::ConfigArgs;
use super::{Failure, printable};

/// Where the configuration comes from; read again at each reload.
pub(super) struct Source {
    files: Vec<PathBuf>,
    overrides: Overrides,
}

impl Source {
    /// The configuration of `args`, with the addresses that the command line gives.
    pub(super) fn new(args: &ConfigArgs, proxy: Option<SocketAddr>, admin: Option<SocketAddr>) -> Self {
        let overrides = Overrides {
            state_dir: args.state_dir.clone(),
            proxy: proxy.into_iter().collect(),
            admin,
            environment: environment(),
            pack: Some(pack::FILES),
        };
        Self { files: args.config.clone(), overrides }
    }

    /// Leaves references to detectors to somebody else: reading the built-in ones takes memory.
    pub(super) fn without_pack(mut self) -> Self {
        self.overrides.pack = None;
        self
    }

    /// Reads it.
    ///
    /// # Errors
    /// All problems at once, each as `file:line:col: message`.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        self.read().map_err(Failure::config)
    }

    /// The same, with the files that were read where there are problems.
    ///
    /// # Errors
    /// All problems at once.
    pub(super) fn read(&self) -> Result<Config, Problems> {
        decant_config::load(&self.files, &self.overrides)
    }

    /// Reads the configuration again from the texts of an earlier one.
    ///
    /// # Errors
    /// All problems at once.
    pub(super) fn load_texts(&self, texts: &Texts) -> Result<Config, Failure> {
        decant_config::load_texts(&self.files, texts, &self.overrides).map_err(Failure::config)
    }
}

/// Reads the configuration of a command that takes no addresses.
pub(super) fn config(args: &ConfigArgs) -> Result<Config, Failure> {
    Source::new(args, None, None).load()
}

/// Problems that were found behind the configuration's own: patterns, tokens, sources.
pub(super) fn report(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(|problem| printable(&problem.to_string())).collect();
    Failure::config(lines.join("\n"))
}

fn environment() -> Environment {
    Environment {
        xdg_state_home: std::env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        home: std::env::var_os("HOME").map(PathBuf::from),
        root: rustix::process::geteuid().is_root(),
    }
}
