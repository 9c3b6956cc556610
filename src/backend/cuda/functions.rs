//! Functions of a C library, as C has them: a result is a number.
//!
//! cudarc declares results as enums of Rust. A code that its version does not list, of a newer library or of a broken
//! one, is no value of those: behaviour is undefined before anybody can look at it. So of cudarc only the
//! types of arguments are used, and the functions are looked up here: all of a table together, before the first is
//! called, where cudarc looks each up when it is first called and panics if it is missing.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};

use super::error::Refusal;

/// What every library here returns where nothing went wrong: `CUDA_SUCCESS`, `CUBLAS_STATUS_SUCCESS`.
pub const SUCCESS: c_int = 0;

/// A loaded library.
#[derive(Clone, Copy)]
pub struct Library {
    /// Never unloaded: the driver runs threads of its own once it has been started.
    handle: &'static libloading::Library,
    /// What a code means, if the library can tell.
    meaning: fn(&Self, c_int) -> Option<String>,
}

impl Library {
    /// Keeps a library for ever.
    pub fn keep(library: libloading::Library, meaning: fn(&Self, c_int) -> Option<String>) -> Self {
        Self {
            handle: Box::leak(Box::new(library)),
            meaning,
        }
    }

    /// The function `symbol`, as a pointer of type `F`.
    ///
    /// # Safety
    /// `F` is the function's type in C.
    pub unsafe fn function<F: Copy>(&self, symbol: &str) -> Option<F> {
        // SAFETY: the caller says so; the pointer stays valid because the library is never unloaded.
        let function = unsafe { self.handle.get::<F>(symbol.as_bytes()) };
        function.ok().map(|function| *function)
    }

    /// What function `call` returned.
    pub fn outcome(&self, call: &'static str, code: c_int) -> Result<(), Refusal> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(Refusal {
            call,
            code,
            meaning: (self.meaning)(self, code),
        })
    }
}

/// A text that a library owns, if there is one.
///
/// # Safety
/// It is a null pointer, or points to characters that a NUL ends and nobody changes.
pub unsafe fn text(characters: *const c_char) -> Option<String> {
    if characters.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(characters) };
    Some(text.to_string_lossy().into_owned())
}

/// Makes a table of functions of one library, each of which returns a code: as methods under their own names, unsafe
/// like the functions themselves. The types of the arguments are those of the library's reference.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $table:ident { $($name:ident($($argument:ident: $type:ty),* $(,)?);)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        #[allow(non_snake_case, reason = "the names of the library's reference")]
        pub struct $table {
            library: Library,
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        #[allow(
            non_snake_case,
            clippy::too_many_arguments,
            reason = "the names and the arguments of the library's reference"
        )]
        impl $table {
            /// What they are called.
            #[allow(dead_code, reason = "only the driver's are asked for, by who makes a stub of it")]
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Looks them all up.
            ///
            /// # Errors
            /// The first that the library lacks.
            pub fn of(library: Library) -> Result<Self, &'static str> {
                Ok(Self {
                    library,
                    $($name: {
                        let name = stringify!($name);
                        // SAFETY: the type is the field's, which is the function's in C.
                        unsafe { library.function(name) }.ok_or(name)?
                    },)*
                })
            }

            $(
                /// # Safety
                /// That of the function.
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Refusal> {
                    // SAFETY: the caller keeps what the function asks for.
                    let code = unsafe { (self.$name)($($argument),*) };
                    self.library.outcome(stringify!($name), code)
                }
            )*
        }
    };
}
pub(super) use functions;
