"""Settings of the login."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, FilePath, SecretStr, model_validator

from millrace.io.addresses import is_loopback

KEY_LEAST = 32
Values = Annotated[list[str], Field(max_length=1000)]


class Oidc(BaseModel):
    """A provider of OpenID Connect."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str = Field("", max_length=1000, description="URL of the OIDC provider, as its tokens have it in `iss`; empty: none.")
    client_id: str = Field("", max_length=1000, description="What the provider knows this service as.")
    client_secret: SecretStr = Field(SecretStr(""), description="Given by the provider; empty for a public client.")
    audience: str = Field("", max_length=1000, description="`aud` of JWTs that are taken as bearer tokens; empty: the client id.")
    scopes: str = Field("openid", max_length=1000, description="What the page's login asks for; openid is among them.")
    name_claim: str = Field("sub", min_length=1, max_length=200, description="The claim with the name; one that nobody can change.")
    role_claim: str = Field("groups", min_length=1, max_length=200, description="The claim with groups or roles; dots go into objects.")
    viewers: Values = Field([], description="Values of that claim that make a viewer.")
    operators: Values = Field([], description="Values that make an operator.")
    admins: Values = Field([], description="Values that make an admin.")

    @model_validator(mode="after")
    def _whole(self) -> Oidc:
        if not self.issuer:
            return self
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise ValueError("issuer must be an https URL: who can change its keys on the way can be anybody")
        if not self.client_id:
            raise ValueError("client_id is needed with an issuer")
        if "openid" not in self.scopes.split():
            raise ValueError("scopes must have openid among them")
        if not (self.viewers or self.operators or self.admins):
            raise ValueError("nobody could do anything: give viewers, operators or admins, which are values of role_claim")
        return self


class Access(BaseModel):
    """Who may use the web service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: FilePath | None = Field(None, description="PEM file with the certificate and its chain. It is read again when it changes.")
    key: FilePath | None = Field(None, description="PEM file with the certificate's private key.")
    tokens: FilePath | None = Field(None, description="File with the hashes of tokens, as `millrace token create` makes it.")
    public_url: str = Field(
        "", pattern=r"^(https?://[^/?#]+)?$", description="How browsers reach it, https://HOST[:PORT]; needed with an OIDC provider."
    )
    oidc: Oidc = Field(default_factory=lambda: Oidc.model_validate({}), description="An OIDC provider.")
    session_key: SecretStr = Field(
        SecretStr(""), description="Signs the page's sessions; 32 characters or more. Empty: made anew at each start, which ends them."
    )
    session_minutes: int = Field(60, ge=1, le=24 * 60, description="After so long a browser logs in anew.")
    origins: Annotated[list[str], Field(max_length=100)] = Field(
        [], description="Origins whose pages may use the API with a bearer token (CORS), https://HOST[:PORT]."
    )
    requests_per_s: float | None = Field(
        None, gt=0, le=1e6, description="Requests of one client a second, 5 s' worth at once; by default 200 with a login, else any."
    )
    commands_per_s: float | None = Field(
        None, gt=0, le=1e6, description="Of these, commands; by default 20 with a login, else any."
    )
    streams: int | None = Field(None, ge=1, description="Streams that one client may have open; by default 100 with a login, else any.")

    @classmethod
    def usual(cls) -> Access:
        """Without a login."""
        return cls.model_validate({})

    @property
    def has_login(self) -> bool:
        return self.tokens is not None or bool(self.oidc.issuer)

    @model_validator(mode="after")
    def _whole(self) -> Access:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key are given together")
        if self.oidc.issuer and not self.public_url:
            raise ValueError("public_url is needed with an OIDC provider, which sends browsers back to it")
        public = urlsplit(self.public_url)
        if public.scheme == "http" and not is_loopback(public.hostname or ""):
            raise ValueError("public_url must be an https URL: a login's code goes there")
        if 0 < len(self.session_key.get_secret_value()) < KEY_LEAST:
            raise ValueError(f"session_key must have {KEY_LEAST} characters or more: openssl rand -hex 32")
        for origin in self.origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
                raise ValueError(f"{origin[:200]!r} is no origin; one is https://HOST or https://HOST:PORT")
        return self
