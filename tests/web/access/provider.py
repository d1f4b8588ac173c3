"""A small OpenID Connect provider: it signs with its own keys and holds a client to PKCE, as a real one does."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import json
import secrets
import time
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from deploy.local.processes import free_port
from millrace.io.http.server import HttpServer

CLIENT, SECRET = "millrace", "client s3cr3t/+"


@functools.cache
def first_key() -> rsa.RSAPrivateKey:
    """Of every provider of a run: to make one takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider:
    """Serves on loopback from `start` to `stop`. `person`: the claims of whoever logs in."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"first": first_key()}
        self.person: dict[str, Any] = {"sub": "u1", "groups": ["engineers"]}
        self.secret, self.methods = "", ["client_secret_basic"]
        self.asked: Counter[str] = Counter()
        self.hangs = False
        self.wrong: dict[str, Any] = {}
        """In place of what its discovery says."""
        self.id_claims: dict[str, Any] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self._server: HttpServer | None = None
        self.port = free_port()  # not one that systems lend to outgoing connections: it is needed again after a `stop`

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        routes = [
            Route("/.well-known/openid-configuration", self._discovery), Route("/keys", self._jwks),
            Route("/authorize", self._authorize), Route("/token", self._token, methods=["POST"]),
        ]  # fmt: skip
        self._server = HttpServer(Starlette(routes=routes), port=self.port)
        self.port = self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def jwt(self, kid: str | None = "first", key: Any = None, alg: str = "RS256", **claims: Any) -> str:
        now = int(time.time())
        told = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, **self.person, **claims}
        told = {name: value for name, value in told.items() if value is not None}
        return jwt.encode(told, key or self.keys[kid or "first"], alg, headers={"kid": kid} if kid else None)

    async def _discovery(self, _: Request) -> Response:
        self.asked["discovery"] += 1
        while self.hangs:
            await asyncio.sleep(0.01)
        places = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        told = {name: self.issuer + path for name, path in places.items()}
        return JSONResponse({"issuer": self.issuer, "token_endpoint_auth_methods_supported": self.methods, **told, **self.wrong})

    async def _jwks(self, _: Request) -> Response:
        self.asked["keys"] += 1
        found = []
        for kid, key in self.keys.items():
            algorithm: Any = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
            found.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        return JSONResponse({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}, {"kty": "??", "kid": "odd"}, *found]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert (asked["client_id"], asked["response_type"], asked["code_challenge_method"]) == (CLIENT, "code", "S256")
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        self.asked["token"] += 1
        form = await request.form()
        asked = self._codes.pop(str(form.get("code")), None)  # one can be used once
        challenge = base64.urlsafe_b64encode(hashlib.sha256(str(form.get("code_verifier")).encode()).digest()).rstrip(b"=").decode()
        if asked is None or challenge != asked["code_challenge"] or form.get("redirect_uri") != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if self.secret and not self._knows_secret(request, form.get("client_secret")):
            return JSONResponse({"error": "invalid_client"}, 401)
        return JSONResponse({"access_token": "opaque", "id_token": self.jwt(**{"nonce": asked["nonce"], **self.id_claims})})

    def _knows_secret(self, request: Request, posted: object) -> bool:
        if "client_secret_basic" not in self.methods:
            return posted == self.secret
        given = base64.b64decode(request.headers.get("authorization", " ").split()[1]).decode()
        return given == f"{CLIENT}:client+s3cr3t%2F%2B" and posted is None
