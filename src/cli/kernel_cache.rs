//! Where compiled kernels are kept, and the variable that says not to.

use std::env;

use anyhow::ensure;

use crate::backend::cuda::cache::Cache;

/// The environment variable that turns the cache off.
pub const CACHE_VARIABLE: &str = "ULPDRIFT_CACHE";

/// The user's cache of compiled kernels, or none where the environment says `off`.
///
/// # Errors
/// The variable says something else.
pub fn open() -> anyhow::Result<Cache> {
    let said = env::var_os(CACHE_VARIABLE).filter(|said| !said.is_empty());
    let Some(said) = said else {
        return Ok(Cache::of_user());
    };
    ensure!(
        said == "off",
        "{CACHE_VARIABLE}: '{}' found, expected off; unset it to keep compiled kernels (XDG_CACHE_HOME says where)",
        said.display()
    );
    Ok(Cache::default())
}
