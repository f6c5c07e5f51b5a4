//! The metrics page, read the way a monitor reads it.
//!
//! Invariant: a series that is not there counts as nothing, never as an error: counters appear with their first event.

/// One reading of `/metrics`.
#[derive(Clone, Debug)]
pub struct Metrics(String);

impl Metrics {
    /// From the text exposition format.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The whole page.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The sum of a counter's series that carry these labels.
    #[must_use]
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        format!("{:.0}", self.sum(name, labels)).parse().expect("counters are whole and never negative")
    }

    /// The sum of all series of `name` whose labels include every one of `labels`.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        series
            .filter(|(series, _)| series.split('{').next() == Some(name))
            .filter(|(series, _)| wanted.iter().all(|pair| series.contains(pair.as_str())))
            .filter_map(|(_, value)| value.parse::<f64>().ok())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_chosen_by_name_and_labels() {
        let page = "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"1\",y=\"3\"} 4\nab 5\nc 6.5\n";
        let metrics = Metrics::new(page.to_owned());
        let check = |name, labels: &[(&str, &str)], sum: f64| {
            assert!((metrics.sum(name, labels) - sum).abs() < f64::EPSILON, "{name} {labels:?}");
        };
        check("a", &[], 7.0);
        check("a", &[("y", "3")], 4.0);
        check("c", &[], 6.5);
        check("missing", &[], 0.0);
    }
}
