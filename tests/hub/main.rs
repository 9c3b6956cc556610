//! `fetch` from a hub on this machine: what comes back, what a hub can do wrong, and who learns the token.

mod faults;
mod fetches;
mod hostile;
mod interruptions;
mod scene;
mod secrets;
mod server;
mod source;
