//! What a caller may do, by what they have proven.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Caller, Keyring, Principal, Scopes};
use crate::metrics::Meter;

/// A [`Keyring`] that can be exchanged while the server is at work. Clones share it.
#[derive(Clone)]
pub struct Keys {
    keyring: Arc<ArcSwap<Keyring>>,
}

impl Keys {
    /// Goes by this keyring.
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring: Arc::new(ArcSwap::from_pointee(keyring)) }
    }

    /// Goes by another one from now on, for connections that there are as well.
    pub fn set(&self, keyring: Keyring) {
        self.keyring.store(Arc::new(keyring));
    }

    /// The keyring that counts now.
    pub fn keyring(&self) -> Arc<Keyring> {
        self.keyring.load_full()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keyring.load().fmt(f)
    }
}

/// What the caller of a connection has proven so far.
#[derive(Clone, Debug)]
pub struct Access {
    keys: Keys,
    /// The names on the certificate that was shown, if one was.
    certificate: Option<Arc<[String]>>,
    /// Who the caller is without a token.
    caller: Caller,
    address: IpAddr,
    /// Counts authentications that fail.
    meter: Arc<Meter>,
    /// What is served there at all.
    served: Scopes,
}

impl Access {
    /// The access of a caller at this address that has shown a certificate with these names, if it has shown one.
    pub(crate) fn new(
        keys: Keys,
        certificate: Option<Vec<String>>,
        address: IpAddr,
        meter: Arc<Meter>,
    ) -> Self {
        let known = certificate.as_deref().and_then(Caller::with_certificate);
        let caller = known.unwrap_or_else(|| Caller::at(address));
        let (certificate, served) = (certificate.map(Into::into), Scopes::ALL);
        Self { keys, certificate, caller, address, meter, served }
    }

    /// The same, where nothing but this is served, whoever asks.
    #[must_use]
    pub fn within(self, served: Scopes) -> Self {
        Self { served, ..self }
    }

    /// Whether nobody needs to prove anything.
    pub fn is_open(&self) -> bool {
        self.keys.keyring.load().anonymous() == Scopes::ALL
    }

    /// What the caller may do without a token.
    pub fn scopes(&self) -> Scopes {
        self.scopes_by(&self.keys.keyring.load())
    }

    /// Whether the caller has shown a certificate that gives it anything.
    pub fn is_certified(&self) -> bool {
        self.certified(&self.keys.keyring.load()) != Scopes::NONE
    }

    /// Whether the caller has shown a certificate that is trusted.
    pub fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Who the caller is without a token, and what it may do.
    pub fn principal(&self) -> Principal {
        Principal { caller: self.caller, scopes: self.scopes() }
    }

    /// The address that the caller connects from.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub(crate) fn protocol(&self) -> &'static str {
        self.meter.protocol()
    }

    /// The name of a caller for people: that of its token or its certificate, else that it is anonymous.
    pub(crate) fn name_of(&self, caller: Caller) -> String {
        if let Some(name) = self.keys.keyring.load().token_of(caller) {
            return format!("token {name}");
        }
        match self.certificate.as_deref() {
            Some(names @ [_, ..]) => format!("certificate {}", names.join(" ")),
            _ => "anonymous".to_owned(),
        }
    }

    /// [`principal_with`](Self::principal_with) for a token that the caller has just sent: an unknown one is counted as an
    /// authentication that failed.
    pub(crate) fn authenticate(&self, token: &[u8]) -> Option<Principal> {
        let principal = self.principal_with(token);
        if principal.is_none() {
            self.meter.authentication_failed("token", self.address);
        }
        principal
    }

    /// What the caller may do with this token; none if nobody knows it.
    pub fn with_token(&self, token: &[u8]) -> Option<Scopes> {
        self.principal_with(token).map(|principal| principal.scopes)
    }

    /// Who the caller is with this token, and what it may do; `None` if the token is unknown.
    pub fn principal_with(&self, token: &[u8]) -> Option<Principal> {
        let keyring = self.keys.keyring.load();
        let Principal { caller, scopes } = keyring.principal_with(token)?;
        Some(Principal { caller, scopes: scopes.within(self.served).and(self.scopes_by(&keyring)) })
    }

    fn scopes_by(&self, keyring: &Keyring) -> Scopes {
        self.certified(keyring).and(keyring.anonymous()).within(self.served)
    }

    /// What its certificate gives the caller.
    fn certified(&self, keyring: &Keyring) -> Scopes {
        let proven = self.certificate.as_deref().map(|names| names.iter().map(String::as_str));
        proven.map_or(Scopes::NONE, |names| keyring.with_certificate(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Scope;
    use crate::metrics::Metrics;

    fn access(keys: &Keys, certificate: Option<Vec<String>>) -> Access {
        let here = IpAddr::from([127, 0, 0, 1]);
        Access::new(keys.clone(), certificate, here, Metrics::new().meter("test"))
    }

    #[test]
    fn whoever_asks_gets_no_more_than_is_served() {
        let keyring = Keyring::new()
            .token("ops", b"root", Scopes::ALL)
            .certificate(None, Scopes::ALL)
            .with_anonymous(Scopes::of(&[Scope::Check, Scope::Admin]));
        let served = Scopes::of(&[Scope::Check, Scope::Settle]);
        let (keys, check) = (Keys::new(keyring), Scopes::of(&[Scope::Check]));
        let stranger = access(&keys, None).within(served);
        assert_eq!((stranger.scopes(), stranger.is_open()), (check, false));
        assert_eq!((stranger.with_token(b"root"), stranger.with_token(b"guess")), (Some(served), None));
        assert_eq!(access(&keys, Some(Vec::new())).within(served).scopes(), served);
        let open = access(&Keys::new(Keyring::open()), None).within(check);
        assert_eq!(
            (open.scopes(), open.is_open()),
            (check, true),
            "what is served is no question of who asks"
        );
    }

    #[test]
    fn a_caller_is_its_token_or_its_certificate_or_its_address() {
        let keyring = Keyring::new().token("a", b"1", Scopes::NONE).token("b", b"2", Scopes::NONE);
        let (keys, here) = (Keys::new(keyring), IpAddr::from([127, 0, 0, 1]));
        let named = |name: &str| access(&keys, Some(vec![name.to_owned()]));
        let stranger = access(&keys, None);
        assert_eq!(stranger.principal().caller, Caller::at(here));
        assert_eq!(named("x").principal(), named("x").principal());
        let with = |access: &Access, token: &[u8]| access.principal_with(token).unwrap().caller;
        assert_eq!(with(&stranger, b"1"), with(&named("x"), b"1"), "wherever the token is sent from");
        let all = [
            stranger.principal().caller,
            named("x").principal().caller,
            named("y").principal().caller,
            with(&stranger, b"1"),
            with(&stranger, b"2"),
        ];
        assert!((1..all.len()).all(|one| !all[..one].contains(&all[one])));
    }
}
