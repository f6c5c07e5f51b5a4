//! `decant canary`: the values that the gateway makes for a bottle, for whoever puts them there.

use decant_config::SecretFrom;

use super::args::CanaryArgs;
use super::{Exit, Failure, load, print};
use crate::secrets::Canaries;

/// Runs the command: one line `NAME=VALUE` for each.
pub(super) fn run(args: &CanaryArgs) -> Result<Exit, Failure> {
    let config = load::config(&args.config)?;
    let names: Vec<_> = config.secrets.iter().filter(|secret| secret.from == SecretFrom::Canary).collect();
    if names.is_empty() {
        return Err(Failure::usage("the configuration has no secret with `from: {canary: bottle}`"));
    }
    let canaries = Canaries::make(&config.state_dir)
        .map_err(|error| Failure::internal(format!("{}: {error}", config.state_dir.display())))?;
    let line = |name: &str| format!("{name}={}\n", *canaries.value(name, &args.bottle));
    print(&names.iter().map(|secret| line(&secret.name)).collect::<String>())
}
