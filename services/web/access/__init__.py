"""Who may do what over HTTP: logins, roles, rates, and the record of commands.

`guard` is what every request passes; `roles` has the table of routes; `login` finds out who asks, by a token's hash, a signed cookie, or a
JWT of an OIDC provider. On loopback without any of these everybody may do everything: whoever is there reaches Kafka as well.
"""
