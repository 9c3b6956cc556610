//! Progress on stderr: a bar with what is left, only where somebody is looking.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar of one run.
pub struct Bar(ProgressBar);

impl Bar {
    /// Hidden if quiet or without a terminal.
    pub fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{msg:>9} {bar:30} {pos}/{len} {eta} left")
        {
            bar.set_style(style);
        }
        Self(bar)
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
