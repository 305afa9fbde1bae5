//! Addresses of files: parsing, relative redirects, and what may be shown of them.

use ureq::http::Uri;

use super::PullError;

/// Longest address that is followed.
const LONGEST: usize = 8192;

/// An absolute http or https address.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Address(Uri);

impl Address {
    /// Reads an absolute address.
    pub(super) fn parse(text: &str) -> Result<Self, PullError> {
        let bad = || PullError::Address { text: without_secrets(text) };
        // A fragment is never sent to a host.
        let text = text.split('#').next().unwrap_or_default();
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !known || uri.host().is_none_or(str::is_empty) || text.len() > LONGEST {
            return Err(bad());
        }
        Ok(Address(uri))
    }

    /// The address of `path`, which begins with `/`, below this one.
    pub(super) fn below(&self, path: &str) -> Result<Self, PullError> {
        let base = self.0.to_string();
        Address::parse(&format!("{}{path}", base.trim_end_matches('/')))
    }

    /// The target of a redirect from this address. An encrypted connection is never left for a plain one.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, PullError> {
        let refused = |reason| PullError::Redirect { host: self.host(), reason };
        let (scheme, authority) = (self.scheme(), self.authority());
        let text = if location.contains("://") && !location.starts_with(['/', '?']) {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{scheme}:{location}")
        } else if location.starts_with('/') {
            format!("{scheme}://{authority}{location}")
        } else {
            let path = self.0.path();
            let folder = path.rfind('/').map_or("/", |end| &path[..=end]);
            format!("{scheme}://{authority}{folder}{location}")
        };
        let target = Address::parse(&text).map_err(|_| refused("not an http or https address"))?;
        if self.scheme() == "https" && target.scheme() == "http" {
            return Err(refused("it is not encrypted"));
        }
        Ok(target)
    }

    /// Whether two addresses have the same scheme, host and port.
    pub(super) fn is_same_origin(&self, other: &Address) -> bool {
        let key = |address: &Address| {
            (address.scheme().to_owned(), address.bare_host().to_ascii_lowercase(), address.port())
        };
        key(self) == key(other)
    }

    /// Whether a secret may be sent: the connection is encrypted or does not leave this machine.
    pub(super) fn is_private(&self) -> bool {
        let host = self.bare_host();
        let local = matches!(host, "localhost" | "[::1]")
            || host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback());
        self.scheme() == "https" || local
    }

    /// Host and port, for messages.
    pub(super) fn host(&self) -> String {
        match self.0.port_u16() {
            Some(port) => format!("{}:{port}", self.bare_host()),
            None => self.bare_host().to_owned(),
        }
    }

    /// Scheme, host and path, for messages: queries of redirects and user names are secrets.
    pub(super) fn shown(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.host(), self.0.path())
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }

    fn scheme(&self) -> &str {
        self.0.scheme_str().unwrap_or_default()
    }

    fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    fn bare_host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }

    fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.scheme() == "https" { 443 } else { 80 })
    }
}

/// A text that should have been an address, without what stands before `@` and after `?`.
fn without_secrets(text: &str) -> String {
    let text = text.split('?').next().unwrap_or_default();
    let text = text.rsplit('@').next().unwrap_or_default();
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn redirects_are_resolved() {
        let from = address("https://hub.test/a/b?x=1");
        for (location, target) in [
            ("https://cdn.test/y?sig=1", "https://cdn.test/y?sig=1"),
            ("//cdn.test/y", "https://cdn.test/y"),
            ("/c/d", "https://hub.test/c/d"),
            ("d", "https://hub.test/a/d"),
            ("/z?to=http://other.test/", "https://hub.test/z?to=http://other.test/"),
        ] {
            assert_eq!(from.redirected(location).unwrap(), address(target), "{location}");
        }
        for location in ["http://hub.test/a", "ftp://hub.test/", "https://", "file:///etc/passwd"] {
            assert!(from.redirected(location).is_err(), "{location}");
        }
        assert!(address("http://a.test/").redirected("http://b.test/").is_ok());
    }

    #[test]
    fn origins_and_secrets() {
        let hub = address("https://hub.test/a");
        assert!(hub.is_same_origin(&address("https://HUB.test:443/b")));
        for other in ["https://hub.test:8443/", "http://hub.test/", "https://hub.test.evil/"] {
            assert!(!hub.is_same_origin(&address(other)), "{other}");
        }
        assert!(hub.is_private() && address("http://127.0.0.1:80/").is_private());
        assert!(!address("http://hub.test/").is_private());
        assert!(!address("http://127.0.0.1.evil.test/").is_private());
        let secret = address("https://me:password@hub.test:8443/file?signature=s3cret");
        assert_eq!(secret.shown(), "https://hub.test:8443/file");
        assert_eq!(secret.host(), "hub.test:8443");
        let error =
            Address::parse("gopher://me:password@hub.test/?s3cret").unwrap_err().to_string();
        assert!(!error.contains("password") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn files_below_an_address() {
        let file = |base: &str| address(base).below("/o/n/resolve/main/f.pt").unwrap().shown();
        assert_eq!(file("https://hub.test"), "https://hub.test/o/n/resolve/main/f.pt");
        assert_eq!(file("http://a.test/hub/"), "http://a.test/hub/o/n/resolve/main/f.pt");
    }
}
