//! Reads `inspect:` and the terms that choose detectors.

use crate::name::Name;
use crate::policy::{BlockOrPass, DetectorFilter, Direction, FilterTerm, Hold, Inspect};
use crate::problem::quoted;
use crate::yaml::{Cx, Fields, Node, Row, Section, word};

pub(crate) static INSPECT: Section = Section {
    path: "policies.NAME.routes[].inspect",
    rows: &[
        Row { key: "request", kind: "map", default: "as below", words: "What the bottle sends." },
        Row { key: "response", kind: "map", default: "as below", words: "What comes back." },
    ],
};

const DETECTORS: Row = Row {
    key: "detectors",
    kind: "all | none | list of ID, tag:TAG, -ID, -tag:TAG",
    default: "all",
    words: "Which detectors run; the last term that speaks of a detector decides. A list that begins with `-` begins with all.",
};
const ON_MATCH: Row = Row {
    key: "on_match",
    kind: "block | redact | alert",
    default: "block, unless the detector says otherwise",
    words: "What a match leads to. Written here, it decides for every detector. `redact` overwrites it with `*` in uncoded \
            bodies and values of header fields, and blocks where it cannot.",
};
const UNDECODABLE: Row = Row {
    key: "undecodable",
    kind: "block | pass",
    default: "block",
    words: "A content coding that is unknown, broken or beyond a limit.",
};

pub(crate) static REQUEST: Section = Section {
    path: "policies.NAME.routes[].inspect.request",
    rows: &[
        DETECTORS,
        ON_MATCH,
        UNDECODABLE,
        Row {
            key: "opaque",
            kind: "block | pass",
            default: "block",
            words: "A body that no detector can read.",
        },
    ],
};

pub(crate) static RESPONSE: Section = Section {
    path: "policies.NAME.routes[].inspect.response",
    rows: &[
        DETECTORS,
        ON_MATCH,
        UNDECODABLE,
        Row {
            key: "opaque",
            kind: "block | pass",
            default: "pass",
            words: "A body that no detector can read.",
        },
        Row {
            key: "hold",
            kind: "prompt | strict",
            default: "prompt",
            words: "`prompt` may release an incomplete, public beginning of a match after `hold_deadline`; `strict` never does.",
        },
    ],
};

pub(crate) fn inspect(node: &Node, cx: &mut Cx) -> Option<Inspect> {
    let map = Fields::open(node, &INSPECT, cx)?;
    let Inspect { request, response } = Inspect::default();
    let request = map
        .optional(cx, "request", |node, cx| direction(node, &REQUEST, request.clone(), cx))
        .unwrap_or(request);
    let response = map
        .optional(cx, "response", |node, cx| response_direction(node, response.clone(), cx))
        .unwrap_or(response);
    Some(Inspect { request, response })
}

fn response_direction(node: &Node, default: Direction, cx: &mut Cx) -> Option<Direction> {
    let direction = direction(node, &RESPONSE, default, cx)?;
    let hold: Option<Hold> = node.get("hold").and_then(|node| word(node, cx));
    Some(Direction { hold: hold.unwrap_or(direction.hold), ..direction })
}

fn direction(node: &Node, section: &'static Section, default: Direction, cx: &mut Cx) -> Option<Direction> {
    let map = Fields::open(node, section, cx)?;
    let detectors = map.optional(cx, "detectors", filter);
    let on_match = map.optional(cx, "on_match", word);
    let undecodable: Option<BlockOrPass> = map.optional(cx, "undecodable", word);
    let opaque: Option<BlockOrPass> = map.optional(cx, "opaque", word);
    Some(Direction {
        detectors: detectors.unwrap_or(default.detectors),
        on_match,
        undecodable: undecodable.unwrap_or(default.undecodable),
        opaque: opaque.unwrap_or(default.opaque),
        hold: default.hold,
    })
}

fn filter(node: &Node, cx: &mut Cx) -> Option<DetectorFilter> {
    if node.as_text() == Some("none") {
        return Some(DetectorFilter::none());
    }
    let items = node.scalars(cx)?;
    if items.is_empty() {
        return cx.refuse(node, "the list is empty: write `none`, `all` or at least one detector");
    }
    let terms: Vec<FilterTerm> = crate::yaml::read_all(items, cx, |node, cx| node.parsed(cx, term));
    let subtracts = matches!(terms.first(), Some(FilterTerm::NotId(_) | FilterTerm::NotTag(_)));
    let begin = subtracts.then_some(FilterTerm::All);
    Some(DetectorFilter(begin.into_iter().chain(terms).collect()))
}

fn term(text: &str) -> Result<FilterTerm, String> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    match (negative, rest, rest.strip_prefix("tag:")) {
        (false, "all", _) => Ok(FilterTerm::All),
        (_, "all" | "none", _) => {
            Err(format!("{} cannot stand here: write `none` without a list", quoted(text)))
        }
        (false, _, Some(tag)) => Name::identifier(tag).map(FilterTerm::Tag),
        (true, _, Some(tag)) => Name::identifier(tag).map(FilterTerm::NotTag),
        (false, id, None) => Name::identifier(id).map(FilterTerm::Id),
        (true, id, None) => Name::identifier(id).map(FilterTerm::NotId),
    }
}
