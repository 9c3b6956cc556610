//! The access token: found where the hub's own tools look for it, and shown nowhere.

use std::{env, ffi::OsString, fmt, fs, path::PathBuf};

use super::HubError;

/// A token, which only the client may see.
#[derive(Clone)]
pub struct Token {
    secret: String,
    /// The variable or file that it came from.
    origin: String,
}

impl Token {
    /// Takes it from `HF_TOKEN` or `HUGGING_FACE_HUB_TOKEN`, else from the file that `HF_TOKEN_PATH` names, or from
    /// `token` in `HF_HOME`, which is `huggingface` in the user's cache directory where it is not set.
    ///
    /// # Errors
    ///
    /// If there is one that cannot be part of a request.
    pub fn find() -> Result<Option<Self>, HubError> {
        Self::find_in(|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn find_in(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, HubError> {
        for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
            if let Some(value) = variable(name) {
                return Self::check(value.to_string_lossy().into_owned(), name.to_owned());
            }
        }
        let Some(path) = file(variable) else {
            return Ok(None);
        };
        match fs::read_to_string(&path) {
            Ok(text) => Self::check(text, path.display().to_string()),
            // Most people have none.
            Err(_) => Ok(None),
        }
    }

    fn check(text: String, origin: String) -> Result<Option<Self>, HubError> {
        let secret = text.trim().to_owned();
        if secret.is_empty() {
            return Ok(None);
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(HubError::Token { origin });
        }
        Ok(Some(Self { secret, origin }))
    }

    /// The variable or file that it came from.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The header's value.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.secret)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the token of {}", self.origin)
    }
}

/// Where the token's file would be.
fn file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = variable("HF_TOKEN_PATH") {
        return Some(path.into());
    }
    let home = variable("HF_HOME").map(PathBuf::from).or_else(|| {
        let cache = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
        Some(cache.join("huggingface"))
    })?;
    Some(home.join("token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Token>, HubError> {
        Token::find_in(|name| {
            let pair = variables.iter().find(|(known, _)| *known == name);
            pair.map(|(_, value)| value.into())
        })
    }

    fn bearer(variables: &[(&str, &str)]) -> Option<String> {
        let token = found(variables).expect("a usable token or none");
        token.map(|token| token.bearer())
    }

    #[test]
    fn the_first_of_the_usual_places() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().join("huggingface");
        fs::create_dir(&home).expect("created");
        fs::write(home.join("token"), "hf_file\n").expect("written");
        let cache = directory.path().to_str().expect("text");
        let home = home.to_str().expect("text");
        let file = Some("Bearer hf_file".to_owned());
        assert_eq!(bearer(&[("XDG_CACHE_HOME", cache)]), file);
        assert_eq!(
            bearer(&[("HF_HOME", home), ("XDG_CACHE_HOME", "/nowhere")]),
            file
        );
        assert_eq!(bearer(&[("HF_TOKEN_PATH", &format!("{home}/token"))]), file);
        assert_eq!(
            bearer(&[("HF_TOKEN_PATH", "/nowhere"), ("HF_HOME", home)]),
            None
        );
        let both = [
            ("HUGGING_FACE_HUB_TOKEN", "old"),
            ("HF_TOKEN", "new"),
            ("HF_HOME", home),
        ];
        assert_eq!(bearer(&both), Some("Bearer new".to_owned()));
        assert_eq!(bearer(&both[..1]), Some("Bearer old".to_owned()));
        assert_eq!(bearer(&[]), None);
    }

    #[test]
    fn a_token_that_is_none_is_named_not_shown() {
        let error = found(&[("HF_TOKEN", "se cret\nX-Header: 1")]).expect_err("no token");
        assert!(error.to_string().contains("HF_TOKEN"));
        assert!(!error.to_string().contains("cret"));
    }

    #[test]
    fn it_does_not_show_itself() {
        let token = found(&[("HF_TOKEN", "secret")]).expect("a token");
        assert_eq!(format!("{token:?}"), "Some(the token of HF_TOKEN)");
    }
}
