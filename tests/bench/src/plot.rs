//! The comparison as a picture: a panel for each of a few lines, a bar for each proxy.
//!
//! Invariant: each bar carries its number, and a panel says where its scale is logarithmic: where the slowest is worth
//! dozens of the fastest.

use http::Version;

use crate::compare::Line;

/// The lines that make a panel.
const PANELS: [(&str, Version); 6] = [
    ("download", Version::HTTP_11),
    ("download", Version::HTTP_2),
    ("request, connection kept", Version::HTTP_11),
    ("request, new connection", Version::HTTP_11),
    ("resident, 100 bodies", Version::HTTP_11),
    ("resident, 1,000 bodies", Version::HTTP_11),
];

/// Pixels.
const WIDTH: usize = 760;
const NAMES: usize = 190;
const NUMBERS: usize = 90;
const BAR: usize = 18;
const TITLE: usize = 34;

/// Decades that the longest bar spans at most, to a logarithmic scale.
const DECADES: f64 = 2.5;

/// Beyond this ratio of the longest to the shortest the scale is logarithmic.
const LINEAR_TO: f64 = 25.0;

/// An SVG of the panels that `lines` have.
pub(crate) fn svg(lines: &[Line]) -> String {
    let panels = PANELS.iter().filter_map(|(name, version)| {
        lines.iter().find(|line| line.name == *name && line.version == *version)
    });
    let (mut drawn, mut top) = (String::new(), 0);
    for line in panels {
        drawn += &panel(line, top);
        top += TITLE + BAR * line.values.len();
    }
    let height = top + BAR;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{drawn}</svg>\n"
    )
}

fn panel(line: &Line, top: usize) -> String {
    let title = top + TITLE - 10;
    let values = || line.values.iter().filter_map(|(_, value)| *value);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN_POSITIVE, f64::max));
    let is_linear = most <= LINEAR_TO * least;
    let scale = if is_linear { "" } else { ", logarithmic" };
    let mut drawn = format!(
        "<text x=\"4\" y=\"{title}\" font-weight=\"bold\">{} over {:?}, {}{scale}</text>\n",
        line.name, line.version, line.unit
    );
    for (at, (side, value)) in line.values.iter().enumerate() {
        let (y, text) = (top + TITLE + BAR * at, top + TITLE + BAR * at + 12);
        let (length, number) = match value {
            Some(value) => (length(*value, most, is_linear), format!("{value:.2}")),
            None => (0.0, "failed".to_owned()),
        };
        let colour = if side.starts_with("Decant") { "#1f6f8b" } else { "#b8bdc4" };
        let behind = NAMES as f64 + length + 6.0;
        drawn += &format!(
            "<text x=\"4\" y=\"{text}\">{side}</text><rect x=\"{NAMES}\" y=\"{y}\" width=\"{length:.0}\" height=\"{}\" \
             fill=\"{colour}\"/><text x=\"{behind:.0}\" y=\"{text}\">{number}</text>\n",
            BAR - 4
        );
    }
    drawn
}

fn length(value: f64, most: f64, is_linear: bool) -> f64 {
    let room = (WIDTH - NAMES - NUMBERS) as f64;
    let below = (most / value.max(f64::MIN_POSITIVE)).log10();
    let part = if is_linear { value / most } else { 1.0 - below / DECADES };
    room * part.clamp(0.01, 1.0)
}
