//! The suites of the command line, and what is known of each before it runs.

use clap::ValueEnum;

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

/// A kernel with variants of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// hc_fn's product and the gates.
    Mixing,
    /// hc_post.
    Recombination,
    /// The indexer.
    Indexer,
}

/// What is known of a suite.
struct Facts {
    name: &'static str,
    kernel: Kernel,
    /// What it counts on its way.
    units: &'static str,
    is_deep: bool,
    repeats: bool,
}

impl Suite {
    const fn facts(self) -> Facts {
        let of_site = Facts {
            name: "mix",
            kernel: Kernel::Mixing,
            units: "sites",
            is_deep: false,
            repeats: true,
        };
        match self {
            Self::Mix => of_site,
            Self::Recombine => Facts {
                name: "recombine",
                kernel: Kernel::Recombination,
                ..of_site
            },
            Self::Chain => Facts {
                name: "chain",
                is_deep: true,
                ..of_site
            },
            Self::Budget => Facts {
                name: "budget",
                units: "steps",
                is_deep: true,
                repeats: false,
                ..of_site
            },
            Self::Gains => Facts {
                name: "gains",
                units: "steps",
                is_deep: true,
                repeats: false,
                ..of_site
            },
            Self::Indexer => Facts {
                name: "indexer",
                kernel: Kernel::Indexer,
                units: "layers",
                ..of_site
            },
            Self::Needle => Facts {
                name: "needle",
                kernel: Kernel::Indexer,
                units: "layers",
                repeats: false,
                ..of_site
            },
        }
    }

    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// As its rows have it.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whose variants it runs.
    pub fn kernel(self) -> Kernel {
        self.facts().kernel
    }

    /// What it counts on its way.
    pub fn units(self) -> &'static str {
        self.facts().units
    }

    /// Whether it goes from layer to layer.
    pub fn is_deep(self) -> bool {
        self.facts().is_deep
    }

    /// Whether its cases can be run again and compared with themselves.
    pub fn repeats(self) -> bool {
        self.facts().repeats
    }
}

impl Kernel {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Mixing, Self::Recombination, Self::Indexer];

    /// The suites that run its variants.
    pub fn suites(self) -> impl Iterator<Item = Suite> {
        Suite::all().filter(move |suite| suite.kernel() == self)
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
    fn every_suite_is_of_one_kernel() {
        let of_kernels = Kernel::ALL.into_iter().flat_map(Kernel::suites);
        assert_eq!(of_kernels.count(), Suite::all().count());
    }
}
