//! A few things at a time.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{HubError, line::Line};

/// Does the work on every item, `jobs` at a time; the results are in the items' order. The first error stops the
/// others.
pub(super) fn each<T: Sync, R: Send>(
    line: &Line<'_>,
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, HubError> + Sync,
) -> Result<Vec<R>, HubError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let failed = Mutex::new(None);
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return;
            };
            match line.go_on().and_then(|()| work(item)) {
                Ok(result) => lock(&done).push((number, result)),
                Err(error) => {
                    // The others stop because of the first, whose error is the one to tell.
                    line.stopped.store(true, Ordering::Relaxed);
                    let mut failed = lock(&failed);
                    if failed.is_none() || matches!(*failed, Some(HubError::Stopped)) {
                        *failed = Some(error);
                    }
                    return;
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.min(items.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
