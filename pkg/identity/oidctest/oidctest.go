// Package oidctest is an OpenID Connect issuer for tests. It publishes its configuration
// and its keys over HTTP, and signs tokens with them. A test can replace its pages.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// Issuer is an issuer with an HTTP server. Safe for concurrent use.
type Issuer struct {
	// URL is the issuer's name and its address.
	URL string

	server *httptest.Server
	now    func() time.Time

	mu    sync.Mutex
	keys  []Key
	made  int
	asked map[string]int          // number of requests by path
	pages map[string]http.Handler // replacements of the issuer's own pages, by path
}

// Key is a key that signs tokens.
type Key struct {
	ID     string
	Signer crypto.Signer
}

// The paths of an issuer's pages.
const (
	ConfigPath = "/.well-known/openid-configuration"
	KeysPath   = "/keys"
)

// New starts an issuer over TLS, with one key. The caller must close it.
func New(now func() time.Time) *Issuer { return serve(now, httptest.NewTLSServer) }

// NewPlain starts an issuer without TLS.
func NewPlain(now func() time.Time) *Issuer { return serve(now, httptest.NewServer) }

func serve(now func() time.Time, with func(http.Handler) *httptest.Server) *Issuer {
	i := Unserved("", now)
	i.server = with(i)
	i.URL = i.server.URL
	return i
}

// Unserved returns an issuer without a server. It is an http.Handler.
func Unserved(url string, now func() time.Time) *Issuer {
	i := &Issuer{URL: url, now: now, asked: map[string]int{}, pages: map[string]http.Handler{}}
	i.AddKey("ES256")
	return i
}

// Close stops the server.
func (i *Issuer) Close() { i.server.Close() }

// Transport returns a transport that accepts the issuer's certificate.
func (i *Issuer) Transport() http.RoundTripper { return i.server.Client().Transport }

// AddKey adds a key for an algorithm (RS256, ES256, EdDSA). The issuer then signs tokens
// with it.
func (i *Issuer) AddKey(alg string) Key {
	var s crypto.Signer
	var err error
	switch alg {
	case "ES256":
		s, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "RS256":
		s, err = rsa.GenerateKey(rand.Reader, 2048)
	case "EdDSA":
		_, s, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("oidctest does not support the algorithm %s", alg)
	}
	if err != nil {
		panic(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	k := Key{ID: fmt.Sprintf("key-%d", i.made), Signer: s}
	i.keys = append(i.keys, k)
	return k
}

// Rotate replaces all keys by a new one.
func (i *Issuer) Rotate() {
	i.AddKey("ES256")
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// Key returns the key that signs tokens.
func (i *Issuer) Key() Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Replace makes h answer requests of a path; nil: the issuer's own page.
func (i *Issuer) Replace(path string, h http.Handler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if h == nil {
		delete(i.pages, path)
		return
	}
	i.pages[path] = h
}

// Asked returns the number of requests of a path.
func (i *Issuer) Asked(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// ServeHTTP answers with the pages of an issuer.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked[r.URL.Path]++
	h := i.pages[r.URL.Path]
	i.mu.Unlock()
	switch {
	case h != nil:
		h.ServeHTTP(w, r)
	case r.URL.Path == ConfigPath:
		send(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + KeysPath, "id_token_signing_alg_values_supported": []string{"RS256", "ES256"}})
	case r.URL.Path == KeysPath:
		_, _ = w.Write(i.KeySet())
	default:
		http.NotFound(w, r)
	}
}

func send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}

// KeySet returns the JSON Web Key Set that the issuer publishes.
func (i *Issuer) KeySet() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := map[string]any{}
	list := []any{}
	for _, k := range i.keys {
		list = append(list, k.Public())
	}
	set["keys"] = list
	b, err := json.Marshal(set)
	if err != nil {
		panic(err)
	}
	return b
}

// Public returns the public key as a JSON Web Key.
func (k Key) Public() map[string]any {
	b64 := base64.RawURLEncoding.EncodeToString
	out := map[string]any{"kid": k.ID, "use": "sig"}
	switch p := k.Signer.Public().(type) {
	case *ecdsa.PublicKey:
		point, err := p.Bytes() // 4, x, y
		if err != nil {
			panic(err)
		}
		maps.Copy(out, map[string]any{"kty": "EC", "crv": "P-256", "alg": "ES256", "x": b64(point[1:33]), "y": b64(point[33:])})
	case *rsa.PublicKey:
		maps.Copy(out, map[string]any{"kty": "RSA", "alg": "RS256", "n": b64(p.N.Bytes()), "e": b64(big.NewInt(int64(p.E)).Bytes())})
	case ed25519.PublicKey:
		maps.Copy(out, map[string]any{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": b64(p)})
	}
	return out
}

// Alg returns the signature algorithm of the key.
func (k Key) Alg() string { return k.Public()["alg"].(string) }

// Claims returns the claims of a token for an audience that is valid for ten minutes from
// now. more replaces or adds claims; a nil value removes one.
func (i *Issuer) Claims(audience string, more map[string]any) map[string]any {
	now := i.now()
	c := map[string]any{"iss": i.URL, "sub": "someone", "aud": audience, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(), "jti": rand.Text()}
	for name, v := range more {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

// Token returns a signed token with the result of Claims.
func (i *Issuer) Token(audience string, more map[string]any) string {
	b, err := json.Marshal(i.Claims(audience, more))
	if err != nil {
		panic(err)
	}
	return i.Key().Sign(nil, b)
}

// Sign returns a token with any payload. header replaces or adds header parameters; a nil
// value removes one.
func (k Key) Sign(header map[string]any, payload []byte) string {
	h := map[string]any{"alg": k.Alg(), "kid": k.ID, "typ": "JWT"}
	for name, v := range header {
		if h[name] = v; v == nil {
			delete(h, name)
		}
	}
	b, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	return k.SignRaw(b, payload)
}

// SignRaw signs the header and the payload unchanged.
func (k Key) SignRaw(header, payload []byte) string {
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64(header) + "." + b64(payload)
	return text + "." + b64(k.Signature([]byte(text)))
}

// Signature returns the key's signature of a text.
func (k Key) Signature(text []byte) []byte {
	sum := sha256.Sum256(text)
	switch s := k.Signer.(type) {
	case *ecdsa.PrivateKey:
		x, y, err := ecdsa.Sign(rand.Reader, s, sum[:])
		if err != nil {
			panic(err)
		}
		return append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
	case ed25519.PrivateKey:
		return ed25519.Sign(s, text)
	}
	b, err := k.Signer.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		panic(err)
	}
	return b
}
