//! The suites of the command line, and what is known of each before it runs.

use clap::ValueEnum;

use crate::report::{self, Kernel};

/// A suite, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// The hyper-connection mixing kernel, site by site.
    Mix,
    /// What follows the sublayer (hc_post), site by site, with the gates of fp32 mixing.
    Recombine,
    /// All layers one after the other: how the error grows with depth.
    Chain,
    /// Where the error comes from, source by source, at single sites and along the chain.
    Budget,
    /// What the end of the model makes of an error that enters at one place.
    Gains,
    /// The lightning indexer: which keys sparse attention selects.
    Indexer,
    /// At which margin a key planted in the context is lost.
    Needle,
}

impl Suite {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// As its rows have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Recombine => "recombine",
            Self::Chain => "chain",
            Self::Budget => "budget",
            Self::Gains => "gains",
            Self::Indexer => "indexer",
            Self::Needle => "needle",
        }
    }

    /// Those that run a kernel's variants.
    pub fn of(kernel: Kernel) -> impl Iterator<Item = Self> {
        Self::all().filter(move |suite| suite.kernel() == kernel)
    }

    /// Whose variants it runs.
    pub fn kernel(self) -> Kernel {
        Kernel::of(self.name())
    }

    /// What it counts on its way.
    pub fn units(self) -> &'static str {
        match self {
            Self::Mix | Self::Recombine | Self::Chain => "sites",
            Self::Budget | Self::Gains => "steps",
            Self::Indexer | Self::Needle => "layers",
        }
    }

    /// Whether it goes from layer to layer.
    pub fn is_deep(self) -> bool {
        matches!(self, Self::Chain | Self::Budget | Self::Gains)
    }

    /// Whether its cases can be run again and compared with themselves.
    pub fn repeats(self) -> bool {
        report::repeats(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_called_what_its_rows_have() {
        for suite in Suite::all() {
            let typed = suite.to_possible_value().expect("none is hidden");
            assert_eq!(typed.get_name(), suite.name());
        }
    }

    #[test]
    fn every_kernel_has_its_suites() {
        let of = |kernel| Suite::of(kernel).map(Suite::name).collect::<Vec<_>>();
        assert_eq!(of(Kernel::Mixing), ["mix", "chain", "budget", "gains"]);
        assert_eq!(of(Kernel::Recombination), ["recombine"]);
        assert_eq!(of(Kernel::Indexer), ["indexer", "needle"]);
    }
}
