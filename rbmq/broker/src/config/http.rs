//! The section `[http]`: the endpoint with metrics and health.

use std::net::SocketAddr;
use std::time::Duration;

use peers::check_known_names;
use settings::section;

use super::endpoint::{EndpointClients, EndpointConsole, EndpointTls};
use super::error::BrokerConfigError;

section! {
    /// The `[http]` section: metrics and health of the broker over HTTP, or HTTPS. Off unless `listen` is set.
    "http" HttpSettings {
        /// Address of the endpoint, as in "127.0.0.1:7412"; port 0 takes a free port. Default "": no endpoint. Without `token_file`,
        /// every client that reaches the address can read the names and rates of all topics, and, by the console of a broker without users
        /// that takes the same clients, their messages.
        listen: String = String::new();
        /// Names with a dot by which browsers, scrapers and proxies reach the endpoint, as "metrics.example.org". Default []: without
        /// token and TLS, the endpoint is known by IP addresses, localhost and names without a dot alone.
        names: Vec<String> = Vec::new();
        /// File with the token that clients of the endpoint must present (`Authorization: Bearer TOKEN`), of at least 16 characters. Others
        /// than its owner and group must not be able to read it. Default "": no token. `rbmq serve` refuses an address that other machines
        /// can reach if the endpoint has neither a token nor `client_certificates = "require"`. Read again on SIGHUP.
        token_file: String = String::new();
        /// Whether the endpoint speaks HTTPS (TLS 1.3) alone: "auto", as `tls.mode` says; "off"; or "require". Default "auto". `rbmq serve`
        /// refuses an address that other machines can reach without it.
        tls: EndpointTls = EndpointTls::Auto;
        /// File with the certificate of the endpoint in PEM, and behind it those that lead to its authority. Default "": `tls.cert`,
        /// `tls.key` and `tls.ca` are those of the endpoint too. Read again on SIGHUP.
        cert: String = String::new();
        /// File with the key of `cert` in PEM.
        key: String = String::new();
        /// File with the certificates of the authorities that sign the clients' certificates, in PEM. Default "": `tls.ca`.
        ca: String = String::new();
        /// Whether the endpoint asks its clients for certificates: "none", "optional" or "require". Default "none". A token is asked for
        /// besides, if there is one. With users or rules, the certificate must be that of a user (`users.file`) with a rule that gives
        /// `observe`; `/health` and `/ready` take any valid one. Without users and rules any valid certificate opens all pages.
        client_certificates: EndpointClients = EndpointClients::None;
        /// The console in a browser (`/ui`) and its interface (`/api/v1`): "off"; "read"; or "write", with which its users also publish
        /// messages, where their rights allow it, and those who may `administer` disconnect clients and reload the configuration. Default "read": clients that may see `/topics` see it too, or, on a broker with users, those that log in and may `observe`. Users that may
        /// `administer` see users, tokens, rights and what a reload would change, and trace clients and topics, also with "read". docs/CONSOLE.md has the details.
        console: EndpointConsole = EndpointConsole::Read;
        /// Largest number of streams of the console, one for each page that is open and in sight. A further one is refused, and its page
        /// asks every five seconds instead. Default 32. A stream costs one of `max_connections`, of which streams take at most half, about
        /// 16 KiB, and its answer while that is sent (a page of 500 rows: about 200 KiB).
        max_streams: usize = 32, range [at least 0];
        /// Largest number of topics with time series of their own in /metrics. The other topics have one sum with the label
        /// topic="#others"; no topic can have this name. Default 1,000. Too large: a topic costs about ten series in the monitoring
        /// system, and a few microseconds of each scrape.
        #[reloadable]
        max_topic_series: usize = 1_000, range [at least 0];
        /// Largest number of open connections. For a further one the oldest is closed that was given no page yet; if there is none, the
        /// further one. Default 64, at least 1. A connection costs a file descriptor and at most 64 KiB; with TLS, at most 256 KiB.
        max_connections: usize = 64, range [at least 1];
        /// Time within which a client must send its request, in milliseconds; with TLS, also the time for the handshake before it. Default
        /// 5,000, 10 to 600,000. Too large: silent clients occupy connections for this time.
        header_timeout_ms: u64 = 5_000, "ms", range [10 to 600_000];
    }
}

impl HttpSettings {
    /// `header_timeout_ms` as a duration.
    pub fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    /// Whether the endpoint is encrypted, beside connections whose setting `tls.mode` is `mode`.
    ///
    /// ```
    /// # use rbmq_broker::{EndpointTls, HttpSettings};
    /// let mut http = HttpSettings::default();
    /// assert!(http.is_encrypted("require") && !http.is_encrypted("off"));
    /// http.tls = EndpointTls::Require;
    /// assert!(http.is_encrypted("off"));
    /// ```
    pub fn is_encrypted(&self, mode: &str) -> bool {
        self.tls.is_encrypted(mode)
    }

    /// Whether every client must show who it is.
    pub(super) fn knows_clients(&self) -> bool {
        !self.token_file.is_empty() || self.client_certificates == EndpointClients::Require
    }

    pub(super) fn validate(&self, mode: &str) -> Result<(), BrokerConfigError> {
        if !self.listen.is_empty() && self.listen.parse::<SocketAddr>().is_err() {
            return Err(BrokerConfigError::Word {
                name: "http.listen",
                value: self.listen.clone(),
                expects: "an IP address and a port, as 127.0.0.1:7412 or [::1]:7412, or empty for no endpoint",
            });
        }
        let is_name = |name: &String| check_known_names([name.as_str()]).is_ok();
        if let Some(wrong) = self.names.iter().find(|name| !is_name(name)) {
            return Err(BrokerConfigError::Word {
                name: "http.names",
                value: wrong.clone(),
                expects: "NAME or NAME:PORT, as metrics.example.org",
            });
        }
        // An operator who asks for certificates believes that nobody gets in without one.
        if self.client_certificates != EndpointClients::None && !self.is_encrypted(mode) {
            let (name, value) = ("http.client_certificates", format!("{:?}", self.client_certificates));
            let expects = "\"none\" without TLS: set http.tls = \"require\" too";
            return Err(BrokerConfigError::Word { name, value: value.to_lowercase(), expects });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_form_of_requests() {
        let with = |name: &str| HttpSettings { names: vec![name.to_owned()], ..HttpSettings::default() };
        with("metrics.example.org").validate("off").unwrap();
        let wrong = with("https://metrics.example.org").validate("off").unwrap_err().to_string();
        assert!(
            wrong.starts_with("http.names = \"https://metrics.example.org\": it must be NAME"),
            "{wrong}"
        );
    }

    #[test]
    fn certificates_of_clients_need_tls() {
        let mut http =
            HttpSettings { client_certificates: EndpointClients::Require, ..HttpSettings::default() };
        assert!(http.validate("off").unwrap_err().to_string().contains("http.tls"));
        http.validate("require").unwrap();
        http.tls = EndpointTls::Off;
        assert!(http.validate("require").is_err());
        http.tls = EndpointTls::Require;
        http.validate("off").unwrap();
        assert!(http.knows_clients());
    }
}
