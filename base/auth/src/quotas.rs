//! The resources of a broker that users and addresses may have at the same time.
//!
//! ```text
//!   CREATE, a filter, a connection ──▶ charge(user and address, amounts) ──▶ Charge, held with the object; its drop gives back
//!                                                                       └──▶ Exceeded: who, of what, how much, the limit
//! ```
//!
//! A charge is made completely or not at all. Only users and addresses with a charge are remembered, so the table has no more entries
//! than there are charged objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use locks::{Mutex, MutexGuard};
use peers::HostAddress;

/// Something of which the broker has a limited amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
#[non_exhaustive]
pub enum Resource {
    /// Connected clients.
    Connections,
    /// Buffers of topics that publishers have open.
    Topics,
    /// Filters of subscribers, names and patterns.
    Subscriptions,
    /// Filters with wildcards.
    Patterns,
    /// Bytes of the broker's rings for the buffers of publishers.
    RingBytes,
}

impl Resource {
    /// All resources, in their order.
    pub const ALL: [Self; 5] =
        [Self::Connections, Self::Topics, Self::Subscriptions, Self::Patterns, Self::RingBytes];

    /// The name, as in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Topics => "topics",
            Self::Subscriptions => "subscriptions",
            Self::Patterns => "patterns",
            Self::RingBytes => "ring_bytes",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RingBytes => "bytes of rings",
            other => other.as_str(),
        })
    }
}

/// A party that has a share of the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Principal {
    /// A user, over all its connections.
    User(Arc<str>),
    /// The host of an address, with all users there.
    Address(HostAddress),
}

impl Principal {
    /// The kind, as in the settings: `user` or `address`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Address(_) => "address",
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user '{name}'"),
            Self::Address(address) => write!(f, "address {address}"),
        }
    }
}

/// Limits by resource, in the order of [`Resource::ALL`]. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits([Option<u64>; Resource::ALL.len()]);

impl Limits {
    /// Without limits.
    pub fn none() -> Self {
        Self::default()
    }

    /// These limits, with another one for a resource.
    pub fn with(mut self, resource: Resource, limit: Option<u64>) -> Self {
        self.0[resource as usize] = limit;
        self
    }

    /// The limit of a resource.
    pub fn of(&self, resource: Resource) -> Option<u64> {
        self.0[resource as usize]
    }
}

/// The limits on users and on addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
    /// For each user.
    pub user: Limits,
    /// For each address.
    pub address: Limits,
}

impl QuotaLimits {
    fn of(&self, principal: &Principal) -> &Limits {
        match principal {
            Principal::User(_) => &self.user,
            Principal::Address(_) => &self.address,
        }
    }
}

/// A charge is refused by a quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{who} has {in_use} {resource}{}; the limit (quotas.{}_{}) is {limit}", more(*asked), who.kind(), resource.as_str())]
#[non_exhaustive]
pub struct Exceeded {
    /// Whose quota.
    pub who: Principal,
    /// The resource.
    pub resource: Resource,
    /// How much of it is in use.
    pub in_use: u64,
    /// How much more was asked for.
    pub asked: u64,
    /// The limit.
    pub limit: u64,
}

fn more(asked: u64) -> String {
    if asked == 1 { String::new() } else { format!(", and asks for {asked} more") }
}

/// A principal that has used up a quota, or nearly so: at least four fifths of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct NearLimit {
    /// Whose quota.
    pub who: Principal,
    /// The resource.
    pub resource: Resource,
    /// How much of it is in use.
    pub in_use: u64,
    /// The limit.
    pub limit: u64,
}

impl NearLimit {
    /// Whether the quota is used up.
    pub fn is_full(&self) -> bool {
        self.in_use >= self.limit
    }
}

type Amounts = [u64; Resource::ALL.len()];

#[derive(Debug, Default)]
struct State {
    limits: QuotaLimits,
    in_use: HashMap<Principal, Amounts>,
}

impl State {
    fn exceeded(&self, who: &Principal, amounts: &[(Resource, u64)]) -> Option<Exceeded> {
        let in_use = self.in_use.get(who).copied().unwrap_or_default();
        let limits = self.limits.of(who);
        amounts.iter().find_map(|(resource, asked)| {
            let (limit, in_use) = (limits.of(*resource)?, in_use[*resource as usize]);
            (*asked > 0 && in_use.saturating_add(*asked) > limit).then(|| Exceeded {
                who: who.clone(),
                resource: *resource,
                in_use,
                asked: *asked,
                limit,
            })
        })
    }

    fn add(&mut self, who: &Principal, amounts: &[(Resource, u64)]) {
        let in_use = self.in_use.entry(who.clone()).or_default();
        for (resource, amount) in amounts {
            in_use[*resource as usize] = in_use[*resource as usize].saturating_add(*amount);
        }
    }

    fn give_back(&mut self, who: &Principal, amounts: &[(Resource, u64)]) {
        let Some(in_use) = self.in_use.get_mut(who) else { return };
        for (resource, amount) in amounts {
            in_use[*resource as usize] = in_use[*resource as usize].saturating_sub(*amount);
        }
        if in_use.iter().all(|amount| *amount == 0) {
            self.in_use.remove(who);
        }
    }
}

/// The use of all users and addresses, with their limits. Clones share it.
///
/// ```
/// use access::{Limits, Principal, QuotaLimits, Quotas, Resource};
/// let user = Limits::none().with(Resource::Topics, Some(1));
/// let quotas = Quotas::new(QuotaLimits { user, address: Limits::none() });
/// let anna = [Principal::User("anna".into())];
/// let charge = quotas.charge(&anna, &[(Resource::Topics, 1)])?;
/// let error = quotas.charge(&anna, &[(Resource::Topics, 1)]).unwrap_err();
/// assert_eq!(error.to_string(), "user 'anna' has 1 topics; the limit (quotas.user_topics) is 1");
/// drop(charge);
/// assert!(quotas.charge(&anna, &[(Resource::Topics, 1)]).is_ok());
/// # Ok::<(), access::Exceeded>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Quotas(Arc<Mutex<State>>);

impl Quotas {
    /// Nothing is in use.
    pub fn new(limits: QuotaLimits) -> Self {
        Self(Arc::new(Mutex::new(State { limits, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Sets other limits. Resources that are in use stay, also beyond the limits.
    pub fn set_limits(&self, limits: QuotaLimits) {
        self.lock().limits = limits;
    }

    /// Charges amounts to all of these principals, or to none.
    ///
    /// # Errors
    /// The first quota that does not allow it.
    pub fn charge(&self, whom: &[Principal], amounts: &[(Resource, u64)]) -> Result<Charge, Exceeded> {
        let mut state = self.lock();
        if let Some(exceeded) = whom.iter().find_map(|who| state.exceeded(who, amounts)) {
            return Err(exceeded);
        }
        whom.iter().for_each(|who| state.add(who, amounts));
        drop(state);
        Ok(Charge { quotas: self.clone(), whom: whom.into(), amounts: amounts.to_vec() })
    }

    /// The limit for a resource of this principal.
    pub fn limit(&self, who: &Principal, resource: Resource) -> Option<u64> {
        self.lock().limits.of(who).of(resource)
    }

    /// How much is in use.
    pub fn in_use(&self, who: &Principal, resource: Resource) -> u64 {
        self.lock().in_use.get(who).map_or(0, |amounts| amounts[resource as usize])
    }

    /// The principals that have used up a quota, and then those that have nearly done so, in order, at most `most` of them. The call visits everybody.
    pub fn near_limit(&self, most: usize) -> Vec<NearLimit> {
        let state = self.lock();
        let mut near = Vec::new();
        for (who, in_use) in &state.in_use {
            let limits = state.limits.of(who);
            near.extend(Resource::ALL.into_iter().filter_map(|resource| {
                let (limit, in_use) = (limits.of(resource)?, in_use[resource as usize]);
                let is_near = in_use.saturating_mul(5) >= limit.saturating_mul(4);
                is_near.then(|| NearLimit { who: who.clone(), resource, in_use, limit })
            }));
        }
        drop(state);
        near.sort_by(|a, b| b.is_full().cmp(&a.is_full()).then(a.cmp(b)));
        near.truncate(most);
        near
    }
}

/// A share that is in use until this is dropped.
#[derive(Debug)]
#[must_use = "dropping the charge gives it back"]
pub struct Charge {
    quotas: Quotas,
    whom: Box<[Principal]>,
    amounts: Vec<(Resource, u64)>,
}

impl Charge {
    /// Sets how much of some resources is charged, and leaves the others as they are.
    ///
    /// # Errors
    /// A quota does not allow more of one of them, and nothing has changed.
    pub fn set(&mut self, amounts: &[(Resource, u64)]) -> Result<(), Exceeded> {
        let more: Vec<_> = amounts.iter().map(|(of, to)| (*of, to.saturating_sub(self.of(*of)))).collect();
        let quotas = self.quotas.clone();
        let mut state = quotas.lock();
        if let Some(exceeded) = self.whom.iter().find_map(|who| state.exceeded(who, &more)) {
            return Err(exceeded);
        }
        self.change(&mut state, amounts);
        Ok(())
    }

    /// The same also beyond the limits, for what is there already.
    pub fn set_anyway(&mut self, amounts: &[(Resource, u64)]) {
        let quotas = self.quotas.clone();
        self.change(&mut quotas.lock(), amounts);
    }

    /// Charges more to the same principals, which counts until the drop of the result.
    ///
    /// # Errors
    /// The first quota that does not allow it.
    pub fn beside(&self, amounts: &[(Resource, u64)]) -> Result<Self, Exceeded> {
        self.quotas.charge(&self.whom, amounts)
    }

    fn of(&self, resource: Resource) -> u64 {
        self.amounts.iter().filter(|(of, _)| *of == resource).map(|(_, amount)| amount).sum()
    }

    fn change(&mut self, state: &mut State, amounts: &[(Resource, u64)]) {
        let less: Vec<_> = amounts.iter().map(|(of, _)| (*of, self.of(*of))).collect();
        for who in &self.whom {
            state.add(who, amounts);
            state.give_back(who, &less);
        }
        self.amounts.retain(|(of, _)| amounts.iter().all(|(changed, _)| changed != of));
        self.amounts.extend(amounts.iter().filter(|(_, amount)| *amount > 0));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.quotas.lock();
        self.whom.iter().for_each(|who| state.give_back(who, &self.amounts));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whom(user: usize, address: usize) -> [Principal; 2] {
        let address = HostAddress::of([10, 0, 0, address as u8].into());
        [Principal::User(["a", "b", "c"][user].into()), Principal::Address(address)]
    }

    #[test]
    fn a_refusal_names_the_setting_and_charges_nobody() {
        let limits = QuotaLimits {
            user: Limits::none(),
            address: Limits::none().with(Resource::RingBytes, Some(100)).with(Resource::Topics, Some(9)),
        };
        let quotas = Quotas::new(limits);
        let whom = whom(0, 1);
        let all = [(Resource::Topics, 1), (Resource::RingBytes, 80)];
        let charge = quotas.charge(&whom, &all).unwrap();
        assert_eq!(
            quotas.charge(&whom, &all).unwrap_err().to_string(),
            "address 10.0.0.1 has 80 bytes of rings, and asks for 80 more; the limit (quotas.address_ring_bytes) is 100"
        );
        assert_eq!(quotas.in_use(&whom[0], Resource::Topics), 1);
        let [near] = &quotas.near_limit(9)[..] else { panic!("one is near its limit") };
        assert_eq!((near.resource, near.in_use, near.is_full()), (Resource::RingBytes, 80, false));
        // Lower limits take nothing away, and show the parties beyond them.
        let address = Limits::none().with(Resource::Topics, Some(0));
        quotas.set_limits(QuotaLimits { user: Limits::none(), address });
        let [full] = &quotas.near_limit(9)[..] else { panic!("one is at its limit") };
        assert!(full.is_full());
        assert_eq!(
            (full.who.clone(), full.resource, full.in_use, full.limit),
            (whom[1].clone(), Resource::Topics, 1, 0)
        );
        // Nothing more is nothing more.
        assert!(quotas.charge(&whom, &[(Resource::Topics, 0)]).is_ok());
        drop(charge);
        assert!(quotas.lock().in_use.is_empty() && quotas.near_limit(9).is_empty());
    }

    #[test]
    fn a_charge_grows_and_shrinks() {
        let limits = Limits::none().with(Resource::Patterns, Some(5));
        let quotas = Quotas::new(QuotaLimits { user: limits, address: Limits::none() });
        let whom = whom(0, 1);
        let in_use = || {
            whom.each_ref().map(|who| {
                [Resource::Connections, Resource::Patterns].map(|resource| quotas.in_use(who, resource))
            })
        };
        let mut first = quotas.charge(&whom, &[(Resource::Connections, 1)]).unwrap();
        let mut second =
            quotas.charge(&whom, &[(Resource::Connections, 1), (Resource::Patterns, 1)]).unwrap();
        first.set(&[(Resource::Patterns, 3)]).unwrap();
        assert_eq!(in_use(), [[2, 4]; 2]);
        assert!(second.set(&[(Resource::Connections, 9), (Resource::Patterns, 3)]).is_err());
        assert_eq!(in_use(), [[2, 4]; 2]);
        second.set_anyway(&[(Resource::Patterns, 3)]);
        assert_eq!(in_use(), [[2, 6]; 2]);
        // Less is always possible.
        first.set(&[(Resource::Patterns, 2)]).unwrap();
        assert_eq!(in_use(), [[2, 5]; 2]);
        drop(second);
        assert_eq!(in_use(), [[1, 2]; 2]);
        drop(first);
        assert!(quotas.lock().in_use.is_empty());
    }

    type Charged = (Charge, [Principal; 2], [(Resource, u64); 2]);

    proptest! {
        #[test]
        fn counts_as_a_list_of_charges(
            limits in proptest::collection::vec(proptest::option::of(0..6_u64), 4),
            steps in proptest::collection::vec((0..3_usize, 0..2_usize, 0..4_u64, 0..3_u64, any::<bool>(), any::<u8>()), 0..60),
        ) {
            let of = |n: usize| Limits::none().with(Resource::Topics, limits[n]).with(Resource::Patterns, limits[n + 1]);
            let limits = QuotaLimits { user: of(0), address: of(2) };
            let quotas = Quotas::new(limits);
            let mut model: Vec<Charged> = Vec::new();
            let sum = |model: &[Charged], who: &Principal, resource| -> u64 {
                let mine = model.iter().filter(|(_, whom, _)| whom.contains(who));
                mine.flat_map(|(.., amounts)| amounts).filter(|(of, _)| *of == resource).map(|(_, amount)| amount).sum()
            };
            for (user, address, topics, patterns, releases, which) in steps {
                if releases && !model.is_empty() {
                    drop(model.swap_remove(usize::from(which) % model.len()));
                } else {
                    let (whom, amounts) = (whom(user, address), [(Resource::Topics, topics), (Resource::Patterns, patterns)]);
                    let fits = |who: &Principal| amounts.iter().all(|(resource, amount)| {
                        let limit = limits.of(who).of(*resource);
                        *amount == 0 || limit.is_none_or(|limit| sum(&model, who, *resource) + amount <= limit)
                    });
                    let expected = whom.iter().all(fits);
                    let charged = quotas.charge(&whom, &amounts);
                    prop_assert_eq!(charged.is_ok(), expected);
                    if let Ok(charge) = charged {
                        model.push((charge, whom, amounts));
                    }
                }
                for who in (0..3).flat_map(|user| whom(user, user % 2)) {
                    for resource in [Resource::Topics, Resource::Patterns] {
                        prop_assert_eq!(quotas.in_use(&who, resource), sum(&model, &who, resource));
                    }
                }
            }
            drop(model);
            prop_assert!(quotas.lock().in_use.is_empty());
        }
    }
}
