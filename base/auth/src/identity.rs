//! The user of a connection.

/// How a client has shown its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Nothing was presented, and the broker has no users.
    None,
    /// A name and a password.
    Password,
    /// A random token that the broker issued.
    Token,
    /// A signed token of another issuer.
    Jwt,
    /// A client certificate of the TLS connection.
    Certificate,
    /// The Unix user of a process of the same machine.
    Unix,
    /// Nothing: the client is a part of the broker's own process.
    Own,
}

impl Method {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Password => "password",
            Self::Token => "token",
            Self::Jwt => "jwt",
            Self::Certificate => "certificate",
            Self::Unix => "unix",
            Self::Own => "own",
        }
    }
}

/// The user of a connection, as it was authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The name of the user: what `%u` stands for in a rule. Empty for every client of a broker without users.
    pub user: String,
    /// The roles of the user; rules may name them.
    pub roles: Vec<String>,
    /// The method by which the client has shown its identity.
    pub method: Method,
}

impl Identity {
    /// The identity of every client of a broker without users.
    pub fn anonymous() -> Self {
        Self { user: String::new(), roles: Vec::new(), method: Method::None }
    }

    /// The identity of a part of the broker's own process, which may do everything. No user has its name: it begins with `$`.
    pub fn own(part: &str) -> Self {
        Self { user: format!("${part}"), roles: Vec::new(), method: Method::Own }
    }

    /// Whether the client is a part of the broker's own process.
    pub fn is_own(&self) -> bool {
        self.method == Method::Own
    }

    /// Whether the broker has no users.
    pub fn is_anonymous(&self) -> bool {
        self.method == Method::None
    }
}
