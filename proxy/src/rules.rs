//! Detectors, from text to automata.
//!
//! Owns the one place where a detector's two halves meet: what the engine runs (pattern, validator, context) and what
//! policy needs to know about it (direction, severity, action, home). Invariant: index `n` of the facts is rule `n`
//! of the set.

use std::sync::Arc;

use decant_config::{
    DetectorFilter, DetectorSpec, DetectorsConfig, Directions, Home, Location, MatchAction, Problem,
    Severity, Surface,
};
use decant_detectors::{
    BuildError, BuildLimits, Context, Ignore, Known, Rule, RuleId, RuleSet, RuleSetBuilder, Selection,
    Validator,
};

use crate::inspect::Direction;
use crate::policy::covers;
use crate::secrets::{self, Secret};
use crate::target::Host;

/// Every detector of one configuration, compiled.
#[derive(Debug)]
pub(crate) struct Detectors {
    pub(crate) rules: Arc<RuleSet>,
    facts: Vec<Facts>,
}

/// What policy knows about a detector.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) id: Arc<str>,
    tags: Vec<String>,
    direction: Directions,
    pub(crate) severity: Severity,
    pub(crate) action: MatchAction,
    home: Vec<Home>,
    /// Whether it is a known value, of which a bottle learns nothing.
    pub(crate) is_secret: bool,
}

impl Detectors {
    /// Compiles every detector of `config`, and the known values `secrets` behind them.
    ///
    /// # Errors
    /// Every problem of every detector and of every value, each where it was written.
    pub(crate) fn compile(
        config: &DetectorsConfig,
        secrets: &[Secret],
        limits: BuildLimits,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut builder = RuleSetBuilder::new(limits);
        for spec in &config.list {
            match rule(spec) {
                Ok(rule) => {
                    builder.rule(rule);
                }
                Err(problem) => problems.push(problem),
            }
        }
        for secret in secrets {
            builder.known(Known { id: secret.id.to_string(), value: secret.value.clone() });
        }
        let built = builder.build();
        match built {
            Ok(rules) if problems.is_empty() => {
                let facts = config.list.iter().map(Facts::new).chain(secrets.iter().map(Facts::of_secret));
                Ok(Self { rules: Arc::new(rules), facts: facts.collect() })
            }
            Ok(_) => Err(problems),
            Err(errors) => {
                problems.extend(errors.iter().map(|error| unbuilt(config, secrets, error)));
                Err(problems)
            }
        }
    }

    /// What policy knows about `rule`.
    pub(crate) fn facts(&self, rule: RuleId) -> &Facts {
        &self.facts[rule.index()]
    }

    /// How many detectors there are, known values apart.
    pub(crate) fn count(&self) -> usize {
        self.facts.iter().filter(|facts| !facts.is_secret).count()
    }

    /// The facts of every detector and known value, in the order of the set.
    pub(crate) fn all(&self) -> &[Facts] {
        &self.facts
    }

    /// The rules that `filter` chooses for `direction`. Known values are looked for in every request, whatever it chooses.
    pub(crate) fn select(&self, filter: &DetectorFilter, direction: Direction) -> Selection {
        let chosen = self.facts.iter().filter(|facts| facts.looks_at(direction) && facts.is_chosen(filter));
        Selection::from_ids(&self.rules, chosen.filter_map(|facts| self.rules.rule_id(&facts.id)))
    }
}

impl Facts {
    fn new(spec: &DetectorSpec) -> Self {
        Self {
            id: spec.id.as_str().into(),
            tags: spec.tags.iter().map(ToString::to_string).collect(),
            direction: spec.direction,
            severity: spec.severity,
            action: spec.action,
            home: spec.home.clone(),
            is_secret: false,
        }
    }

    fn of_secret(secret: &Secret) -> Self {
        Self {
            id: secret.id.clone(),
            tags: Vec::new(),
            direction: Directions::Request,
            severity: Severity::High,
            action: MatchAction::Block,
            home: secret.to.iter().cloned().collect(),
            is_secret: true,
        }
    }

    /// The name in metrics.
    pub(crate) fn family(&self) -> &str {
        if self.is_secret { secrets::FAMILY } else { &self.id }
    }

    fn is_chosen(&self, filter: &DetectorFilter) -> bool {
        self.is_secret || filter.selects(&self.id, &self.tags)
    }

    fn looks_at(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => self.direction.requests(),
            Direction::Response => self.direction.responses(),
        }
    }

    /// Whether a match on `surface` of a message to or from `host` is where it belongs.
    pub(crate) fn is_home(&self, host: &Host, surface: &str) -> bool {
        let fits = |surfaces: &[Surface]| {
            surfaces.is_empty() || surfaces.iter().any(|home| home.as_str() == surface)
        };
        self.home.iter().any(|home| fits(&home.surfaces) && home.hosts.iter().any(|one| covers(one, host)))
    }
}

/// The half of a detector that the engine runs.
///
/// # Errors
/// An unknown validator.
pub(crate) fn rule(spec: &DetectorSpec) -> Result<Rule, Problem> {
    let validator = match &spec.validate {
        None => None,
        Some(name) => match name.parse::<Validator>() {
            Ok(validator) => Some(validator),
            Err(error) => {
                let message = format!("detector `{}`: validate: {error}", spec.id);
                return Err(Problem { at: spec.place_of("validate").clone(), message });
            }
        },
    };
    Ok(Rule {
        id: spec.id.to_string(),
        pattern: spec.pattern.clone(),
        keywords: spec.keywords.clone(),
        max_length: spec.max_length,
        validator,
        context: spec
            .context
            .as_ref()
            .map(|context| Context { any: context.any.clone(), within: context.within }),
        ignore: Ignore { patterns: spec.ignore.patterns.clone(), sha256: spec.ignore.sha256.clone() },
    })
}

/// What the engine says about a detector, where it was written; about all of them together, at the first.
fn unbuilt(config: &DetectorsConfig, secrets: &[Secret], error: &BuildError) -> Problem {
    if let Some(secret) = secrets.iter().find(|secret| *secret.id == *error.rule()) {
        let name = secrets::name_of(&secret.id).unwrap_or(&secret.id);
        return Problem { at: secret.at.clone(), message: format!("secret `{name}`: {}", error.message()) };
    }
    let spec = config.list.iter().find(|spec| spec.id.as_str() == error.rule()).or(config.list.first());
    let at =
        spec.map_or_else(|| Location::start_of("(detectors)"), |spec| spec.place_of(error.field()).clone());
    Problem { at, message: error.to_string() }
}
