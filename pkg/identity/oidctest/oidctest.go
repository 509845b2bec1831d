// Package oidctest is an OpenID Connect issuer for tests: it publishes its
// configuration and its keys over HTTP, signs tokens with them, and can be told
// to misbehave.
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

// Issuer is an issuer that is being served. Safe for concurrent use.
type Issuer struct {
	// URL is its name, and where it is.
	URL string

	server *httptest.Server
	now    func() time.Time

	mu    sync.Mutex
	keys  []Key
	made  int
	asked map[string]int          // by path
	pages map[string]http.Handler // instead of its own, by path
}

// Key is a key that tokens are signed with.
type Key struct {
	ID     string
	Signer crypto.Signer
}

// The paths of what an issuer publishes.
const (
	ConfigPath = "/.well-known/openid-configuration"
	KeysPath   = "/keys"
)

// New serves an issuer over TLS, with one key. Close it.
func New(now func() time.Time) *Issuer { return serve(now, httptest.NewTLSServer) }

// NewPlain serves an issuer without TLS.
func NewPlain(now func() time.Time) *Issuer { return serve(now, httptest.NewServer) }

func serve(now func() time.Time, with func(http.Handler) *httptest.Server) *Issuer {
	i := Unserved("", now)
	i.server = with(i)
	i.URL = i.server.URL
	return i
}

// Unserved is an issuer that somebody else serves, or nobody: it is a handler.
func Unserved(url string, now func() time.Time) *Issuer {
	i := &Issuer{URL: url, now: now, asked: map[string]int{}, pages: map[string]http.Handler{}}
	i.AddKey("ES256")
	return i
}

// Close ends it.
func (i *Issuer) Close() { i.server.Close() }

// Transport reaches the issuer and believes its certificate.
func (i *Issuer) Transport() http.RoundTripper { return i.server.Client().Transport }

// AddKey adds a key for an algorithm (RS256, ES256, EdDSA), with which tokens are
// signed from then on.
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
		err = fmt.Errorf("oidctest signs nothing by %s", alg)
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

// Rotate signs with a new key from now on and publishes no other.
func (i *Issuer) Rotate() {
	i.AddKey("ES256")
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// Key returns the key that tokens are signed with.
func (i *Issuer) Key() Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Replace has the issuer answer by h at a path; nil: as it is.
func (i *Issuer) Replace(path string, h http.Handler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if h == nil {
		delete(i.pages, path)
		return
	}
	i.pages[path] = h
}

// Asked returns how often a path was asked for.
func (i *Issuer) Asked(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// ServeHTTP answers as an issuer does.
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
	_ = json.NewEncoder(w).Encode(v) // the asker may be gone
}

// KeySet returns what the issuer publishes of its keys.
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

// Public returns the public half as a JSON Web Key.
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

// Alg is the algorithm that the key signs with.
func (k Key) Alg() string { return k.Public()["alg"].(string) }

// Claims returns those of a token for an audience, good for ten minutes from
// now, with more on top; a nil value takes one away.
func (i *Issuer) Claims(audience string, more map[string]any) map[string]any {
	now := i.now()
	c := map[string]any{"iss": i.URL, "sub": "somebody", "aud": audience, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(), "jti": rand.Text()}
	for name, v := range more {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

// Token returns a signed token of Claims.
func (i *Issuer) Token(audience string, more map[string]any) string {
	b, err := json.Marshal(i.Claims(audience, more))
	if err != nil {
		panic(err)
	}
	return i.Key().Sign(nil, b)
}

// Sign returns a token of the payload, whatever that is. What header says comes
// on top of what it is to say; a nil value takes one away.
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

// SignRaw signs a header as it is.
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
