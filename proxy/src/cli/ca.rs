//! `decant ca`: the certificate authority that bottles are given to trust.

use time::OffsetDateTime;

use super::args::{CaAction, CaArgs};
use super::{Exit, Failure, load, print};
use crate::budget::Budget;
use crate::tls::Authority;

/// Runs the command.
pub(super) fn run(args: &CaArgs) -> Result<Exit, Failure> {
    let config = load::config(&args.config)?;
    let budget = Budget::new(&config.limits);
    let now = OffsetDateTime::now_utc();
    let authority = match args.action {
        CaAction::Show | CaAction::Export => crate::app::authority(&config, &budget, now),
        CaAction::Rotate if config.ca.is_some() => {
            return Err(Failure::usage("tls.ca names your own files: replace them and send SIGHUP"));
        }
        CaAction::Rotate => Authority::rotate(&config.state_dir, &budget.authority, budget.ca_overlap, now),
    };
    let authority = authority.map_err(Failure::internal)?;
    let text = match args.action {
        CaAction::Export => authority.pem(),
        CaAction::Show | CaAction::Rotate => facts(&authority),
    };
    print(&text)
}

fn facts(authority: &Authority) -> String {
    let mut text = format!(
        "fingerprint  sha256 {}\nnot before   {}\nnot after    {}\n",
        authority.fingerprint(),
        authority.not_before(),
        authority.not_after()
    );
    if let Some(next) = authority.pending() {
        text +=
            &format!("next         sha256 {}\nsigns from   {}\n", next.anchor.fingerprint(), next.signs_from);
    }
    text
}
