//! Ctrl-C and termination: the first asks the run to stop where nothing is lost, the second stops it at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use crate::cli::exit;

/// Whether somebody has asked the run to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn listen() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal sets the flag that makes the second one end the process.
            let code = i32::from(exit::INTERRUPTED);
            flag::register_conditional_shutdown(signal, code, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .context("Ctrl-C cannot be listened for; the system allows no signal handlers")?;
        }
        Ok(Self(asked))
    }

    /// Whether it is to stop.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
