// Package kmstest adds Ed25519 keys to a KMS-compatible server. The server moto does not
// support Ed25519 keys.
package kmstest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// Start starts a server with the API of KMS and returns its URL. The server runs until the
// test ends. The parameter keys contains keys by ARN. The server answers a request for such
// a key itself: it checks the request against the documentation of KMS, and signs with the
// key. It forwards all other requests to the server at the URL upstream, or refuses them if
// upstream is "".
func Start(t testing.TB, upstream string, keys map[string]ed25519.PrivateKey) string {
	t.Helper()
	var rest http.Handler
	if upstream != "" {
		u, err := url.Parse(upstream)
		if err != nil {
			t.Fatal(err)
		}
		rest = httputil.NewSingleHostReverseProxy(u)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var in request
		err = json.Unmarshal(body, &in)
		key, ours := keys[in.KeyId]
		if (err != nil || !ours) && rest != nil {
			rest.ServeHTTP(w, r)
			return
		}
		out, refusal := answer(r.Header.Get("X-Amz-Target"), in, key)
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if refusal != "" {
			w.WriteHeader(http.StatusBadRequest)
			out = map[string]any{"__type": "ValidationException", "message": refusal}
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

type request struct {
	KeyId, MessageType, SigningAlgorithm string
	Message                              []byte
}

func answer(target string, in request, key ed25519.PrivateKey) (out map[string]any, refusal string) {
	switch {
	case key == nil:
		return nil, fmt.Sprintf("the key %q does not exist", in.KeyId)
	case target == "TrentService.GetPublicKey":
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return nil, err.Error()
		}
		return map[string]any{"KeyId": in.KeyId, "PublicKey": der, "KeySpec": "ECC_NIST_EDWARDS25519"}, ""
	case target != "TrentService.Sign":
		return nil, target + " is not supported for this key"
	case in.MessageType != "RAW" || in.SigningAlgorithm != "ED25519_SHA_512":
		return nil, "ED25519_SHA_512 requires the message type RAW"
	case len(in.Message) < 1 || len(in.Message) > 4096:
		return nil, fmt.Sprintf("the message has %d bytes", len(in.Message))
	}
	return map[string]any{"KeyId": in.KeyId, "Signature": ed25519.Sign(key, in.Message), "SigningAlgorithm": in.SigningAlgorithm}, ""
}
