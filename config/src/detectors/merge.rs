//! Many detector files become one list.

use std::collections::BTreeSet;

use super::{DetectorFile, DetectorOverride, DetectorSpec, Home, Newer};
use crate::name::Name;
use crate::policy::MatchAction;
use crate::problem::quoted;
use crate::suggest::did_you_mean;
use crate::value::date::Date;
use crate::yaml::Cx;

/// The detectors of all files, and every name that something may refer to.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) list: Vec<DetectorSpec>,
    /// Ids and tags that exist, those of detectors that were switched off included.
    pub(crate) ids: BTreeSet<Name>,
    pub(crate) tags: BTreeSet<Name>,
}

impl Merged {
    /// Puts the files together in order: a detector of a known id takes the older one's place. Their overrides
    /// are handed back, to be applied last.
    pub(crate) fn of(files: Vec<DetectorFile>) -> (Self, Vec<DetectorOverride>) {
        let mut merged = Self::default();
        let mut overrides = Vec::new();
        for file in files {
            file.detectors.into_iter().for_each(|detector| merged.put(detector));
            overrides.extend(file.overrides);
        }
        merged.ids = merged.list.iter().map(|one| one.id.clone()).collect();
        merged.tags = merged.list.iter().flat_map(|one| one.tags.iter().cloned()).collect();
        (merged, overrides)
    }

    /// Lets detectors that came after `pinned` alert alone.
    pub(crate) fn quieten(&mut self, newer: Newer, pinned: Option<Date>) {
        let is_newer = |one: &&mut DetectorSpec| one.added > pinned;
        if newer == Newer::Alert {
            self.list.iter_mut().filter(is_newer).for_each(|one| one.action = MatchAction::Alert);
        }
    }

    fn put(&mut self, detector: DetectorSpec) {
        match self.list.iter_mut().find(|one| one.id == detector.id) {
            Some(older) => *older = detector,
            None => self.list.push(detector),
        }
    }

    /// Applies one override. Its detector must exist where `complete` says that all are known here.
    pub(crate) fn change(&mut self, change: &DetectorOverride, complete: bool, cx: &mut Cx) {
        let Some(index) = self.list.iter().position(|one| one.id == change.id) else {
            if complete {
                let hint = did_you_mean(&change.id, self.ids.iter().map(Name::as_str));
                cx.problem(&change.at, format!("there is no detector {}{hint}", quoted(&change.id)));
            }
            return;
        };
        apply(change, &mut self.list[index]);
    }
}

fn add_home(change: &Home, home: &mut Home) {
    home.hosts.extend(change.hosts.iter().cloned());
    if !change.surfaces.is_empty() {
        home.surfaces.clone_from(&change.surfaces);
    }
}

fn apply(change: &DetectorOverride, detector: &mut DetectorSpec) {
    detector.enabled = change.enabled.unwrap_or(detector.enabled);
    detector.action = change.action.unwrap_or(detector.action);
    detector.severity = change.severity.unwrap_or(detector.severity);
    match detector.home.first_mut() {
        None if change.home == Home::default() => {}
        None => detector.home.push(change.home.clone()),
        Some(home) => add_home(&change.home, home),
    }
    detector.ignore.patterns.extend(change.ignore.patterns.iter().cloned());
    detector.ignore.sha256.extend(change.ignore.sha256.iter().copied());
}
