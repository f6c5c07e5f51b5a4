//! Configuration text to checked, typed values: every setting and limit by name.
//!
//! The crate owns the YAML formats of the gateway, the allocator and the detector files. Its invariant: a value that
//! leaves it is complete and right, or does not exist, and then every problem of every file is told with its place.
//! It reads files and does nothing else; it knows neither clock nor environment nor network.
//!
//! ```
//! use decant_config::{Overrides, parse};
//!
//! let problems = parse("a.yaml", "mode: enforced\nbottle: []", &Overrides::default()).unwrap_err();
//! assert_eq!(
//!     problems.to_string(),
//!     "a.yaml:1:7: `enforced` is not `enforce` or `observe` (did you mean `enforce`?)\n\
//!      a.yaml:2:1: unknown key `bottle` (did you mean `bottles`?)"
//! );
//! ```
#![forbid(unsafe_code)]

mod allocator;
mod bottle;
mod client_env;
mod config;
mod detectors;
mod host;
mod inputs;
mod keyword;
mod limits;
mod merge;
mod name;
mod policy;
mod presets;
mod problem;
mod reference;
mod suggest;
mod value;
mod yaml;

pub use allocator::{
    AllocatorConfig, Docker, Gateway, Leases, OnExpire, Ports, Subnets, load_allocator, parse_allocator,
};
pub use bottle::{Bottle, SecretSource, TokenSource};
pub use client_env::{proxy_variables, trust_variables};
pub use config::{
    CaFiles, Config, Environment, Exception, ExchangeLog, Expect, Isolation, Listen, Log, LogFormat,
    LogLevel, Metrics, Overrides, PolicyTest, Resolvers, Roots, Secret, SecretFrom, TestBody, Texts,
    Upstream, load, load_texts, parse, parse_detectors,
};
pub use detectors::{
    ContextSpec, DetectorFile, DetectorOverride, DetectorSpec, DetectorsConfig, Directions, Examples, Home,
    IgnoreSpec, Newer, Severity, Surface,
};
pub use host::{Host, HostPattern};
pub use inputs::{Inputs, secret_files};
pub use limits::Limits;
pub use name::Name;
pub use policy::{
    Action, BlockOrPass, DetectorFilter, Direction, FilterTerm, GitRule, HeaderRule, Hold, Inspect,
    MatchAction, Mode, PathRule, Policy, Route, RouteMatch, TlsAction,
};
pub use presets::{Access, Preset, preset, presets};
pub use problem::{Location, Problem, Problems};
pub use reference::{ReferenceRow, allocator_reference, reference, reference_document};
pub use value::date::Date;
pub use value::duration::{parse_duration, show_duration};
pub use value::size::{parse_size, show_size};
