//! Progress on stderr: a bar with what is done, how fast and what is left, only where somebody is looking.

use std::{fmt::Write, io::IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::report::number::plain;

/// The bar of one run.
pub struct Bar(ProgressBar);

impl Bar {
    /// Hidden if quiet or without a terminal.
    pub fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(bar)
    }

    /// A suite begins, whose cases are `units`; what was before it says nothing about how fast it is.
    pub fn begin(&self, suite: &str, units: &'static str) {
        self.0.reset();
        self.0.set_length(0);
        self.0.set_message(String::new());
        if let Ok(style) = ProgressStyle::with_template(&template(suite, units)) {
            let rate = move |state: &ProgressState, to: &mut dyn Write| {
                let _ = to.write_str(&rate(state.per_sec(), units));
            };
            self.0.set_style(style.with_key("rate", rate));
        }
    }

    /// One more case is done.
    pub fn tell(&self, done: usize, total: usize, place: &str) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
        self.0.set_message(place.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Within 80 columns for every suite.
fn template(suite: &str, units: &str) -> String {
    format!("{suite} {{msg:>10}} {{bar:20}} {{pos}}/{{len}} {units}, {{rate}}, {{eta}} left")
}

/// Nothing is known before the first case is done.
fn rate(per_second: f64, units: &str) -> String {
    match per_second > 0.0 {
        true => format!("{} {units}/s", plain(per_second, 2)),
        false => format!("? {units}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_a_bar_in_80_columns() {
        for (suite, units) in [("recombine", "sites"), ("needle", "layers")] {
            let template = template(suite, units);
            assert!(
                ProgressStyle::with_template(&template).is_ok(),
                "{template}"
            );
            let shown = template
                .replace("{msg:>10}", "L2.indexer")
                .replace("{bar:20}", &"#".repeat(20))
                .replace("{pos}/{len}", "100/122")
                .replace("{rate}", &rate(0.123_456, units))
                .replace("{eta}", "15m");
            assert!(shown.len() <= 80, "{shown}");
            assert!(!shown.contains('{'), "{shown}");
        }
    }

    #[test]
    fn a_rate_has_two_digits_and_its_unit() {
        assert_eq!(rate(3.17, "sites"), "3.2 sites/s");
        assert_eq!(rate(0.0, "layers"), "? layers/s");
        assert_eq!(rate(f64::NAN, "layers"), "? layers/s");
    }
}
