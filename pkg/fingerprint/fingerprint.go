// Package fingerprint makes fingerprints of secrets: equal secrets of one place have equal fingerprints, so a program that has
// only the fingerprints can compare the secrets. It is pure.
package fingerprint

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// KeySize is the length of a key in bytes. A key is random and secret: a reader of a fingerprint who has its key can guess
// a short secret.
const KeySize = 32

// Of returns the fingerprint of a JSON value: HMAC-SHA256 of its place and its canonical encoding. Fingerprints of different
// places differ, so a person who may set one secret cannot guess another one by its fingerprint.
//
// The canonical encoding is compact JSON with the keys of maps in the order of their bytes, numbers in the spelling of
// yamlnode.CanonicalNumber, and no escapes of HTML.
func Of(key []byte, place string, value any) (string, error) {
	if len(key) != KeySize {
		return "", fmt.Errorf("a key of fingerprints has %d bytes, and this one has %d", KeySize, len(key))
	}
	canonical, err := Canonical(value)
	if err != nil {
		return "", fmt.Errorf("encode the value of %s: %w", place, err)
	}
	h := hmac.New(sha256.New, key)
	// The length separates the place from the value.
	fmt.Fprintf(h, "fairlead-fingerprint-v1\n%d %s\n", len(place), place)
	h.Write(canonical)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}

// Canonical returns the canonical encoding of a JSON value.
func Canonical(value any) ([]byte, error) {
	normal, err := yamlnode.Normalize(value)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(normal)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
