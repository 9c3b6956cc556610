//! What all requests of a fetch share: whom they ask, how long they try, whom they tell, and when they stop.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    HubError,
    client::{Client, Trouble},
};

/// How to wait between tries.
#[derive(Clone, Copy, Debug)]
pub struct BackOff {
    /// The first wait; each one is twice the one before.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
    /// How long to try in vain.
    pub patience: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            patience: Duration::from_secs(300),
        }
    }
}

/// How long to try a server that has never answered: its name is probably wrong, or there is no network.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// How often a wait looks whether it is still wanted.
const GLANCE: Duration = Duration::from_millis(50);

/// What happens during a fetch.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// So many bytes are to come altogether, of which so many are there from an earlier fetch.
    Planned {
        /// All of them.
        bytes: u64,
        /// Those that are there.
        there: u64,
    },
    /// So many bytes more have come.
    Received(u64),
    /// Something failed that may pass.
    Waiting {
        /// The file that is waited for.
        file: &'a str,
        /// What failed.
        why: &'a str,
        /// For how long.
        pause: Duration,
    },
}

/// Who wants to know.
pub type Listener<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// What all requests share.
pub(super) struct Line<'a> {
    pub(super) client: Client,
    /// `ORG/MODEL`.
    pub(super) repository: &'a str,
    /// Where the parts are kept, for messages.
    pub(super) part: PathBuf,
    pub(super) back_off: BackOff,
    pub(super) tell: Listener<'a>,
    /// Set when one part has failed: the others need not go on.
    pub(super) stopped: AtomicBool,
}

impl Line<'_> {
    /// Tries until it works, or will not, or patience ends; `attempt` says whether it got on before it failed.
    pub(super) fn patiently<T>(
        &self,
        file: &str,
        mut attempt: impl FnMut(&mut bool) -> Result<T, Trouble>,
    ) -> Result<T, HubError> {
        let mut trying = Trying {
            line: self,
            file,
            in_vain: None,
            pause: self.back_off.first,
        };
        loop {
            self.go_on()?;
            let mut advanced = false;
            match attempt(&mut advanced) {
                Ok(result) => return Ok(result),
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Passing { why, wait }) => {
                    if advanced {
                        trying.advanced();
                    }
                    trying.wait(&why, wait)?;
                }
            }
        }
    }

    /// An error once another part has failed.
    pub(super) fn go_on(&self) -> Result<(), HubError> {
        match self.stopped.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(HubError::Stopped),
        }
    }

    /// Sleeps, unless another part fails meanwhile.
    fn pause(&self, pause: Duration) -> Result<(), HubError> {
        let end = Instant::now() + pause;
        loop {
            self.go_on()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(GLANCE));
        }
    }
}

/// Something that is tried until it works, or until patience ends.
struct Trying<'a> {
    line: &'a Line<'a>,
    file: &'a str,
    /// Since when nothing has worked.
    in_vain: Option<Instant>,
    pause: Duration,
}

impl Trying<'_> {
    /// It works, if not to the end.
    fn advanced(&mut self) {
        self.in_vain = None;
        self.pause = self.line.back_off.first;
    }

    /// Waits before the next try: as long as the server asks, if it does.
    fn wait(&mut self, why: &str, asked: Option<Duration>) -> Result<(), HubError> {
        let since = *self.in_vain.get_or_insert_with(Instant::now);
        let pause = asked.unwrap_or(self.pause);
        let patience = match self.line.client.has_answered() {
            true => self.line.back_off.patience,
            false => self.line.back_off.patience.min(FIRST_PATIENCE),
        };
        if since.elapsed().saturating_add(pause) > patience {
            let why = match asked {
                Some(asked) => format!("{why} and asks to wait {} s", asked.as_secs()),
                None => why.to_owned(),
            };
            return Err(HubError::GaveUp {
                file: self.file.to_owned(),
                why,
                seconds: since.elapsed().as_secs(),
                part: self.line.part.clone(),
            });
        }
        (self.line.tell)(Event::Waiting {
            file: self.file,
            why,
            pause,
        });
        self.line.pause(pause)?;
        self.pause = (2 * self.pause).min(self.line.back_off.longest);
        Ok(())
    }
}
